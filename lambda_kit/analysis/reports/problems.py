"""Problems with a report's input. They are collected and shown, and never stop a report."""

import collections
from collections.abc import Sequence
import dataclasses

UNREADABLE = 'unreadable'
CORRUPT_LINE = 'corrupt line'
UNFINISHED = 'unfinished run'
NOT_FINITE = 'score is not finite'
OTHER_PROTOCOL = 'other protocol'
SEVERAL_CONFIGURATIONS = 'several configurations'
SEVERAL_PHYSICS = 'several versions of MuJoCo'
CHANGED_CONFIGURATION = 'configuration changed on the way'
DUPLICATE_SEED = 'duplicate seed'
MISSING_SEED = 'missing seed'
NOT_DRAWN = 'figure left out'
NO_RUNS = 'no runs'


_MOST_SHOWN = 20  # On a terminal.


@dataclasses.dataclass(frozen=True)
class Problem:
  """Something that keeps a run out of the report, or that its readers must know."""

  kind: str  # One of the above.
  where: str  # A workdir or file, relative to the folder of runs, or task and algorithm.
  message: str

  def __str__(self) -> str:
    return f'{self.kind}: {self.where}: {self.message}'


def summarize(problems: Sequence[Problem]) -> str:
  """Returns text for a terminal: the first problems of each kind, and the number of others."""
  if not problems:
    return 'No problems found.'
  counts = collections.Counter(problem.kind for problem in problems)
  lines = ['Problems: ' + ', '.join(f'{count} x {kind}' for kind, count in counts.items())]
  share = max(1, _MOST_SHOWN // len(counts))
  for kind in counts:
    of_kind = [problem for problem in problems if problem.kind == kind]
    lines += [f'  {problem}' for problem in of_kind[:share]]
    if len(of_kind) > share:
      lines.append(f'  {kind}: {len(of_kind) - share} more are on the page.')
  return '\n'.join(lines)
