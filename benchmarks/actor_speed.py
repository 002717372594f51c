"""Environment steps a second, of all actors together, against the number of actors in other processes.

Acting alone: the learner takes no updates. Episodes come with all that the learner needs of them, so that moving them
between processes is counted.
"""

from collections.abc import Sequence
import time
from typing import Any

import jax.numpy as jnp

from lambda_kit import core
from lambda_kit.config import configuration
from lambda_kit.training import experiment as experiment_lib

GIN_FILES = ('gin/tasks/grid.gin',)
COUNTS = (1, 2, 4)
_BINDINGS = ('PeriodicUpdates.initial_updates = 0', 'PeriodicUpdates.updates = 0')
_DISTRIBUTED = 'gin/run/distributed.gin'


def measure(
  search_paths: Sequence[str],
  gin_files: Sequence[str] = GIN_FILES,
  counts: Sequence[int] = COUNTS,
  episodes: int = 60,
  bindings: Sequence[str] = (),
) -> list[dict[str, Any]]:
  """Measures the synchronous loop, then loops with actors in processes of Ray.

  Args:
    search_paths: Folders where gin files are looked up.
    gin_files: Of the experiment.
    counts: Numbers of actors.
    episodes: That are timed, after three of each actor that are not.
    bindings: On top of the files.

  Returns:
    Rows with `actors`, 0 for the synchronous loop, and `steps_per_second`.
  """
  rows = []
  for count in (0, *counts):
    files = (*gin_files, _DISTRIBUTED) if count else gin_files
    number = [f'distributed_loop.num_actors = {count}'] if count else []
    configuration.parse(files, [*_BINDINGS, *bindings, *number], search_paths)
    with experiment_lib.build() as experiment:
      rate = _measure_loop(experiment, max(count, 1), episodes)
    rows.append(dict(actors=count, steps_per_second=rate))
  return rows


def table(rows: Sequence[dict[str, Any]]) -> tuple[str, list[str], list[list[str]]]:
  """Title, headings and rows."""
  one = next(row['steps_per_second'] for row in rows if row['actors'] == 1)
  lines = [
    [
      str(row['actors']) if row['actors'] else 'none: the synchronous loop',
      f'{row["steps_per_second"]:.0f}',
      f'{row["steps_per_second"] / one:.2f}',
    ]
    for row in rows
  ]
  return 'Acting without learning', ['actors', 'environment steps / s', 'times one actor'], lines


def _measure_loop(experiment: experiment_lib.Experiment, num_actors: int, episodes: int) -> float:
  loop, learner = experiment.loop, experiment.learner
  learner.restore(learner.save()._replace(updates=jnp.ones((), jnp.int32)))  # Else actors would act at random.
  experiment.actor.update()
  loop.connect(_NoLogger())
  for _ in range(3 * num_actors):  # Actors start, and compile.
    loop.advance()
  before, started = loop.state.environment_steps, time.perf_counter()
  for _ in range(episodes):
    loop.advance()
  return (loop.state.environment_steps - before) / (time.perf_counter() - started)


class _NoLogger(core.Logger):
  def write(self, kind, row):
    pass

  def close(self):
    pass
