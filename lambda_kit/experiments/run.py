"""A whole experiment: wiring, training, evaluation, and what is left at the end."""

import dataclasses
import pathlib
from typing import Sequence

import gin
import numpy as np

from lambda_kit import core
from lambda_kit.experiments import configuration
from lambda_kit.experiments import environment_loop
from lambda_kit.experiments import evaluation
from lambda_kit.experiments import loggers as loggers_lib
from lambda_kit.experiments import terminal
from lambda_kit.experiments import video
from lambda_kit.reports import curves
from lambda_kit.reports import tables


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


@gin.configurable
def run_experiment(workdir: str | None, environment_factory: core.EnvironmentFactory = gin.REQUIRED,
                   agent: core.AgentBuilder = gin.REQUIRED, schedule: core.UpdateSchedule = gin.REQUIRED,
                   environment_steps: int = gin.REQUIRED, cost_limit: float | Sequence[float] = 25.0, seed: int = 0,
                   evaluate_every: int = 25_000, evaluation_episodes: int = 10, with_video: bool = True,
                   title: str = 'lambda_kit') -> list[dict]:
  """Trains an agent, evaluates it, and leaves logs, a learning curve and a video in `workdir`.

  Args:
    workdir: Folder for everything that the run writes. None builds everything, takes one step and writes nothing.
    environment_factory: Makes the environments of training and evaluation.
    agent: Builds the agent's parts.
    schedule: How many updates are due after how many environment steps.
    environment_steps: Length of the training.
    cost_limit: d, the most that an episode's costs may sum up to; one for all constraints, or one for each.
    seed: Everything random in the run follows from it.
    evaluate_every: Environment steps between two evaluations. There is one at the end in any case.
    evaluation_episodes: E, the episodes of an evaluation.
    with_video: Whether to film the first episode of the last evaluation.
    title: Names the run in the terminal and above the figure.

  Returns:
    The rows of all evaluations.
  """
  if environment_steps < 1 or evaluate_every < 1:
    raise SetupError(f'run_experiment.environment_steps = {environment_steps} and evaluate_every = {evaluate_every} '
                     'must be at least 1.')
  try:
    seeds = Seeds.derive(seed)
    environment = environment_factory(seed=seeds.environment)
    tables.cost_limits(cost_limit, len(environment.constraint_names))  # Refuses limits that don't fit the constraints.
    replay = agent.make_replay(environment, environment_steps, seeds.replay)
    adder = agent.make_adder(replay)
    learner = agent.make_learner(environment, agent.make_dataset_iterator(replay), seeds.learner)
    actor = agent.make_actor(environment, learner, adder, seeds.actor, evaluation=False)
    # An environment of its own, so that an evaluation in the middle of training doesn't disturb its episodes.
    evaluation_environment = environment_factory(seed=seeds.evaluation_environment)
    evaluation_actor = agent.make_actor(evaluation_environment, learner, None, seeds.evaluation_actor, evaluation=True)
    evaluator = evaluation.Evaluator(evaluation_environment, evaluation_actor, evaluation_episodes)
  except ValueError as error:
    raise SetupError(str(error)) from error

  if workdir is None:
    _take_one_step(environment, actor)
    return []

  folder = pathlib.Path(workdir)
  configuration.save_config(folder / 'config.gin')
  view = terminal.TerminalLogger(environment_steps, cost_limit, title, constraint_names=environment.constraint_names)
  logger = loggers_lib.LoggerGroup([loggers_lib.JsonlLogger(folder), loggers_lib.TensorBoardLogger(folder / 'tensorboard'),
                                    view])

  def check_configuration():
    configuration.save_operative_config(folder / 'operative_config.gin')
    configuration.check_operative()

  loop = environment_loop.EnvironmentLoop(environment, actor, learner, schedule, logger, on_step=view.progress,
                                          on_first_update=check_configuration)
  rows = []

  def evaluate():
    episodes = evaluator.run(number=len(rows))
    rows.append(evaluation.evaluation_row(episodes, loop.state.environment_steps, loop.cost_regret))
    logger.write('evaluation', rows[-1])

  try:
    while loop.state.environment_steps < environment_steps:
      loop.run_episode()
      if loop.state.environment_steps // evaluate_every > len(rows) and loop.state.environment_steps < environment_steps:
        evaluate()
    evaluate()
    if with_video:
      print('Filming an episode.')
      video.write_video(evaluator.record(len(rows) - 1, cost_limit), folder / 'video.mp4', fps=30)
  finally:
    # Also after Ctrl-C or an error: what was done is worth looking at.
    logger.close()
    environment.close()
    evaluation_environment.close()
    if loop.state.episodes:
      names = environment.constraint_names
      curves.learning_curve(folder, folder / 'learning_curve.png', cost_limit, names, title)
      table = tables.evaluation_table(rows, cost_limit, names)
      (folder / 'evaluations.txt').write_text(table, encoding='utf-8')
      print(f'\n{table}\nEverything is in {folder}')
  return rows


def _take_one_step(environment: core.Environment, actor: core.Actor) -> None:
  timestep = environment.reset()
  actor.observe_first(timestep)
  action = actor.select_action(timestep.observation)
  actor.observe(action, environment.step(action))
  actor.update()
