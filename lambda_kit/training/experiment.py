"""A whole experiment: its parts, built and wired from the configuration."""

from collections.abc import Sequence
import contextlib
import dataclasses
import functools
from typing import Any

import numpy as np

import gin
from lambda_kit import core
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit.agents import actor as actor_lib
from lambda_kit.environments import spec as spec_lib
from lambda_kit.environments import trial
from lambda_kit.logs import diagnostics
from lambda_kit.logs import symptoms as symptoms_lib
from lambda_kit.training import environment_loop
from lambda_kit.training import evaluation
from lambda_kit.training import schedules

DEFAULT_COST_LIMIT = 25.0  # The paper's.


@dataclasses.dataclass(frozen=True)
class Seeds:
  """Independent seeds for all random parts of a run."""

  environment: int
  evaluation_environment: int
  replay: int
  learner: int
  actor: int
  evaluation_actor: int

  @classmethod
  def derive(cls, seed: int) -> 'Seeds':
    return cls(*(int(word) for word in np.random.SeedSequence(seed).generate_state(6)))


@dataclasses.dataclass(frozen=True)
class Settings:
  """Settings of a run that no part needs; see `build`."""

  environment_steps: int
  evaluate_every: int
  with_video: bool
  checkpoint_steps: int
  checkpoint_seconds: float
  keep_checkpoints: int
  max_failed_episodes: int
  symptoms: Sequence[symptoms_lib.Symptom]
  title: str
  seed: int


@dataclasses.dataclass(frozen=True)
class Experiment:
  """The parts of an experiment, ready to run. A context manager that closes them."""

  spec: core.EnvironmentSpec
  environment: core.Environment
  # Separate, so that an evaluation doesn't disturb the episodes of training.
  evaluation_environment: core.Environment
  agent: core.Agent
  builder: core.AgentBuilder
  replay: Any
  learner: core.Learner
  actor: core.Actor
  evaluator: evaluation.Evaluator
  loop: environment_loop.Loop
  settings: Settings
  seeds: Seeds

  def close(self) -> None:
    with contextlib.ExitStack() as stack:
      stack.callback(self.evaluation_environment.close)
      stack.callback(self.environment.close)
      stack.callback(self.loop.close)

  def __enter__(self) -> 'Experiment':
    return self

  def __exit__(self, *unused_exception) -> None:
    self.close()


@gin.configurable('experiment')
@functools.partial(ranges.checked, name='experiment')
def build(
  environment_factory: core.EnvironmentFactory = gin.REQUIRED,
  agent: core.Agent = gin.REQUIRED,
  schedule: schedules.UpdateSchedule | None = gin.REQUIRED,
  loop_factory: environment_loop.LoopFactory = environment_loop.EnvironmentLoop,
  environment_steps: ranges.Count = gin.REQUIRED,
  cost_limit: float | Sequence[float] = DEFAULT_COST_LIMIT,
  seed: ranges.Whole = 0,
  evaluate_every: ranges.Count = 25_000,
  evaluation_episodes: ranges.Count = 10,
  with_video: bool = True,
  checkpoint_steps: ranges.Count = 25_000,
  checkpoint_seconds: ranges.PositiveOrInfinite = 900.0,
  keep_checkpoints: ranges.Count = 3,
  max_failed_episodes: ranges.Whole = 10,
  symptoms: Sequence[symptoms_lib.Symptom] = symptoms_lib.DEFAULT_SYMPTOMS,
  title: str = 'lambda_kit',
) -> Experiment:
  """Builds an experiment: the root of the configuration.

  Args:
    environment_factory: Makes the environments of training and evaluation.
    agent: The agent's configuration.
    schedule: Number of updates due by environment steps; None for a loop that needs no schedule.
    loop_factory: Makes the loop of acting and learning.
    environment_steps: Length of the training.
    cost_limit: d, the limit on the summed costs of an episode; one for all constraints, or one for each.
    seed: Determines everything random in the run.
    evaluate_every: Environment steps between two evaluations. There is always one at the end.
    evaluation_episodes: E, the number of episodes in an evaluation.
    with_video: Whether to film the first episode of the last evaluation, and to let the agent's model, if it has one,
      predict how that episode begins.
    checkpoint_steps: Environment steps between two checkpoints. There is always one after each evaluation.
    checkpoint_seconds: Seconds between two checkpoints; whichever is due first counts.
    keep_checkpoints: Number of latest checkpoints to keep, in addition to the best safe one.
    max_failed_episodes: Number of episodes of training, and also of evaluations, that may fail with an error of the
      environment before the run stops.
    symptoms: Common failures that the run warns about.
    title: Name of the run in the terminal and above the figure.
  """
  settings = Settings(
    environment_steps,
    evaluate_every,
    with_video,
    checkpoint_steps,
    checkpoint_seconds,
    keep_checkpoints,
    max_failed_episodes,
    symptoms,
    title,
    seed,
  )
  seeds = Seeds.derive(seed)
  with contextlib.ExitStack() as opened:  # Closes what was opened if anything fails.
    try:
      environment = trial.make(environment_factory, seeds.environment)
      opened.callback(environment.close)
      spec = spec_lib.make_spec(environment, cost_limit)
      trial.check(environment, spec)
      # Refuses symptoms that don't fit; the run makes its own.
      diagnostics.Diagnostics(spec.cost_limits, spec.num_actions, spec.constraint_names, symptoms)
      builder = agent.build(spec)
      replay = builder.make_replay(environment_steps, seeds.replay)
      learner = builder.make_learner(builder.make_dataset(replay), seeds.learner)
      actor = actor_lib.Actor(
        builder.make_actor_core(evaluation=False), learner, seeds.actor, builder.make_adder(replay, learner)
      )
      evaluation_environment = trial.make(environment_factory, seeds.evaluation_environment)
      opened.callback(evaluation_environment.close)
      evaluation_actor = actor_lib.Actor(builder.make_actor_core(evaluation=True), learner, seeds.evaluation_actor)
      evaluator = evaluation.Evaluator(evaluation_environment, evaluation_actor, spec, evaluation_episodes)
      loop = loop_factory(
        environment_loop.LoopParts(
          spec, environment, actor, learner, schedule, max_failed_episodes, environment_factory, seeds.environment
        )
      )
    except ValueError as error:
      raise errors.SetupError(str(error)) from error
    opened.pop_all()
  return Experiment(
    spec, environment, evaluation_environment, agent, builder, replay, learner, actor, evaluator, loop, settings, seeds
  )
