"""The rows that runs log as JSON lines: reading them, and the seal that says which run wrote a row.

A seal is the last field of a row, with the run's id and a checksum of what stands before it. Rows of runs that are
older than seals have none.
"""

import json
import os
from typing import Any
import zlib

from absl import logging

_LARGEST = 2**53  # Beyond it, whole numbers have no exact floats.
_SEAL = b', "seal": "'


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
  """Parses a line; None if it is not a JSON object with `environment_steps`, a whole number, as it was sealed."""
  try:
    row = json.loads(line)
  except (ValueError, RecursionError):  # Undecodable bytes raise ValueError, too.
    return None
  if not isinstance(row, dict) or is_broken(row, line):
    return None
  steps = row.get('environment_steps')
  return row if type(steps) is int and 0 <= steps < _LARGEST else None


def seal(row: str, run_id: str) -> str:
  """Adds the seal of a run to a row, a JSON object with at least one field."""
  body = row.removesuffix('}')
  return f'{body}{_SEAL.decode()}{_seal_of(body.encode(), run_id)}"}}'


def run_of(line: bytes) -> str | None:
  """Returns the id of the run that wrote a line; None if it has no seal that fits."""
  body, _, found = line.rstrip().rpartition(_SEAL)
  run_id = found.partition(b'-')[0].decode('ascii', errors='replace')
  return run_id if found == f'{_seal_of(body, run_id)}"}}'.encode() else None


def is_broken(row: dict[str, Any], line: bytes) -> bool:
  """Whether a row has a seal that doesn't fit its line."""
  return 'seal' in row and run_of(line) is None


def _seal_of(body: bytes, run_id: str) -> str:
  return f'{run_id}-{zlib.crc32(body + run_id.encode()):08x}'
