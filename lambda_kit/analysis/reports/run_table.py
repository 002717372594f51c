"""All runs of a report: a table for readers, and every evaluation as JSON for further figures.

No run is left out; those that don't count in averages are marked.
"""

from collections.abc import Iterator, Sequence
import json
import math

import numpy as np

from lambda_kit.analysis.reports import collection as collection_lib
from lambda_kit.analysis.reports import plain_table
from lambda_kit.analysis.reports import reference
from lambda_kit.analysis.reports import runs as runs_lib

LAST = 3  # Evaluations in the mean that is shown: a single one is too noisy.
_EVALUATED = ('episode_return', 'cost_return', 'cost_regret')
_HEAD = (
  'task',
  'algorithm',
  'seed',
  'environment steps',
  'return',
  'cost return',
  f'last {LAST}: return',
  f'last {LAST}: cost return',
  'cost regret',
  'minutes',
  'MuJoCo',
  'counts',
)
_CAPTION = (
  f'The last evaluation of each run, and the mean of its last {LAST}. Several costs are summed. Minutes are counted '
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
  f'Means and standard deviations over the seeds that count, of the mean of their last {LAST} evaluations; cost '
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
  means = f'\n{plain_table.to_markdown(_GROUP_HEAD, lines)}\n\n{_GROUP_CAPTION}\n' if lines else ''
  return f'{plain_table.to_markdown(_HEAD, (_line(*item) for item in all_runs(collected)))}\n\n{_CAPTION}\n{means}'


def scores(run: runs_lib.Run) -> tuple[float, ...]:
  """Return and cost return of the last evaluations, and the cost regret at the end."""
  lasts = zip(_EVALUATED, (LAST, LAST, 1))
  return tuple(float(np.mean(run.curves[name].values[-last:])) for name, last in lasts)


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


def _task_lines(groups: Sequence[collection_lib.Group]) -> Iterator[tuple[str, ...]]:
  yield from map(_group_line, groups)
  known = [(group.task, run.optimum) for group in groups for run in group.scored if run.optimum is not None]
  for task, optimum in known[:1]:  # A task has one protocol, hence one optimum.
    numbers = f'{optimum.episode_return:.2f}', f'{sum(optimum.cost_return):.1f}'
    yield (task, 'optimum', plain_table.MISSING, *numbers, *[plain_table.MISSING] * 4)


def _group_line(group: collection_lib.Group) -> tuple[str, ...]:
  metrics = np.array([scores(run) for run in group.scored]).T
  digits = (2, 1, 4)
  numbers = [
    f'{values.mean():.{places}f} ± {values.std():.{places}f}' if np.isfinite(values).all() else plain_table.MISSING
    for values, places in zip(metrics, digits)
  ]
  known = reference.at_protocol(group.task).get(group.algorithm)
  published = (
    [plain_table.MISSING] * 3
    if known is None
    else [f'{value:.{places}f}' for value, places in zip(known.values, digits)]
  )
  return (group.task, group.algorithm, str(len(group.scored)), *numbers, *published)


def _line(run: runs_lib.Run, label: str, refused: bool) -> tuple[str, ...]:
  returns, costs, regrets = (run.curves[name].values for name in _EVALUATED)
  numbers = [_number(values[-1:], digits) for values, digits in ((returns, 2), (costs, 1))]
  numbers += [
    _number(values[-LAST:], digits) if len(values) >= LAST else plain_table.MISSING
    for values, digits in ((returns, 2), (costs, 1))
  ]
  minutes = f'{run.score.wall_seconds / 60:.0f}' if run.score is not None else plain_table.MISSING
  return (
    run.identity.task,
    label,
    str(run.identity.seed),
    f'{run.last_step:,}',
    *numbers,
    _number(regrets[-1:], 4),
    minutes,
    run.mujoco or plain_table.MISSING,
    'yes' if _counts(run, refused) else 'no',
  )


def _counts(run: runs_lib.Run, refused: bool) -> bool:
  return run.score is not None and not refused


def _number(values: np.ndarray, digits: int) -> str:
  return f'{np.mean(values):.{digits}f}' if len(values) and np.isfinite(values).all() else plain_table.MISSING
