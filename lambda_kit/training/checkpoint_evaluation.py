"""Evaluation of a checkpoint: repeats the evaluation of training, films it, and exports the policy."""

from collections.abc import Mapping, Sequence
import os
import pathlib
from typing import Any

import jax
import numpy as np

from lambda_kit import files
from lambda_kit import types
from lambda_kit.agents import actor as actor_lib
from lambda_kit.analysis import calibration
from lambda_kit.analysis import certificate as certificate_lib
from lambda_kit.analysis import prediction
from lambda_kit.analysis import run_record
from lambda_kit.analysis import tables
from lambda_kit.analysis import video
from lambda_kit.analysis.metrics import scores
from lambda_kit.config import configuration
from lambda_kit.logs import loggers as loggers_lib
from lambda_kit.training import checkpointing
from lambda_kit.training import environment_loop
from lambda_kit.training import evaluation
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training import exported
from lambda_kit.training import workdir as workdir_lib
from lambda_kit.training.checkpoints import errors
from lambda_kit.training.checkpoints import store as store_lib

NEWEST, BEST = 'newest', 'best'
_MEASURED = ('episode_return', 'cost_return', 'episode_returns', 'cost_returns')


def evaluate(
  experiment: experiment_lib.Experiment,
  workdir: str | os.PathLike,
  which: str = NEWEST,
  step: int | None = None,
  more_episodes: int = 0,
  num_videos: int = 0,
  export_to: str | os.PathLike | None = None,
  num_calibrations: int = 0,
) -> dict[str, Any]:
  """Evaluates a checkpoint of a run, which may still be running.

  If the checkpoint was saved after an evaluation, it holds a score, and that evaluation is repeated: the same episodes,
  with the same noise. If it was saved between two evaluations, the next one is run.

  Args:
    experiment: The run's experiment.
    workdir: The run's workdir. Results are added to its folder `evaluation`.
    which: 'newest', or 'best' for the one with the highest return among those that were safe.
    step: Environment steps of the checkpoint to evaluate; overrides `which`.
    more_episodes: Number of episodes beyond those of the evaluation.
    num_videos: Number of episodes to film, from the evaluation's first on. If any, the agent's model predicts the
      first.
    export_to: Folder to export the policy to; None for no export.
    num_calibrations: Number of new episodes in which to compare forecasts of costs with costs. The certificate that
      comes of it, now or earlier, goes with the exported policy.

  Returns:
    The row that is also logged: the evaluation's, with its origin. Its `reproduced` says whether the score equals the
    checkpoint's to the bit; None if the checkpoint has no score.
  """
  folder, spec, title = pathlib.Path(workdir), experiment.spec, experiment.settings.title
  checkpoint = _choose(folder, which, step)
  checkpointing.check_task(checkpoint, experiment.environment)
  number, saved, loop = read_state(checkpoint)
  experiment.learner.restore(checkpoint.load('learner', experiment.learner.save()))
  if export_to is not None:
    exported.check_folder(export_to)
  print(f'Evaluating {checkpoint.path}')
  files.remove_leftovers(folder / 'evaluation')
  results, calibrated = folder / 'evaluation', f'{checkpoint.path.name}-calibration'
  files.refuse_others(results)
  if num_calibrations:
    _calibrate(experiment, checkpoint, num_calibrations, results, calibrated)
    print(f'Details of the calibration are in {results / calibrated}.json and .png')
  certificate = calibration.read_certificate(results / f'{calibrated}.json')
  if export_to is not None:
    print(f'The policy is in {_export(experiment, checkpoint, certificate, export_to)}')

  evaluator = experiment.evaluator
  episodes = evaluator.run(number, more_episodes)
  reproduced = None
  if saved is not None:
    reproduced = _compare(folder, episodes[: evaluator.num_episodes], checkpoint.step, saved)
  row = dict(
    evaluation.evaluation_row(episodes, checkpoint.step, scores.cost_regret(loop.total_cost, loop.environment_steps)),
    task=checkpoint.state['task'],
    evaluation=number,
    num_episodes=len(episodes),
    reproduced=reproduced,
  )
  logger = loggers_lib.JsonlLogger(results)
  logger.write('evaluation', row)
  logger.close()
  print('\n' + tables.evaluation_table([row], spec.cost_limits, spec.constraint_names))
  if num_calibrations and certificate is not None:
    print(certificate.describe())
  if num_videos:
    predictor = experiment.builder.make_predictor(experiment.learner, experiment.seeds.evaluation_actor)
    path = prediction.write_prediction(
      predictor, evaluator.watch, number, checkpoint.step, title, results, f'{checkpoint.path.name}-prediction'
    )
    if path is not None:
      print(f'The prediction of episode 0 is in {path}')
  for i in range(num_videos):
    path = video.write_video(
      evaluator.record(number, episode=i), results / f'{checkpoint.path.name}-episode_{i}.mp4', fps=30
    )
    print(f'The video of episode {i} is in {path}')
  return row


