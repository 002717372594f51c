"""A workdir as a report reads it: the rows of its logs within bounds, and what is wrong with them."""

from collections.abc import Iterator
import dataclasses
import pathlib
import time
from typing import Any

from lambda_kit import reading
from lambda_kit.analysis import streams
from lambda_kit.analysis.reports import problems as problems_lib

_BAD_LINES_TOLD = 3  # Reported one by one, for each file; further ones are counted.
_ROWS_BETWEEN_CHECKS = 100
_MAX_SECONDS = 60.0  # Of processor time, for one workdir. Long runs take a few.


class TooSlowError(Exception):
  """Reading a workdir takes longer than a report waits."""


@dataclasses.dataclass
class Workdir:
  """A folder, and the problems found in it so far."""

  folder: pathlib.Path
  name: str  # Relative to the folder that is read, fit to be shown.
  problems: list[problems_lib.Problem] = dataclasses.field(default_factory=list)

  def __post_init__(self):
    self._deadline = time.process_time() + _MAX_SECONDS

  def report(self, kind: str, message: str, file: str = '') -> None:
    """Adds a problem, of the whole workdir or of a file in it."""
    where = f'{self.name}/{file}' if file else self.name
    self.problems.append(problems_lib.Problem(kind, where, reading.one_line(message)))

  def rows(self, file: str) -> Iterator[dict[str, Any]]:
    """Yields the rows of a log. Reports bad lines, and rows whose steps go back. A missing log has no rows.

    Raises:
      TooSlowError: The workdir has used its time.
    """
    bad = 0

    def on_bad_line(number: int, reason: str) -> None:
      nonlocal bad
      bad += 1
      self._check_time(number)
      if bad <= _BAD_LINES_TOLD:
        self.report(problems_lib.CORRUPT_LINE, f'line {number}, skipped: {reason}', file)

    previous = 0
    try:
      for number, row in streams.read_rows(self.folder / file, on_bad_line):
        self._check_time(number)
        if row['environment_steps'] < previous:
          on_bad_line(number, f'steps go back from {previous:,} to {row["environment_steps"]:,}')
          continue
        previous = row['environment_steps']
        yield row
    except FileNotFoundError:
      pass
    except (OSError, reading.RefusedError) as error:
      self.report(problems_lib.UNREADABLE, f'{reason(error)}; it is left out', file)
    if bad > _BAD_LINES_TOLD:
      self.report(problems_lib.CORRUPT_LINE, f'{bad} lines were skipped in all', file)

  def _check_time(self, number: int) -> None:
    if number % _ROWS_BETWEEN_CHECKS == 0 and time.process_time() > self._deadline:
      raise TooSlowError(f'reading it takes more than {_MAX_SECONDS:.0f} seconds')


def reason(error: Exception) -> str:
  """What is wrong with a file, without its path."""
  if isinstance(error, OSError):
    return error.strerror or str(error)
  return error.reason if isinstance(error, reading.RefusedError) else str(error)
