"""A whole experiment: its parts, built and wired as the configuration says."""

import dataclasses
from typing import Any, Callable, Sequence

import gin
import numpy as np

from lambda_kit import core
from lambda_kit.training import environment_loop
from lambda_kit.training import evaluation
from lambda_kit.logs import symptoms as symptoms_lib
from lambda_kit.analysis import tables


class SetupError(ValueError):
  """The parts of an experiment do not fit together. The message names the cause."""


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
  """What an experiment is to do, beside its parts; see `run_experiment`."""
  environment_steps: int
  cost_limit: float | Sequence[float]
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
  """The parts of an experiment, ready to run."""
  environment: core.Environment
  # One of its own, so that an evaluation in the middle of training doesn't disturb its episodes.
  evaluation_environment: core.Environment
  replay: Any
  learner: core.Learner
  actor: core.Actor
  evaluator: evaluation.Evaluator
  loop: environment_loop.EnvironmentLoop
  settings: Settings
  agent: core.AgentBuilder
  seeds: Seeds

  def close(self) -> None:
    self.loop.close()
    self.environment.close()
    self.evaluation_environment.close()


@gin.configurable
def run_experiment(job: Callable[[Experiment], Any], environment_factory: core.EnvironmentFactory = gin.REQUIRED,
                   agent: core.AgentBuilder = gin.REQUIRED, schedule: core.UpdateSchedule | None = gin.REQUIRED,
                   loop_factory: core.LoopFactory = environment_loop.episode_loop,
                   environment_steps: int = gin.REQUIRED, cost_limit: float | Sequence[float] = 25.0, seed: int = 0,
                   evaluate_every: int = 25_000, evaluation_episodes: int = 10, with_video: bool = True,
                   checkpoint_steps: int = 25_000, checkpoint_seconds: float = 900.0, keep_checkpoints: int = 3,
                   max_failed_episodes: int = 10,
                   symptoms: Sequence[symptoms_lib.Symptom] = symptoms_lib.DEFAULT_SYMPTOMS,
                   title: str = 'lambda_kit') -> Any:
  """Builds an experiment and gives it to a job.

  Args:
    job: What to do with it: `training.Training`, `checkpoint_evaluation.Evaluation`, or `take_one_step`.
    environment_factory: Makes the environments of training and evaluation.
    agent: Builds the agent's parts.
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

  Returns:
    What the job returns.
  """
  if environment_steps < 1 or evaluate_every < 1 or checkpoint_steps < 1 or keep_checkpoints < 1:
    raise SetupError(
        f'run_experiment.environment_steps = {environment_steps}, evaluate_every = {evaluate_every}, checkpoint_steps = '
        f'{checkpoint_steps} and keep_checkpoints = {keep_checkpoints} must be at least 1.')
  settings = Settings(environment_steps, cost_limit, evaluate_every, with_video, checkpoint_steps, checkpoint_seconds,
                      keep_checkpoints, max_failed_episodes, symptoms, title, seed)
  try:
    seeds = Seeds.derive(seed)
    environment = environment_factory(seed=seeds.environment)
    tables.cost_limits(cost_limit, len(environment.constraint_names))  # Refuses limits that don't fit the constraints.
    replay = agent.make_replay(environment, environment_steps, seeds.replay)
    adder = agent.make_adder(replay)
    learner = agent.make_learner(environment, agent.make_dataset_iterator(replay), seeds.learner)
    actor = agent.make_actor(environment, learner, adder, seeds.actor, evaluation=False)
    evaluation_environment = environment_factory(seed=seeds.evaluation_environment)
    evaluation_actor = agent.make_actor(evaluation_environment, learner, None, seeds.evaluation_actor, evaluation=True)
    evaluator = evaluation.Evaluator(evaluation_environment, evaluation_actor, evaluation_episodes)
    loop = loop_factory(environment=environment, actor=actor, learner=learner, schedule=schedule,
                        max_failed_episodes=max_failed_episodes, environment_factory=environment_factory,
                        seed=seeds.environment)
  except ValueError as error:
    raise SetupError(str(error)) from error
  experiment = Experiment(environment, evaluation_environment, replay, learner, actor, evaluator, loop, settings,
                          agent, seeds)
  try:
    return job(experiment)
  finally:
    experiment.close()


def take_one_step(experiment: Experiment) -> None:
  """Shows that the parts work together."""
  environment, actor = experiment.environment, experiment.actor
  timestep = environment.reset()
  actor.observe_first(timestep)
  action = actor.select_action(timestep.observation)
  actor.observe(action, environment.step(action))
  actor.update()
