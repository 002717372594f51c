"""A whole experiment: its parts, built and wired as the configuration says."""

from collections.abc import Sequence
import contextlib
import dataclasses
from typing import Any

import numpy as np

import gin
from lambda_kit import core
from lambda_kit import errors
from lambda_kit.agents import actor as actor_lib
from lambda_kit.environments import spec as spec_lib
from lambda_kit.logs import symptoms as symptoms_lib
from lambda_kit.training import environment_loop
from lambda_kit.training import evaluation
from lambda_kit.training import schedules

DEFAULT_COST_LIMIT = 25.0  # The paper's.


@dataclasses.dataclass(frozen=True)
class Seeds:
  """Independent seeds for everything random in a run."""

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
  """What an experiment is to do, beside its parts; see `build`."""

  environment_steps: int
  evaluate_every: int
  with_video: bool
  checkpoint_steps: int
  checkpoint_seconds: float
  keep_checkpoints: int
  symptoms: Sequence[symptoms_lib.Symptom]
  title: str
  seed: int


@dataclasses.dataclass(frozen=True)
class Experiment:
  """The parts of an experiment, ready to run. A context, at whose end they are closed."""

  spec: core.EnvironmentSpec
  environment: core.Environment
  # One of its own, so that an evaluation in the middle of training doesn't disturb its episodes.
  evaluation_environment: core.Environment
  agent: core.Agent
  builder: core.AgentBuilder
  replay: Any
  learner: core.Learner
  actor: core.Actor
  evaluator: evaluation.Evaluator
  loop: environment_loop.EnvironmentLoop
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
def build(
  environment_factory: core.EnvironmentFactory = gin.REQUIRED,
  agent: core.Agent = gin.REQUIRED,
  schedule: schedules.UpdateSchedule | None = gin.REQUIRED,
  loop_factory: environment_loop.LoopFactory = environment_loop.EnvironmentLoop,
  environment_steps: int = gin.REQUIRED,
  cost_limit: float | Sequence[float] = DEFAULT_COST_LIMIT,
  seed: int = 0,
  evaluate_every: int = 25_000,
  evaluation_episodes: int = 10,
  with_video: bool = True,
  checkpoint_steps: int = 25_000,
  checkpoint_seconds: float = 900.0,
  keep_checkpoints: int = 3,
  max_failed_episodes: int = 10,
  symptoms: Sequence[symptoms_lib.Symptom] = symptoms_lib.DEFAULT_SYMPTOMS,
  title: str = 'lambda_kit',
) -> Experiment:
  """Builds an experiment: the root of the configuration.

  Args:
    environment_factory: Makes the environments of training and evaluation.
    agent: The agent's configuration.
    schedule: How many updates are due after how many environment steps; None for a loop that needs no schedule.
    loop_factory: Makes the loop of acting and learning.
    environment_steps: Length of the training.
    cost_limit: d, the most that an episode's costs may sum up to; one for all constraints, or one for each.
    seed: Everything random in the run follows from it.
    evaluate_every: Environment steps between two evaluations. There is one at the end in any case.
    evaluation_episodes: E, the episodes of an evaluation.
    with_video: Whether to film the first episode of the last evaluation, and to let the agent's model, if it has one,
      predict how it begins.
    checkpoint_steps: Environment steps between two checkpoints. There is one after each evaluation in any case.
    checkpoint_seconds: Seconds between two checkpoints: what is due first counts.
    keep_checkpoints: How many of the last checkpoints stay, beside the best safe one.
    max_failed_episodes: Episodes whose environment may raise an error before the run stops with it.
    symptoms: Of usual troubles, of which the run warns when they begin.
    title: Names the run in the terminal and above the figure.
  """
  counts = dict(
    environment_steps=environment_steps,
    evaluate_every=evaluate_every,
    checkpoint_steps=checkpoint_steps,
    keep_checkpoints=keep_checkpoints,
    evaluation_episodes=evaluation_episodes,
  )
  for name, count in counts.items():
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
      raise errors.SetupError(f'experiment.{name} = {count!r} must be a whole number of at least 1.')
  settings = Settings(
    environment_steps,
    evaluate_every,
    with_video,
    checkpoint_steps,
    checkpoint_seconds,
    keep_checkpoints,
    symptoms,
    title,
    seed,
  )
  seeds = Seeds.derive(seed)
  with contextlib.ExitStack() as opened:  # Closed again if anything fails.
    try:
      environment = environment_factory(seed=seeds.environment)
      opened.callback(environment.close)
      spec = spec_lib.make_spec(environment, cost_limit)
      builder = agent.build(spec)
      replay = builder.make_replay(environment_steps, seeds.replay)
      learner = builder.make_learner(builder.make_dataset(replay), seeds.learner)
      actor = actor_lib.Actor(
        builder.make_actor_core(evaluation=False), learner, seeds.actor, builder.make_adder(replay)
      )
      evaluation_environment = environment_factory(seed=seeds.evaluation_environment)
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
