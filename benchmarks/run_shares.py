"""Where the time of a run goes: learner, environment, acting, and everything else.

The run is the real one: `train.train`, its loop, logs, diagnostics and checkpoints. Only the parts
that the loop meets are wrapped by timers. What remains of the wall time is everything else: the loop itself, storing
episodes, logging, the terminal, and snapshots for checkpoints.

A cycle is what happens from the end of one call of the learner to the end of the next: the environment steps between
(1,000) and the updates that are then due. The first two cycles compile programs, and don't count. Evaluations, which
are acting and environment once more, come after the last cycle.
"""

from collections.abc import Iterator, Sequence
import contextlib
import os
import tempfile
import time
from typing import Any

import dm_env
import numpy as np

from lambda_kit import core
from lambda_kit import types
from lambda_kit.config import configuration
from lambda_kit.environments import wrappers
from lambda_kit.training import environment_loop
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training import train as train_lib

TARGET_SHARE = 0.05  # Of everything else.
PAPER_UPDATES = 100  # Of a cycle.
_SKIPPED = 2  # Cycles that compile: the update; then the actor, which acts at random before the first update.

# PointGoal1 with the paper's images, cycles of 1,000 environment steps and networks, but for convolutions with fewer
# channels. Two cores take 20 updates of small batches, B = 8, L = 16, N = 3, H = 8 and 64 start states, in some ten
# seconds. The paper's 100 updates of a cycle take far more, and everything else takes the same.
GIN_FILES = ('gin/sg6_pointgoal1.gin',)
BINDINGS = (
  'ENVIRONMENT_STEPS = 6_000',
  'PeriodicUpdates.first = 2_000',
  'PeriodicUpdates.initial_updates = 20',
  'PeriodicUpdates.updates = 20',
  'EpisodeBuffer.sequence_length = 16',
  'LambdaAgent.batch_size = 8',
  'LambdaAgent.num_start_states = 64',
  'LambdaAgent.horizon = 8',
  'LambdaAgent.num_samples = 3',
  'LambdaAgent.updates_per_call = 1',
  'ImageEncoder.depth = 8',
  'ImageDecoder.depth = 8',
  'experiment.evaluation_episodes = 1',
  'experiment.with_video = False',
)


class Clock:
  """Adds up the seconds and CPU seconds of named activities, and keeps the sums at the end of each cycle."""

  def __init__(self):
    self._sums: dict[str, np.ndarray] = {}
    self._marks: list[dict[str, np.ndarray]] = []

  @contextlib.contextmanager
  def running(self, name: str) -> Iterator[None]:
    begin = _now()
    try:
      yield
    finally:
      self._sums[name] = self._sums.get(name, np.zeros(2)) + _now() - begin

  def end_cycle(self) -> None:
    self._marks.append(dict(self._sums, total=_now()))

  def cycles(self) -> list[dict[str, np.ndarray]]:
    """Seconds and CPU seconds [2] of each activity in each cycle, and of all of it as `total`."""
    return [
      {name: after[name] - before.get(name, 0.0) for name in after}
      for before, after in zip(self._marks, self._marks[1:])
    ]

  def make_loop(self, parts: environment_loop.LoopParts) -> environment_loop.EnvironmentLoop:
    """The loop with timers around what it meets."""
    return environment_loop.EnvironmentLoop(
      parts._replace(
        environment=TimedEnvironment(parts.environment, self),
        actor=TimedActor(parts.actor, self),
        learner=TimedLearner(parts.learner, self),
      )
    )


class TimedEnvironment(wrappers.EnvironmentWrapper):
  """Times resets and steps."""

  def __init__(self, environment: core.Environment, clock: Clock):
    super().__init__(environment)
    self._clock = clock

  def reset(self) -> dm_env.TimeStep:
    with self._clock.running('environment'):
      return super().reset()

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    with self._clock.running('environment'):
      return super().step(action)


