"""Training: episodes, evaluations and checkpoints in a workdir, from the start or from where the run stopped."""

import contextlib
import dataclasses
import os
import pathlib
import time
from typing import Any

from absl import logging

from lambda_kit import core
from lambda_kit import errors
from lambda_kit import files
from lambda_kit.analysis import prediction
from lambda_kit.analysis import run_record
from lambda_kit.analysis import tables
from lambda_kit.analysis import video
from lambda_kit.config import configuration
from lambda_kit.logs import diagnostics as diagnostics_lib
from lambda_kit.logs import loggers as loggers_lib
from lambda_kit.logs import run_logs
from lambda_kit.logs import terminal
from lambda_kit.training import checkpointing
from lambda_kit.training import evaluation
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training import workdir as workdir_lib
from lambda_kit.training.checkpoints import lock

_FPS = 30


def train(
  experiment: experiment_lib.Experiment, workdir: str | os.PathLike, allow_config_change: bool = False
) -> list[dict[str, Any]]:
  """Trains to the end. Writes logs, checkpoints, a learning curve, a prediction and a video to a workdir.

  Args:
    experiment: Built by gin, so that its configuration can be recorded.
    workdir: Folder for everything that the run writes. If it holds a run, that run is resumed.
    allow_config_change: Whether it may be resumed with another configuration.

  Returns:
    The rows of all evaluations, including those before the run was resumed.
  """
  folder = pathlib.Path(workdir)
  if experiment.settings.with_video:
    experiment.evaluator.warn_if_not_drawn()
  with lock.WorkdirLock(folder):
    return _train(experiment, folder, workdir_lib.claim(experiment, folder, allow_config_change))


