"""Evaluation of a checkpoint: repeats what the training measured, films it, and exports the policy."""

import os
import pathlib
from typing import Any, Sequence

import numpy as np

from lambda_kit import core
from lambda_kit import types
from lambda_kit.training.checkpoints import errors
from lambda_kit.training.checkpoints import store as store_lib
from lambda_kit.analysis import calibration
from lambda_kit.training import checkpointing
from lambda_kit.config import configuration
from lambda_kit.training import environment_loop
from lambda_kit.training import evaluation
from lambda_kit.logs import loggers as loggers_lib
from lambda_kit.analysis import prediction
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.analysis import video
from lambda_kit.analysis.metrics import scores
from lambda_kit.training import exported
from lambda_kit.analysis import tables

NEWEST, BEST = 'newest', 'best'


class NothingToExportError(ValueError):
  """The agent has no policy that could be exported."""


class Evaluation:
  """The job of evaluating a checkpoint of a run, also of one that still goes on.

  A checkpoint that was saved after an evaluation holds its score, and that evaluation is repeated: the same episodes,
  with the same noise. One that was saved between two evaluations gets the one that would come next.

  Args:
    workdir: That of the run. Results are added to its folder `evaluation`.
    which: 'newest', or 'best' for the one with the highest return among those that were safe.
    step: Environment steps of the checkpoint to take, whatever `which` says.
    more_episodes: How many to run beyond those of the evaluation.
    num_videos: How many episodes to film, from the evaluation's first on. If any, the agent's model predicts the first.
    export_to: Folder that the policy is exported to; None for no export.
    num_calibrations: Episodes, played with the noise of training, in which bounds on costs are compared with costs.
  """

  def __init__(self, workdir: str | os.PathLike, which: str = NEWEST, step: int | None = None, more_episodes: int = 0,
               num_videos: int = 0, export_to: str | os.PathLike | None = None, num_calibrations: int = 0):
    self._folder = pathlib.Path(workdir)
    self._which = which
    self._step = step
    self._more_episodes = more_episodes
    self._num_videos = num_videos
    self._export_to = export_to
    self._num_calibrations = num_calibrations

  def __call__(self, experiment: experiment_lib.Experiment) -> dict[str, Any]:
    """Evaluates. Returns the row that it also logs: that of an evaluation, with where it comes from.

    `reproduced` in it says whether the score is that of the checkpoint, to the bit; None if that has no score.
    """
    checkpoint = self._choose()
    checkpointing.check_task(checkpoint, experiment.environment)
    experiment.learner.restore(checkpoint.load('learner', experiment.learner.save()))
    print(f'Evaluating {checkpoint.path}')
    if self._export_to is not None:
      print(f'The policy is in {_export(experiment, checkpoint, self._export_to)}')

    number = len(checkpoint.state['evaluations']) - (checkpoint.score is not None)
    evaluator, settings = experiment.evaluator, experiment.settings
    episodes = evaluator.run(number, self._more_episodes)
    reproduced = None
    if checkpoint.score is not None:
      reproduced = self._compare(episodes[:evaluator.num_episodes], checkpoint)
    loop = environment_loop.LoopState.from_json(checkpoint.state['loop'])
    row = dict(
        evaluation.evaluation_row(episodes, checkpoint.step,
                                  scores.cost_regret(loop.total_cost, loop.environment_steps)),
        task=checkpoint.state['task'], evaluation=number, num_episodes=len(episodes), reproduced=reproduced)
    results = self._folder / 'evaluation'
    logger = loggers_lib.JsonlLogger(results)
    logger.write('evaluation', row)
    logger.close()
    print('\n' + tables.evaluation_table([row], settings.cost_limit, experiment.environment.constraint_names))
    if self._num_calibrations:
      name = f'{checkpoint.path.name}-calibration'
      print(calibration.describe(calibration.write_calibration(
          experiment, self._num_calibrations, loop.episodes, results, name)))
      print(f'More about it is in {results / name}.json and .png')
    if self._num_videos:
      path = prediction.write_prediction(experiment, number, checkpoint.step, results,
                                         f'{checkpoint.path.name}-prediction')
      if path is not None:
        print(f'What the model predicts of episode 0 is in {path}')
    for i in range(self._num_videos):
      path = video.write_video(evaluator.record(number, settings.cost_limit, episode=i),
                               results / f'{checkpoint.path.name}-episode_{i}.mp4', fps=30)
      print(f'A video of episode {i} is in {path}')
    return row

  def _choose(self) -> store_lib.Checkpoint:
    store = store_lib.CheckpointStore(self._folder / 'checkpoints')
    if self._step is not None:
      return store.at(self._step)
    checkpoint = store.newest() if self._which == NEWEST else store.best()
    if checkpoint is None:
      if self._which == NEWEST or not store.steps():
        raise errors.CheckpointError(f'{self._folder} has no checkpoint yet.')
      raise errors.CheckpointError(f'No checkpoint in {self._folder} was evaluated and found to be safe. Take the '
                                   f'newest, or one of the steps {", ".join(map(str, store.steps()))}.')
    return checkpoint

  def _compare(self, episodes: Sequence[types.EpisodeSummary], checkpoint: store_lib.Checkpoint) -> bool:
    """Says whether the score of the checkpoint is reproduced, and what may be the reason if it is not."""
    saved = checkpoint.state['evaluations'][-1]
    row = evaluation.evaluation_row(episodes, checkpoint.step, np.zeros(0))
    describe = lambda row: (f'return {row["episode_return"]!r}, cost return {row["cost_return"]!r} '
                            f'over {len(row["episode_returns"])} episodes')
    if all(np.array_equal(row[name], saved[name], equal_nan=True)
           for name in ('episode_return', 'cost_return', 'episode_returns', 'cost_returns')):
      print(f'The score of the checkpoint is reproduced to the bit: {describe(saved)}.')
      return True
    print(f'The score of the checkpoint is NOT reproduced to the bit.\n  saved: {describe(saved)}\n'
          f'  now:   {describe(row)}')
    changes = configuration.differing_lines((self._folder / 'config.gin').read_text('utf-8'),
                                            configuration.resolved_config())
    print('\n'.join(['  The configuration differs from that of the run:', *(f'    {line}' for line in changes)])
          if changes else '  The configuration is that of the run: another machine, another number of cores '
          '(taskset), or other versions of packages round differently.')
    return False


def _export(experiment: experiment_lib.Experiment, checkpoint: store_lib.Checkpoint, folder: str | os.PathLike) -> pathlib.Path:
  if not isinstance(experiment.agent, core.PolicyBuilder):
    raise NothingToExportError(f'A {type(experiment.agent).__name__} has no policy to export.')
  environment = experiment.evaluation_environment
  policy = experiment.agent.make_policy(environment, experiment.learner, experiment.seeds.evaluation_actor)
  source = dict(environment_steps=checkpoint.step, score=checkpoint.score)
  return exported.save(folder, policy, exported.Description.of(environment, policy.settings, source))