class TimedActor(core.Actor):
  """Times the choice of actions and the fetching of variables as acting, and what goes to the replay as storing."""

  def __init__(self, actor: core.Actor, clock: Clock):
    self.variable_names = actor.variable_names
    self._actor = actor
    self._clock = clock

  def reseed(self, episode: int) -> None:
    with self._clock.running('acting'):
      self._actor.reseed(episode)

  def select_action(self, observation: types.Observation) -> np.ndarray:
    with self._clock.running('acting'):
      return self._actor.select_action(observation)

  def select_actions(self, observation: types.Observation, is_first: np.ndarray) -> np.ndarray:
    with self._clock.running('acting'):
      return self._actor.select_actions(observation, is_first)

  def observe_first(self, timestep: dm_env.TimeStep) -> None:
    with self._clock.running('storing'):
      self._actor.observe_first(timestep)

  def observe(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
    with self._clock.running('storing'):
      self._actor.observe(action, next_timestep)

  def give_up(self) -> None:
    self._actor.give_up()

  def update(self) -> None:
    with self._clock.running('acting'):
      self._actor.update()


class TimedLearner(core.Learner):
  """Times updates, with the wait for their batches. The end of a call is the end of a cycle."""

  def __init__(self, learner: core.Learner, clock: Clock):
    self._learner: Any = learner
    self._clock = clock

  def step(self, num_updates: int) -> dict[str, float]:
    with self._clock.running('learner'):
      metrics = self._learner.step(num_updates)
    self._clock.end_cycle()
    return metrics

  def get_variables(self, names: Sequence[str]) -> list[Any]:
    return self._learner.get_variables(names)

  def save(self) -> Any:
    return self._learner.save()

  def restore(self, state: Any) -> None:
    self._learner.restore(state)


def measure(
  search_paths: Sequence[str],
  gin_files: Sequence[str] = GIN_FILES,
  bindings: Sequence[str] = BINDINGS,
  paper_seconds: float | None = None,
) -> dict[str, Any]:
  """Trains for a short while, in a folder that is removed.

  Args:
    search_paths: Folders where gin files are looked up.
    gin_files: The experiment.
    bindings: On top. There must be at least four calls of the learner.
    paper_seconds: Seconds of an update at the paper's size, where they were measured in the same run.

  Returns:
    `cycles`: how many were measured; `seconds`, `cpu_seconds`: medians over cycles, by activity ('learner',
    'environment', 'acting', 'everything else', and 'storing', which is a part of it); `shares`: of all seconds of these
    cycles; `paper_shares`: the same for a cycle with the paper's learner, if `paper_seconds` is given.
  """
  clock = Clock()
  configuration.parse(gin_files, bindings, search_paths)
  with tempfile.TemporaryDirectory() as folder:
    with experiment_lib.build(loop_factory=clock.make_loop) as experiment:
      train_lib.train(experiment, os.path.join(folder, 'run'))
  cycles = clock.cycles()[_SKIPPED - 1 :]  # The first cycle ends with the first mark.
  for cycle in cycles:
    cycle['everything else'] = cycle['total'] - cycle['learner'] - cycle['environment'] - cycle['acting']
  medians = {name: np.median([cycle[name] for cycle in cycles], axis=0) for name in cycles[0]}
  totals = {name: sum(cycle[name][0] for cycle in cycles) for name in medians}
  result: dict[str, Any] = dict(
    cycles=len(cycles),
    seconds={name: float(value[0]) for name, value in medians.items()},
    cpu_seconds={name: float(value[1]) for name, value in medians.items()},
    shares={name: float(value / totals['total']) for name, value in totals.items() if name != 'total'},
  )
  if paper_seconds is not None:
    seconds = dict(result['seconds'], learner=PAPER_UPDATES * paper_seconds)
    total = sum(seconds[name] for name in ('learner', 'environment', 'acting', 'everything else'))
    result['paper_shares'] = {name: seconds[name] / total for name in result['shares']}
  return result


def table(result: dict[str, Any]) -> tuple[str, list[str], list[list[str]]]:
  """Title, headings and rows for the figures of `measure`."""
  rows = []
  for name, label in {
    'learner': 'learner',
    'environment': 'environment',
    'acting': 'acting',
    'everything else': 'everything else',
    'storing': '  of it storing',
  }.items():
    rows.append(
      [label, f'{result["seconds"][name]:.2f}', f'{result["cpu_seconds"][name]:.2f}', f'{result["shares"][name]:.1%}']
    )
    rows[-1] += [f'{result["paper_shares"][name]:.2%}'] if 'paper_shares' in result else []
  headings = ['activity', 's of a cycle', 'CPU s', 'share of wall time']
  headings += ["share with the paper's learner"] if 'paper_shares' in result else []
  return (
    f'A run, {result["cycles"]} cycles of environment steps and updates (target: everything else below '
    f'{TARGET_SHARE:.0%})',
    headings,
    rows,
  )


def _now() -> np.ndarray:
  """Seconds and CPU seconds since some moment, [2]."""
  return np.array([time.perf_counter(), time.process_time()])
