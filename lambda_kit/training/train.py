"""Training: episodes, evaluations and checkpoints in a workdir, from the start or from where the run stopped."""

import contextlib
import os
import pathlib
import time
from typing import Any

from absl import logging

from lambda_kit import core
from lambda_kit import errors
from lambda_kit import files
from lambda_kit.analysis import identity as identity_lib
from lambda_kit.analysis import prediction
from lambda_kit.analysis import run_record
from lambda_kit.analysis import tables
from lambda_kit.analysis import versions as versions_lib
from lambda_kit.analysis import video
from lambda_kit.config import configuration
from lambda_kit.config import gin_text
from lambda_kit.logs import diagnostics as diagnostics_lib
from lambda_kit.logs import loggers as loggers_lib
from lambda_kit.logs import terminal
from lambda_kit.training import checkpointing
from lambda_kit.training import evaluation
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training.checkpoints import lock

_FPS = 30


class ConfigChangedError(errors.UserError):
  """A run would resume with a configuration or a physics other than its own."""


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
    return _train(experiment, folder, _record_start(experiment, folder, allow_config_change))


def _train(
  experiment: experiment_lib.Experiment, folder: pathlib.Path, record: run_record.RunRecord
) -> list[dict[str, Any]]:
  started = time.monotonic()
  settings, spec, loop = experiment.settings, experiment.spec, experiment.loop
  total_steps = settings.environment_steps
  rows: list[dict[str, Any]] = []
  diagnostics = diagnostics_lib.Diagnostics(
    spec.cost_limits, spec.num_actions, spec.constraint_names, settings.symptoms
  )
  checkpointer = checkpointing.Checkpointer(
    folder,
    checkpointing.Parts(
      experiment.environment, experiment.actor, experiment.learner, experiment.replay, loop, diagnostics, rows
    ),
    settings.checkpoint_steps,
    settings.checkpoint_seconds,
    settings.keep_checkpoints,
  )
  resumed_from = checkpointer.resume()
  # A run that died before its first checkpoint starts again, and so do its rows, those of step 0 included.
  resume_from = -1 if resumed_from is None else resumed_from
  jsonl = loggers_lib.JsonlLogger(folder, resume_from)
  view = terminal.TerminalLogger(total_steps, spec.cost_limits, settings.title, constraint_names=spec.constraint_names)
  tensorboard = loggers_lib.TensorBoardLogger(folder / 'tensorboard', resume_from)
  logger = loggers_lib.LoggerGroup([jsonl, tensorboard, view, diagnostics])
  diagnostics.connect(jsonl, lambda name, message: logging.warning('%s: %s', name, message))

  operative_config = folder / 'operative_config.gin'

  def work_so_far() -> run_record.RunRecord:
    return record.after(time.monotonic() - started)

  def check_configuration():
    configuration.save_operative_config(operative_config)
    configuration.check_operative()

  def evaluate():
    episodes = experiment.evaluator.run(number=len(rows))
    rows.append(evaluation.evaluation_row(episodes, loop.state.environment_steps, loop.cost_regret))
    logger.write('evaluation', rows[-1])
    checkpointer.take(evaluation.score(rows[-1], spec))
    run_record.write(folder, work_so_far())

  def summarize():
    curve = _write_summary(folder, rows, settings.title, spec)
    tensorboard.write_image('evaluation/learning_curve', curve.read_bytes(), loop.state.environment_steps)

  def conclude():
    with contextlib.ExitStack() as stack:  # Runs all of it in reverse order, even if some of it fails.
      stack.callback(lambda: run_record.write(folder, work_so_far()))
      stack.callback(logger.close)
      if loop.state.episodes:
        stack.callback(summarize)
      if not operative_config.exists():  # There was no update yet.
        stack.callback(configuration.save_operative_config, operative_config)
      stack.callback(view.close)  # Before the summary prints its table.
      stack.callback(checkpointer.finish)

  loop.connect(logger, on_step=view.progress, on_first_update=check_configuration)
  if resumed_from is not None:
    print(f'Resuming from step {resumed_from:,} of {total_steps:,}.')
  try:
    while loop.state.environment_steps < total_steps:
      loop.advance()
      steps = loop.state.environment_steps
      if steps >= total_steps or steps // settings.evaluate_every > len(rows):
        evaluate()
      else:
        checkpointer.take()
    if settings.with_video:
      # The video comes last, so where there is one, the run is complete.
      predictor = experiment.builder.make_predictor(experiment.learner, experiment.seeds.evaluation_actor)
      path = prediction.write_prediction(
        predictor, experiment.evaluator.watch, len(rows) - 1, loop.state.environment_steps, settings.title, folder
      )
      if path is not None:
        tensorboard.write_image('evaluation/prediction', path.read_bytes(), loop.state.environment_steps)
      print('Filming an episode.')
      preview = video.Preview()
      frames = experiment.evaluator.record(len(rows) - 1)
      try:
        video.write_video(preview.passing(frames), folder / 'video.mp4', _FPS)
        tensorboard.write_image('evaluation/video', preview.gif(_FPS), loop.state.environment_steps)
      except errors.UserError as error:  # The environment can't be drawn.
        logging.warning('There is no video: %s', error)
  except BaseException:
    # After Ctrl-C or an error, too: the results so far are worth keeping.
    try:
      conclude()
    except OSError as error:  # Such as a full disk. It must not hide the error that ended the run.
      logging.error('%s', error)
    raise
  conclude()
  run_record.write(folder, work_so_far().finish(loop.state.environment_steps))
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


