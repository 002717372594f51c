"""All runs of a report: a table for readers, and every evaluation as JSON for further figures.

No run is left out; those that don't count in averages are marked.
"""

from collections.abc import Iterable, Iterator, Sequence
import json
import math

import numpy as np

from lambda_kit.analysis.reports import collection as collection_lib
from lambda_kit.analysis.reports import reference
from lambda_kit.analysis.reports import runs as runs_lib

_LAST = 3  # Evaluations in the mean that is shown: a single one is too noisy.
_EVALUATED = ('episode_return', 'cost_return', 'cost_regret')
_MISSING = '—'
_HEAD = (
  'task',
  'algorithm',
  'seed',
  'environment steps',
  'return',
  'cost return',
  f'last {_LAST}: return',
  f'last {_LAST}: cost return',
  'cost regret',
  'minutes',
  'MuJoCo',
  'counts',
)
_CAPTION = (
  f'The last evaluation of each run, and the mean of its last {_LAST}. Several costs are summed. Minutes are counted '
  'from the end of the first episode, pauses included.'
)
_GROUP_HEAD = (
  'task',
  'algorithm',
  'seeds',
  'return',
  'cost return',
  'cost regret',
  'published after 1M or 2M steps: return',
  'cost return',
  'cost regret',
)
_GROUP_CAPTION = (
  f'Means and standard deviations over the seeds that count, of the mean of their last {_LAST} evaluations; cost '
  'regret at the end. Published scores are those of the paper. The optimum, if the environment knows it, is exact: the '
  'best expected return within the limits.'
)


def all_runs(collected: collection_lib.Collection) -> Iterator[tuple[runs_lib.Run, str, bool]]:
  """Yields all runs with their labels, and whether they were refused."""
  for task in collected.tasks:
    for group in collected.of_task(task):
      yield from ((run, group.algorithm, False) for run in group.runs)
  yield from ((run, run.identity.algorithm, True) for run in collected.refused)


def to_markdown(collected: collection_lib.Collection) -> str:
  """Returns a line for each run, then one for each algorithm on each task, and one for the task's known optimum."""
  lines = [line for task in collected.tasks for line in _task_lines([g for g in collected.of_task(task) if g.scored])]
  means = f'\n{_table(_GROUP_HEAD, lines)}\n\n{_GROUP_CAPTION}\n' if lines else ''
  return f'{_table(_HEAD, (_line(*item) for item in all_runs(collected)))}\n\n{_CAPTION}\n{means}'


def to_json(collected: collection_lib.Collection) -> str:
  """Returns a list of runs: what each is, whether it counts, and its evaluations, with null for non-finite values."""
  lines = [
    json.dumps(
      dict(
        workdir=run.workdir,
        task=run.identity.task,
        algorithm=label,
        seed=run.identity.seed,
        counts=_counts(run, refused),
        config_hash=run.identity.config_hash,
        mujoco=run.mujoco,
        environment_steps=[int(step) for step in run.curves[_EVALUATED[0]].steps],
        **{
          name: [round(value, 4) if math.isfinite(value) else None for value in run.curves[name].values.tolist()]
          for name in _EVALUATED
        },
      ),
      allow_nan=False,
    )
    for run, label, refused in all_runs(collected)
  ]
  return '[\n' + ',\n'.join(lines) + '\n]\n'


def _table(head: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> str:
  rows = [head, ('---',) * len(head), *lines]
  return '\n'.join('| ' + ' | '.join(text.replace('|', r'\|') for text in row) + ' |' for row in rows)


def _task_lines(groups: Sequence[collection_lib.Group]) -> Iterator[tuple[str, ...]]:
  yield from map(_group_line, groups)
  known = [(group.task, run.optimum) for group in groups for run in group.scored if run.optimum is not None]
  for task, optimum in known[:1]:  # A task has one protocol, hence one optimum.
    numbers = f'{optimum.episode_return:.2f}', f'{sum(optimum.cost_return):.1f}'
    yield (task, 'optimum', _MISSING, *numbers, *[_MISSING] * 4)


def _group_line(group: collection_lib.Group) -> tuple[str, ...]:
  metrics = [
    np.array([np.mean(run.curves[name].values[-last:]) for run in group.scored])
    for name, last in zip(_EVALUATED, (_LAST, _LAST, 1))
  ]
  digits = (2, 1, 4)
  numbers = [
    f'{values.mean():.{places}f} ± {values.std():.{places}f}' if np.isfinite(values).all() else _MISSING
    for values, places in zip(metrics, digits)
  ]
  known = reference.at_protocol(group.task).get(group.algorithm)
  published = (
    [_MISSING] * 3 if known is None else [f'{value:.{places}f}' for value, places in zip(known.values, digits)]
  )
  return (group.task, group.algorithm, str(len(group.scored)), *numbers, *published)


def _line(run: runs_lib.Run, label: str, refused: bool) -> tuple[str, ...]:
  returns, costs, regrets = (run.curves[name].values for name in _EVALUATED)
  numbers = [_number(values[-1:], digits) for values, digits in ((returns, 2), (costs, 1))]
  numbers += [
    _number(values[-_LAST:], digits) if len(values) >= _LAST else _MISSING
    for values, digits in ((returns, 2), (costs, 1))
  ]
  minutes = f'{run.score.wall_seconds / 60:.0f}' if run.score is not None else _MISSING
  return (
    run.identity.task,
    label,
    str(run.identity.seed),
    f'{run.last_step:,}',
    *numbers,
    _number(regrets[-1:], 4),
    minutes,
    run.mujoco or _MISSING,
    'yes' if _counts(run, refused) else 'no',
  )


def _counts(run: runs_lib.Run, refused: bool) -> bool:
  return run.score is not None and not refused


def _number(values: np.ndarray, digits: int) -> str:
  return f'{np.mean(values):.{digits}f}' if len(values) and np.isfinite(values).all() else _MISSING
