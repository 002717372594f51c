"""A dry run: does everything that a run does once, so that a run that passes doesn't fail at its first update."""

from collections.abc import Callable
import dataclasses
import resource
import statistics
import sys
import time

import jax
import numpy as np

from lambda_kit import errors
from lambda_kit.config import configuration
from lambda_kit.replay import buffer
from lambda_kit.training import experiment as experiment_lib

_STEPS = 8  # Agent steps that are timed, after one that compiles.


@dataclasses.dataclass(frozen=True)
class Rehearsal:
  """The measurements of a dry run. Counts are those of the whole run."""

  updates: int
  update_seconds: float  # Of the second update: the first one compiles. 0 without updates.
  agent_steps: int
  step_seconds: float
  evaluations: int
  evaluation_seconds: float | None  # Of one evaluation; None if the length of episodes is unknown.
  peak_bytes: int
  device_bytes: int | None  # Peak of the accelerator's memory; None without one.
  has_replay: bool  # If so, memory grows beyond the peak.

  @property
  def seconds(self) -> float:
    """Estimate for the whole run."""
    return (
      self.updates * self.update_seconds
      + self.agent_steps * self.step_seconds
      + self.evaluations * (self.evaluation_seconds or 0.0)
    )

  def describe(self) -> str:
    device = '' if self.device_bytes is None else f', and {buffer.format_bytes(self.device_bytes)} on the device'
    replay = '; the replay grows beyond that' if self.has_replay else ''
    evaluations = f'{self.evaluations:,} evaluations ' + (
      'of unknown length, which are not counted'
      if self.evaluation_seconds is None
      else f'of {_duration(self.evaluation_seconds)}'
    )
    return (
      f'Peak memory: {buffer.format_bytes(self.peak_bytes)}{device}{replay}.\n'
      f'Estimated duration: {_duration(self.seconds)}: {self.updates:,} updates of '
      f'{_duration(self.update_seconds)}, {self.agent_steps:,} agent steps of {_duration(self.step_seconds)}, '
      f'{evaluations}.'
    )


def rehearse(experiment: experiment_lib.Experiment) -> Rehearsal:
  """Acts, takes updates on made-up data of the configured shapes, and takes a few steps of an evaluation.

  The experiment can't be used afterwards. Nothing is written.

  Raises:
    UserError: The run would fail.
  """
  settings, spec, loop = experiment.settings, experiment.spec, experiment.loop
  with errors.explained('Acting would fail'):
    step_seconds = _act(experiment)
  with errors.explained('The first update would fail'):
    updates = loop.updates_of_run(settings.environment_steps)
    update_seconds = _learn(experiment) if updates else 0.0
  configuration.check_operative()
  with errors.explained('The first evaluation would fail'):
    experiment.evaluator.watch(0, 1)
    evaluation_step_seconds = _seconds(lambda: experiment.evaluator.watch(0, _STEPS)) / _STEPS
  if settings.with_video:
    experiment.evaluator.warn_if_not_drawn()
    with errors.explained('The prediction at the end would fail'):
      predictor = experiment.builder.make_predictor(experiment.learner, experiment.seeds.evaluation_actor)
      if predictor is not None:
        recording = experiment.evaluator.watch(0, _STEPS)
        predictor(recording.observation, recording.action, 1)
  evaluation_seconds = None
  if spec.episode_length is not None:
    episode_steps = -(-spec.episode_length // spec.action_repeat)
    evaluation_seconds = experiment.evaluator.num_episodes * episode_steps * evaluation_step_seconds
  unit = 1 if sys.platform == 'darwin' else 1024
  return Rehearsal(
    updates,
    update_seconds,
    -(-settings.environment_steps // spec.action_repeat),
    step_seconds,
    -(-settings.environment_steps // settings.evaluate_every),
    evaluation_seconds,
    unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    (jax.local_devices()[0].memory_stats() or {}).get('peak_bytes_in_use'),
    experiment.replay is not None,
  )


def _act(experiment: experiment_lib.Experiment) -> float:
  """Takes steps in the environment. Returns the duration of the loop's agent step in seconds."""
  environment, actor, loop = experiment.environment, experiment.actor, experiment.loop
  timestep = environment.reset()
  actor.observe_first(timestep)
  simulating = []
  for _ in range(1 + _STEPS):
    action = actor.select_action(timestep.observation)
    started = time.perf_counter()
    timestep = environment.step(action)
    simulating.append(time.perf_counter() - started)
    actor.observe(action, timestep)
    if timestep.last():
      timestep = environment.reset()
      actor.observe_first(timestep)
  count = loop.num_environments
  actor.reseed(0)
  observation = {name: np.stack([value] * count) for name, value in timestep.observation.items()}
  actor.select_actions(observation, np.ones(count, bool))
  acting = [_seconds(lambda: actor.select_actions(observation, np.zeros(count, bool))) for _ in range(_STEPS)]
  actor.reseed(0)
  return statistics.median(simulating[1:]) / loop.num_processes + statistics.median(acting) / count


def _learn(experiment: experiment_lib.Experiment) -> float:
  """Takes two updates. Returns the duration of the second in seconds."""
  loop, learner = experiment.loop, experiment.learner
  adder = experiment.builder.make_adder(experiment.replay, learner)
  rng = np.random.default_rng(0)

  def update() -> float:
    loop.make_up_data(adder, experiment.settings.environment_steps, rng)
    seconds = _seconds(lambda: learner.step(1))
    experiment.actor.update()
    return seconds

  update()
  return update()


def _seconds(call: Callable[[], object]) -> float:
  started = time.perf_counter()
  call()
  return time.perf_counter() - started


def _duration(seconds: float) -> str:
  for unit, size in (('days', 86_400.0), ('hours', 3600.0), ('minutes', 60.0), ('s', 1.0)):
    if seconds >= 2.0 * size or (unit == 's' and seconds >= 1.0):
      return f'{seconds / size:.1f} {unit}'
  return f'{1000.0 * seconds:.3g} ms'
