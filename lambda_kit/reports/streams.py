"""Logs of any length in bounded memory: rows one by one, and series that are thinned while they grow."""

import json
import math
import os
from typing import Any, Callable, Iterator, Sequence

import numpy as np

# Called with the number of a line and what is wrong with it.
OnBadLine = Callable[[int, str], None]

_MAX_LINE = 1 << 20  # Bytes. Rows have some thousand; a damaged file may have a line of gigabytes.


def read_rows(path: str | os.PathLike, on_bad_line: OnBadLine) -> Iterator[tuple[int, dict[str, Any]]]:
  """Yields the rows of a file of JSON lines with their numbers, from 1. Other lines are reported and skipped."""
  with open(path, 'rb') as file:
    number = 0
    while line := file.readline(_MAX_LINE):
      number += 1
      if len(line) == _MAX_LINE and not line.endswith(b'\n'):
        on_bad_line(number, f'longer than {_MAX_LINE} bytes')
        while (rest := file.readline(_MAX_LINE)) and not rest.endswith(b'\n'):
          pass
        continue
      try:
        row = json.loads(line)
      except (ValueError, RecursionError):  # ValueError is also what undecodable bytes raise.
        torn = '' if line.endswith(b'\n') else '; it is the last one and has no end, so the run may be writing it'
        on_bad_line(number, f'not JSON{torn}: {line[:60]!r}')
        continue
      steps = row.get('environment_steps') if isinstance(row, dict) else None
      if not is_number(steps):
        on_bad_line(number, f'no row with environment_steps: {line[:60]!r}')
        continue
      yield number, row


def is_number(value: Any) -> bool:
  return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def vector(value: Any) -> np.ndarray | None:
  """A scalar or list of numbers as [C], NaN for null; None if it is anything else."""
  items = value if isinstance(value, list) else [value]
  if not items or not all(item is None or (isinstance(item, (int, float)) and not isinstance(item, bool))
                          for item in items):
    return None
  return np.array(items, np.float64)


class Series:
  """Points in the order of their steps; at most `capacity` of them, evenly thinned, and always the last."""

  def __init__(self, width: int, capacity: int = 256):
    """Has no points yet.

    Args:
      width: Values of a point.
      capacity: From here on every second point is dropped, and only every second one is taken.
    """
    self._width = width
    self._capacity = capacity
    self._stride = 1
    self._count = 0
    self._points: list[tuple[float, ...]] = []
    self._last: tuple[float, ...] | None = None

  def append(self, steps: float, values: Sequence[float]) -> None:
    self._last = (float(steps), *values)
    if self._count % self._stride == 0:
      self._points.append(self._last)
      if len(self._points) > self._capacity:
        self._points = self._points[::2]
        self._stride *= 2
    self._count += 1

  def __len__(self) -> int:
    return self._count

  def arrays(self) -> tuple[np.ndarray, np.ndarray]:
    """Steps [R] and values [R, width]."""
    points = self._points if not self._points or self._points[-1] is self._last else [*self._points, self._last]
    table = np.array(points, np.float64).reshape(len(points), 1 + self._width)
    return table[:, 0], table[:, 1:]