def _choose(folder: pathlib.Path, which: str, step: int | None) -> store_lib.Checkpoint:
  has_record = (folder / run_record.NAME).exists()  # The first runs had none.
  run_id = workdir_lib.read_record(folder).run_id if has_record else None
  store = store_lib.CheckpointStore(folder / 'checkpoints', run_id=run_id)
  if step is not None:
    return store.at(step)
  checkpoint = store.newest() if which == NEWEST else store.best()
  if checkpoint is None:
    if which == NEWEST or not store.steps():
      raise errors.CheckpointError(f'{folder} has no checkpoint yet.')
    raise errors.CheckpointError(
      f'No checkpoint in {folder} was evaluated and found safe. Choose the newest, or '
      f'one of the steps {", ".join(map(str, store.steps()))}.'
    )
  return checkpoint


def read_state(
  checkpoint: store_lib.Checkpoint,
) -> tuple[int, Mapping[str, np.ndarray] | None, environment_loop.LoopState]:
  """Returns what an evaluation needs of a checkpoint's state.

  That is the number of the evaluation; what that of training measured, if the checkpoint was saved after one; and the
  state of the loop.
  """
  with errors.wrong_content_is_damage(checkpoint.path):
    evaluations = checkpoint.state['evaluations']
    saved = None
    if checkpoint.score is not None:
      saved = {name: np.asarray(evaluations[-1][name], np.float64) for name in _MEASURED}
    loop = environment_loop.LoopState.from_json(checkpoint.state['loop'])
    return len(evaluations) - (saved is not None), saved, loop


def _compare(
  folder: pathlib.Path,
  episodes: Sequence[types.EpisodeSummary | None],
  environment_steps: int,
  saved: Mapping[str, np.ndarray],
) -> bool:
  """Returns whether a checkpoint's score is reproduced. Prints the result, and likely causes if it is not."""
  row = evaluation.evaluation_row(episodes, environment_steps, np.zeros(saved['cost_return'].size))

  def describe(row: Mapping[str, Any]) -> str:
    if not len(row['episode_returns']):
      return 'none, since all episodes failed'
    return (
      f'return {float(row["episode_return"])!r}, cost return {np.asarray(row["cost_return"]).tolist()!r} over '
      f'{len(row["episode_returns"])} episodes'
    )

  if all(np.array_equal(np.asarray(row[name], float), saved[name], equal_nan=True) for name in _MEASURED):
    print(f'The score of the checkpoint is reproduced to the bit: {describe(saved)}.')
    return True
  print(
    f'The score of the checkpoint is NOT reproduced to the bit.\n  saved: {describe(saved)}\n  now:   {describe(row)}'
  )
  changes = configuration.differing_lines((folder / 'config.gin').read_text('utf-8'), configuration.resolved_config())
  print(
    '\n'.join(['  The configuration differs from that of the run:', *(f'    {line}' for line in changes)])
    if changes
    else '  The configuration is that of the run. Another machine, another number of cores (taskset), or '
    'other versions of packages may round differently.'
  )
  return False


def _calibrate(
  experiment: experiment_lib.Experiment,
  checkpoint: store_lib.Checkpoint,
  num_episodes: int,
  folder: pathlib.Path,
  name: str,
) -> None:
  builder, learner, spec = experiment.builder, experiment.learner, experiment.spec
  settings, seed = experiment.settings, experiment.seeds.evaluation_actor

  def watch(evaluation_mode: bool) -> calibration.Watch:
    actor = actor_lib.Actor(builder.make_actor_core(evaluation=evaluation_mode), learner, seed)
    return evaluation.Evaluator(experiment.evaluation_environment, actor, spec, 1).watch

  calibration.write_calibration(
    builder.make_cost_forecaster(learner, seed),
    calibration.Subject(
      checkpoint.state['task'], settings.seed, checkpoint.step, spec.constraint_names, spec.cost_limits
    ),
    watch(False),
    watch(True),
    num_episodes,
    settings.title,
    folder,
    name,
  )


def _export(
  experiment: experiment_lib.Experiment,
  checkpoint: store_lib.Checkpoint,
  certificate: certificate_lib.Certificate | None,
  folder: str | os.PathLike,
) -> pathlib.Path:
  actor_core = experiment.builder.make_actor_core(evaluation=True)
  source = dict(environment_steps=checkpoint.step, score=checkpoint.score)
  return exported.save(
    folder,
    actor_core,
    experiment.learner.get_variables(actor_core.variable_names),
    jax.random.PRNGKey(experiment.seeds.evaluation_actor),
    exported.Description.of(experiment.spec, source),
    certificate,
  )
