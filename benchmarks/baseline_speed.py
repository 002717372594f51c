"""How fast the model-free baselines train, beside bare steps of as many environments in as many worker processes.

An epoch is the real one: the loop of the experiment with its actor, its rollout and its update. Epochs and bare steps
with random actions take turns, so that they meet the same noise. The first epoch compiles programs and doesn't count.
Evaluations, checkpoints and logs are left out.
"""

from collections.abc import Mapping, Sequence
import time
from typing import Any

import dm_env
import numpy as np

from benchmarks import run_shares
import gin
from lambda_kit import types
from lambda_kit.agents.on_policy import interfaces
from lambda_kit.config import configuration
from lambda_kit.environments.processes import parallel
from lambda_kit.logs import loggers
from lambda_kit.training import environment_loop
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training import rollout_loop

ALGORITHMS = ('ppo', 'ppo_lagrangian', 'trpo_lagrangian', 'cpo')
GIN_FILES = ('gin/sg6_pointgoal1.gin', 'gin/parts/observe_vector.gin')
TARGET_SHARE = 0.7  # Of the rate of bare steps.


def measure(
  algorithm: str,
  search_paths: Sequence[str],
  gin_files: Sequence[str] = GIN_FILES,
  bindings: Sequence[str] = (),
  num_workers: int = 2,
  num_environments: int = 30,
  rounds: int = 3,
) -> dict[str, Any]:
  """Trains for some epochs.

  Args:
    algorithm: One of `ALGORITHMS`.
    search_paths: Folders where gin files are looked up.
    gin_files: The task.
    bindings: On top.
    num_workers: Processes.
    num_environments: k, in all of them together.
    rounds: Epochs that are timed.

  Returns:
    Medians over rounds: `steps_per_second` of training, `bare_steps_per_second` of environments alone, `share`, the
    first of the second, `update_seconds` and `update_cpu_seconds` of an epoch's update.
  """
  sizes = [f'RolloutLoop.num_environments = {num_environments}', f'RolloutLoop.num_processes = {num_workers}']
  configuration.parse([*gin_files, f'gin/agents/{algorithm}.gin'], [*sizes, *bindings], search_paths)
  race = _Race(num_environments, num_workers, rounds)
  with experiment_lib.build(loop_factory=race.make_loop) as experiment:
    rows = race.run(experiment)
  return dict(
    algorithm=algorithm,
    num_workers=num_workers,
    num_environments=num_environments,
    rounds=rounds,
    **{name: float(np.median([row[name] for row in rows])) for name in rows[0]},
  )


def table(results: Mapping[str, dict[str, Any]]) -> tuple[str, list[str], list[list[str]]]:
  """Title, headings and rows for the figures of `measure`, by algorithm."""
  rows = [
    [
      name,
      f'{row["steps_per_second"]:.0f}',
      f'{row["bare_steps_per_second"]:.0f}',
      f'{row["share"]:.0%}',
      f'{row["update_seconds"]:.1f}',
      f'{row["update_cpu_seconds"]:.1f}',
      f'{1e6 / row["steps_per_second"] / 60:.0f}',
    ]
    for name, row in results.items()
  ]
  first = next(iter(results.values()))
  return (
    f'Training with {first["num_environments"]} environments in {first["num_workers"]} workers (median of '
    f'{first["rounds"]} epochs; target: {TARGET_SHARE:.0%} of bare steps)',
    ['algorithm', 'steps per second', 'bare', 'share', 'update s', 'update CPU s', 'minutes for 1M steps'],
    rows,
  )


class _Race:
  """Epochs of an experiment against bare steps."""

  def __init__(self, num_environments: int, num_workers: int, rounds: int):
    self._sizes = (num_environments, num_workers)
    self._rounds = rounds
    self._clock = run_shares.Clock()

  def make_loop(self, parts: environment_loop.LoopParts) -> rollout_loop.RolloutLoop:
    """The experiment's loop, with a timer around the learner."""
    self._environment_factory = parts.environment_factory
    return gin.get_configurable(rollout_loop.RolloutLoop)(
      parts._replace(learner=_TimedLearner(parts.learner, self._clock))
    )

  def run(self, experiment: experiment_lib.Experiment) -> list[dict[str, float]]:
    """A row for each round."""
    loop = experiment.loop
    loop.connect(loggers.LoggerGroup([]))
    loop.advance()
    num_steps = loop.state.environment_steps
    rows = []
    num_environments, num_workers = self._sizes
    with parallel.ParallelEnvironments(
      self._environment_factory, num_environments, seed=1, num_workers=num_workers
    ) as environments:
      for _ in range(self._rounds):
        bare_seconds = _take_steps(environments, num_steps)
        begin = time.perf_counter()
        loop.advance()
        seconds = time.perf_counter() - begin
        update_seconds, update_cpu_seconds = map(float, self._clock.cycles()[-1]['learner'])
        rows.append(
          dict(
            steps_per_second=num_steps / seconds,
            bare_steps_per_second=num_steps / bare_seconds,
            share=bare_seconds / seconds,
            update_seconds=update_seconds,
            update_cpu_seconds=update_cpu_seconds,
          )
        )
    return rows


def _take_steps(environments: parallel.ParallelEnvironments, num_steps: int) -> float:
  """Takes random actions in new episodes, as an epoch does. Returns seconds."""
  rng, spec = np.random.default_rng(0), environments.action_spec()
  begin, steps = time.perf_counter(), 0
  environments.reset()
  while steps < num_steps:
    timestep = environments.step(rng.uniform(spec.minimum, spec.maximum, (environments.num_environments, *spec.shape)))
    steps += int(environments.last_step_counts.sum())
    if np.any(timestep.step_type == dm_env.StepType.LAST):
      environments.reset_done()
  return time.perf_counter() - begin


class _TimedLearner(run_shares.TimedLearner, interfaces.OnPolicyLearner):
  """Times updates, also of learners that are given rollouts."""

  def collect(self, rollout: types.Rollout) -> None:
    self._learner.collect(rollout)
