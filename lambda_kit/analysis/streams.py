"""Reading logs of any length in bounded memory: rows one by one, and lists that are thinned while they grow."""

from collections.abc import Callable, Iterator
import json
import math
import os
from typing import Any

import numpy as np

from lambda_kit import reading
from lambda_kit.analysis import rows as rows_lib

# Called with the number of a line and what is wrong with it.
OnBadLine = Callable[[int, str], None]

# Floats stay text, as bytes, until `number` or `vector` converts them. Most are never needed, and converting them takes
# half of the time of reading.
_DECODER = json.JSONDecoder(parse_float=str.encode)
_MAX_LINE = 1 << 20  # Bytes. Rows have a few thousand; a damaged file may have a line of gigabytes.
_MAX_LOG = 1 << 30  # Bytes, many times what our longest runs log.
_MAX_STEPS = 2**53  # Beyond it, whole numbers have no exact floats.
_LARGEST = 1e30  # Larger numbers count as infinite: squares of them don't fit into floats, and can't be drawn.


def read_rows(path: str | os.PathLike, on_bad_line: OnBadLine) -> Iterator[tuple[int, dict[str, Any]]]:
  """Yields the rows of a file of JSON lines with their line numbers, from 1. Other lines are reported and skipped.

  In rows, `environment_steps` is an int. Read other numbers with `number` and `vector`.

  Raises:
    RefusedError: It is no regular file, or too large.
    OSError: It can't be opened or read.
  """
  with reading.open_regular(path) as file:
    if os.fstat(file.fileno()).st_size > _MAX_LOG:
      raise reading.RefusedError(path, f'it has more than {_MAX_LOG:,} bytes')
    count = 0
    while line := file.readline(_MAX_LINE):
      count += 1
      if len(line) == _MAX_LINE and not line.endswith(b'\n'):
        on_bad_line(count, f'longer than {_MAX_LINE} bytes')
        while (rest := file.readline(_MAX_LINE)) and not rest.endswith(b'\n'):
          pass
        continue
      try:
        text = line.decode('utf-8')
        row, end = _DECODER.raw_decode(text)  # Half the time of `json.loads` for short rows.
        if text[end:].strip():
          raise ValueError('something follows')
      except (ValueError, RecursionError):  # Undecodable bytes raise ValueError, too.
        torn = '' if line.endswith(b'\n') else '; it is the last one and has no end, so the run may be writing it'
        on_bad_line(count, f'not JSON{torn}: {line[:60]!r}')
        continue
      steps = number(row.get('environment_steps')) if isinstance(row, dict) else None
      if steps is None or not 0 <= steps < _MAX_STEPS:
        on_bad_line(count, f'no row with environment_steps: {line[:60]!r}')
        continue
      if rows_lib.is_broken(row, line):
        on_bad_line(count, f'its checksum does not match: {line[:60]!r}')
        continue
      row['environment_steps'] = int(steps)
      yield count, row


def number(value: Any) -> float | None:
  """Returns a finite number from a row; None for anything else."""
  converted = _to_float(value)
  return converted if converted is not None and math.isfinite(converted) else None


def vector(value: Any) -> np.ndarray | None:
  """Returns a scalar or list of numbers from a row as [C], with NaN for null; None for anything else."""
  items = value if isinstance(value, list) else [value]
  numbers = [math.nan if item is None else _to_float(item) for item in items]
  return None if not numbers or None in numbers else np.array(numbers, np.float64)


def _to_float(value: Any) -> float | None:
  if isinstance(value, bool) or not isinstance(value, (int, float, bytes)):
    return None
  try:
    converted = float(value)
  except OverflowError:  # A whole number with hundreds of digits.
    return math.inf
  return converted if abs(converted) <= _LARGEST or math.isnan(converted) else math.copysign(math.inf, converted)


class Thinned:
  """A list that keeps about `capacity` items at most, evenly thinned and in order, and always the last one.

  Whenever it would grow beyond `capacity`, every second item is dropped, and from then on half as many are taken.
  """

  def __init__(self, capacity: int = 256):
    self._capacity = capacity
    self._stride = 1
    self._count = 0
    self._items: list[Any] = []
    self._last: Any = None

  def append(self, item: Any) -> None:
    self._last = item
    if self._count % self._stride == 0:
      self._items.append(item)
      if len(self._items) > self._capacity:
        self._items = self._items[::2]
        self._stride *= 2
    self._count += 1

  def items(self) -> list[Any]:
    return self._items if not self._items or self._items[-1] is self._last else [*self._items, self._last]