def _record_start(
  experiment: experiment_lib.Experiment, folder: pathlib.Path, allow_change: bool
) -> run_record.RunRecord:
  """Writes the configuration and record of a new run, or compares them with those of a resumed one.

  Returns the record.
  """
  path = folder / 'config.gin'
  text = configuration.resolved_config()
  goes_on = path.exists()
  lines = configuration.differing_lines(path.read_text('utf-8'), text) if goes_on else []
  if lines and not allow_change:
    raise ConfigChangedError(
      f'{folder} holds a run with another configuration:\n'
      + '\n'.join(f'  {line}' for line in lines)
      + '\nGive its own files and flags to resume it, another --workdir to start a new run, or '
      '--allow_config_change to resume it with the changes.'
    )
  settings = experiment.settings
  identity = identity_lib.identify(
    experiment.agent,
    experiment.spec,
    settings.seed,
    settings.environment_steps,
    settings.evaluate_every,
    experiment.evaluator.num_episodes,
    gin_text.read_bindings(text),
  )
  known = experiment.environment.optimum(experiment.spec.cost_limits)
  record = run_record.RunRecord(
    identity,
    versions_lib.current(experiment.environment.mujoco_version),
    optimum=None if known is None else run_record.Optimum(known[0], tuple(map(float, known[1]))),
  )
  if goes_on:
    record = record.going_on(_compare_versions(folder, record.versions, allow_change))
  run_record.write(folder, record)  # Before the configuration: where there is one, there is a record.
  if lines:
    earlier = folder / f'config.{len(list(folder.glob("config.*.gin")))}.gin'
    files.write_atomically(earlier, path.read_bytes())
    logging.warning('The run resumes with a changed configuration; the previous one is in %s.', earlier)
  if lines or not goes_on:
    configuration.save_config(path)
  return record


def _compare_versions(
  folder: pathlib.Path, versions: versions_lib.Versions, allow_change: bool
) -> run_record.RunRecord:
  """Refuses a run that would resume under another physics. Returns its record so far."""
  try:
    before = run_record.read(folder)
  except run_record.RecordError as error:
    raise ConfigChangedError(
      f'The run in {folder} can not be resumed: {error}. Start a new run in another --workdir.'
    ) from error
  if not versions_lib.same_physics(before.versions, versions) and not allow_change:
    mujoco = before.versions['mujoco']
    raise ConfigChangedError(
      f'{folder} holds a run under MuJoCo {mujoco}, and this is MuJoCo {versions["mujoco"]}, whose physics differs: '
      f'install mujoco=={mujoco} to resume it, give another --workdir to start a new run, or '
      '--allow_config_change to resume it under another physics.'
    )
  if changes := versions_lib.differences(before.versions, versions):
    logging.warning(
      'The run resumes with %s: its results may differ from those of an uninterrupted run.', ', '.join(changes)
    )
  return before
