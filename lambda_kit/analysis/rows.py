"""Reading the rows that runs log as JSON lines."""

import json
import os
from typing import Any

from absl import logging


def read_jsonl(path: str | os.PathLike) -> list[dict[str, Any]]:
  """Returns the rows of a file. Lines that are not a JSON object are skipped with a warning that names them."""
  rows = []
  with open(path, 'rb') as file:
    for number, line in enumerate(file, start=1):
      row = parse(line)
      if row is None:
        logging.warning('%s, line %d: not a JSON object, skipped: %r', path, number, line[:80])
      else:
        rows.append(row)
  return rows


def parse(line: bytes) -> dict[str, Any] | None:
  """Parses a line as a row; None if it is not a JSON object."""
  try:
    row = json.loads(line)
  except ValueError:  # Undecodable bytes raise it, too.
    return None
  return row if isinstance(row, dict) else None
