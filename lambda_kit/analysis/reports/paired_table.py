"""What changes if one algorithm takes the place of another, by seeds that both have."""

from collections.abc import Iterator
import itertools

import numpy as np

from lambda_kit.analysis.metrics import paired
from lambda_kit.analysis.reports import collection as collection_lib
from lambda_kit.analysis.reports import plain_table
from lambda_kit.analysis.reports import run_table

_MIN_SEEDS = 2
_DIGITS = (2, 1, 4)  # Of the scores of a run.
_HEAD = ('task', 'algorithm', 'minus', 'seeds', 'return', 'p', 'cost return', 'p', 'cost regret', 'p')
CAPTION = (
  f'Mean differences between runs of the same seed, with 95% intervals, for algorithms with at least {_MIN_SEEDS} '
  f'seeds in common. Scores are means of the last {run_table.LAST} evaluations, and the cost regret at the end. p is '
  'that of a two-sided sign-flip test, at least 0.0625 with 5 seeds; of many differences some are large by chance.'
)


def to_markdown(collected: collection_lib.Collection) -> str:
  """Returns a line for each pair of algorithms on each task; nothing if there are none."""
  lines = list(_lines(collected))
  return f'{plain_table.to_markdown(_HEAD, lines)}\n\n{CAPTION}\n' if lines else ''


def to_html(collected: collection_lib.Collection) -> str:
  """The same as HTML."""
  lines = list(_lines(collected))
  return plain_table.to_html(CAPTION, _HEAD, lines) if lines else ''


def _lines(collected: collection_lib.Collection) -> Iterator[plain_table.Row]:
  for task in collected.tasks:
    for first, second in itertools.combinations(collected.of_task(task), 2):
      runs = [{run.identity.seed: run for run in group.scored} for group in (first, second)]
      seeds = sorted(runs[0].keys() & runs[1].keys())
      if len(seeds) >= _MIN_SEEDS:
        scores = [np.array([run_table.scores(by_seed[seed]) for seed in seeds]).T for by_seed in runs]
        cells = itertools.chain(*map(_cells, *scores, _DIGITS))
        yield (task, first.algorithm, second.algorithm, str(len(seeds)), *cells)


def _cells(first: np.ndarray, second: np.ndarray, digits: int) -> tuple[str, str]:
  if not (np.isfinite(first).all() and np.isfinite(second).all()):
    return plain_table.MISSING, plain_table.MISSING
  found = paired.difference(first, second)
  shown = lambda value: f'{value:+.{digits}f}'
  return f'{shown(found.value)} ({shown(found.low)} to {shown(found.high)})', f'{found.p:.2g}'
