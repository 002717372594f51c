"""Reading the rows that runs log as JSON lines."""

import json
import os
from typing import Any

from absl import logging

_LARGEST = 2**53  # Beyond it, whole numbers have no exact floats.


def read_jsonl(path: str | os.PathLike) -> list[dict[str, Any]]:
  """Returns the rows of a file. Other lines are skipped with a warning that names them."""
  rows = []
  with open(path, 'rb') as file:
    for number, line in enumerate(file, start=1):
      row = parse(line)
      if row is None:
        logging.warning('%s, line %d: not a row, skipped: %r', path, number, line[:80])
      else:
        rows.append(row)
  return rows


def parse(line: bytes) -> dict[str, Any] | None:
  """Parses a line; None if it is not a JSON object with `environment_steps`, a whole number."""
  try:
    row = json.loads(line)
  except (ValueError, RecursionError):  # Undecodable bytes raise ValueError, too.
    return None
  steps = row.get('environment_steps') if isinstance(row, dict) else None
  return row if type(steps) is int and 0 <= steps < _LARGEST else None