def _train(
  experiment: experiment_lib.Experiment, folder: pathlib.Path, claimed: workdir_lib.Claim
) -> list[dict[str, Any]]:
  started = time.monotonic()
  record, lease = claimed.record, claimed.lease
  settings, spec, loop = experiment.settings, experiment.spec, experiment.loop
  total_steps = settings.environment_steps
  rows: list[dict[str, Any]] = []
  logs = run_logs.RunLogs(folder, folder / 'checkpoints', record.run_id, lease.writing)
  diagnostics = diagnostics_lib.Diagnostics(
    spec.cost_limits, spec.num_actions, spec.constraint_names, settings.symptoms
  )
  checkpointer = checkpointing.Checkpointer(
    folder,
    checkpointing.Parts(
      experiment.environment, experiment.actor, experiment.learner, experiment.replay, loop, diagnostics, rows, logs
    ),
    settings.checkpoint_steps,
    settings.checkpoint_seconds,
    settings.keep_checkpoints,
    record.run_id,
    lease.writing,
  )
  with lease.writing():
    if record.begun:
      resumed_from = checkpointer.resume()
      workdir_lib.write_start(folder, claimed)
      print(f'Resuming from step {resumed_from:,} of {total_steps:,}.')
    else:
      workdir_lib.write_start(folder, claimed)
      checkpointer.begin()
      resumed_from, record = 0, dataclasses.replace(record, begun=True)
      run_record.write(folder, record)
    for place in (folder, folder / 'checkpoints'):
      files.remove_leftovers(place)
  view = terminal.TerminalLogger(total_steps, spec.cost_limits, settings.title, constraint_names=spec.constraint_names)
  has_events = any((folder / 'tensorboard').glob('events*'))
  # The first checkpoint comes before the rows of step 0, which a run writes if it learns from offline data.
  tensorboard = loggers_lib.TensorBoardLogger(folder / 'tensorboard', resumed_from or -1)
  if not has_events:
    for kind, row in logs.rows():  # None, unless the folder was lost.
      tensorboard.write(kind, row)
  logger = loggers_lib.LoggerGroup([logs, tensorboard, view, diagnostics])
  diagnostics.connect(logs, lambda name, message: logging.warning('%s: %s', name, message))

  operative_config = folder / 'operative_config.gin'

  def work_so_far() -> run_record.RunRecord:
    return record.after(time.monotonic() - started)

  def write_record(record: run_record.RunRecord):
    with lease.writing():
      run_record.write(folder, record)

  def check_configuration():
    with lease.writing():
      configuration.save_operative_config(operative_config)
    configuration.check_operative()

  def evaluate():
    failed = sum(row.get('failed_episodes', 0) for row in rows)  # Rows of older versions have none.
    episodes = experiment.evaluator.run(number=len(rows), failures_left=settings.max_failed_episodes - failed)
    rows.append(evaluation.evaluation_row(episodes, loop.state.environment_steps, loop.cost_regret))
    logger.write('evaluation', rows[-1])
    checkpointer.take(evaluation.score(rows[-1], spec))
    write_record(work_so_far())

  def film():
    predictor = experiment.builder.make_predictor(experiment.learner, experiment.seeds.evaluation_actor)
    path = prediction.write_prediction(
      predictor, experiment.evaluator.watch, len(rows) - 1, loop.state.environment_steps, settings.title, folder
    )
    if path is not None:
      tensorboard.write_image('evaluation/prediction', path.read_bytes(), loop.state.environment_steps)
    print('Filming an episode.')
    preview = video.Preview()
    frames = experiment.evaluator.record(len(rows) - 1)
    video.write_video(preview.passing(frames), folder / 'video.mp4', _FPS)
    tensorboard.write_image('evaluation/video', preview.gif(_FPS), loop.state.environment_steps)

  def summarize():
    curve = _write_summary(folder, rows, settings.title, spec)
    tensorboard.write_image('evaluation/learning_curve', curve.read_bytes(), loop.state.environment_steps)

  def conclude():
    view.close()  # Before the summary prints its table.
    with lease.writing(), contextlib.ExitStack() as stack:  # Runs all of it in reverse order, even if some of it fails.
      stack.callback(lambda: write_record(work_so_far()))
      stack.callback(logger.close)
      if loop.state.episodes:
        stack.callback(summarize)
      if not operative_config.exists():  # There was no update yet.
        stack.callback(configuration.save_operative_config, operative_config)
      stack.callback(checkpointer.finish)

  loop.connect(logger, on_step=view.progress, on_first_update=check_configuration)
  try:
    while loop.state.environment_steps < total_steps:
      loop.advance()
      steps = loop.state.environment_steps
      if steps >= total_steps or steps // settings.evaluate_every > len(rows):
        evaluate()
      else:
        checkpointer.take()
    if settings.with_video:
      lease.check()
      try:
        film()
      except errors.UserError as error:  # The environment failed, or can't be drawn.
        logging.warning('There is no video of the last evaluation: %s', error)
  except lock.LostLeaseError:
    view.close()
    raise
  except BaseException:
    # After Ctrl-C or an error, too: the results so far are worth keeping.
    try:
      conclude()
    except OSError as error:  # Such as a full disk. It must not hide the error that ended the run.
      logging.error('%s', error)
    raise
  conclude()
  write_record(work_so_far().finish(loop.state.environment_steps))
  return rows


def _write_summary(
  folder: pathlib.Path, rows: list[dict[str, Any]], title: str, spec: core.EnvironmentSpec
) -> pathlib.Path:
  """Draws the learning curve, and writes the table of evaluations to a file and the terminal. Returns the curve."""
  # Imported here because Matplotlib is slow to import and needed only at the end.
  from lambda_kit.analysis import curves

  table = tables.evaluation_table(rows, spec.cost_limits, spec.constraint_names)
  print(f'\n{table}\nEverything is in {folder}')
  try:
    path = curves.learning_curve(folder, folder / 'learning_curve.png', spec.cost_limits, spec.constraint_names, title)
    files.write_atomically(folder / 'evaluations.txt', table)
    return path
  except OSError as error:
    raise OSError(
      error.errno, f'The learning curve and the table can not be written: {error.strerror or error}', str(folder)
    ) from error
