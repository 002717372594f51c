"""Reading workdirs: what each run is, its score, curves and warnings. Bad input becomes a problem.

Each run is read by itself: whatever is in its folder costs its row at most. The bounds on bytes, depth and time are
those of `reading`, `streams` and `workdir`.
"""

from collections.abc import Callable, Iterator
import concurrent.futures
import dataclasses
import multiprocessing
import os
import pathlib
import re

import numpy as np

from lambda_kit import reading
from lambda_kit.analysis import certificate as certificate_lib
from lambda_kit.analysis import identity as identity_lib
from lambda_kit.analysis import run_record
from lambda_kit.analysis.metrics import physics
from lambda_kit.analysis.metrics import records
from lambda_kit.analysis.reports import predictions as predictions_lib
from lambda_kit.analysis.reports import problems as problems_lib
from lambda_kit.analysis.reports import run_logs
from lambda_kit.analysis.reports import workdir as workdir_lib

# Any of these makes a folder a workdir. Without a record it is reported, not skipped in silence.
_SIGNS = (run_record.NAME, 'config.gin', 'evaluation.jsonl', 'episode.jsonl', 'learner.jsonl', 'diagnosis.jsonl')
_VIDEOS = ('video.mp4', 'video.gif')
_MAX_DEPTH = 50  # Folders in folders.
_RUNS_OF_A_PROCESS = 100  # Reading more is worth starting another process.


@dataclasses.dataclass(frozen=True)
class Run:
  """One workdir."""

  workdir: str  # Relative to the folder that was read, fit to be shown.
  folder: pathlib.Path
  identity: identity_lib.Identity
  last_step: int  # Of the last training episode or evaluation.
  mujoco: str | None  # Version; None if MuJoCo didn't simulate the task.
  optimum: run_record.Optimum | None  # Of the task; None if it is unknown.
  score: records.SeedScore | None  # None if the run has not reached its protocol's steps.
  # 'episode_return', 'cost_return' and 'cost_regret' of evaluations; `LEARNER_METRICS`; `held_out.FIGURES`, means over
  # constraints; 'realised_cost' of episodes;
  # and, by predicted step, 'prediction_error/image' and 'last_seen_error/image', or the same for 'vector'.
  curves: run_logs.Curves
  diagnoses: tuple[run_logs.Diagnosis, ...]
  video: pathlib.Path | None
  prediction: predictions_lib.Prediction | None
  certificate: certificate_lib.Certificate | None  # Of the checkpoint that was calibrated last.
  held_out: run_logs.HeldOut | None  # None if no episode was scored.


def find_workdirs(
  root: pathlib.Path, on_error: Callable[[OSError], None] = lambda error: None
) -> Iterator[pathlib.Path]:
  """Yields folders that hold a run's record or logs, in the order of their names. Does not search inside of them.

  Args:
    root: Where to search. Symbolic links to folders are not followed.
    on_error: Called for each folder that can't be searched.
  """
  for name, subfolders, files in os.walk(root, onerror=on_error):
    folder = pathlib.Path(name)
    subfolders.sort(key=lambda name: [int(part) if part.isdecimal() else part for part in re.split(r'(\d+)', name)])
    if any(name in files for name in _SIGNS):
      subfolders.clear()
      yield folder
    elif subfolders and len(folder.relative_to(root).parts) >= _MAX_DEPTH:
      subfolders.clear()
      on_error(OSError(None, f'more than {_MAX_DEPTH} folders deep', name))


def read_runs(root: str | os.PathLike) -> tuple[list[Run], list[problems_lib.Problem]]:
  """Reads all runs below a folder. Memory grows with the number of runs, not with the length of their logs."""
  root, problems = pathlib.Path(root), []

  def on_error(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # It was deleted a moment ago, or there is no root.
      where = _shown(pathlib.Path(error.filename), root)
      problems.append(
        problems_lib.Problem(problems_lib.UNREADABLE, where, f"can't be searched for runs: {error.strerror}")
      )

  folders = list(find_workdirs(root, on_error))
  workdirs = [_shown(folder, root) for folder in folders]
  processes = min(os.cpu_count() or 1, 1 + len(folders) // _RUNS_OF_A_PROCESS)
  if processes == 1:
    results = list(map(_try_to_read, folders, workdirs))
  else:
    # Spawned, not forked: this process may have threads.
    with concurrent.futures.ProcessPoolExecutor(processes, multiprocessing.get_context('spawn')) as pool:
      results = list(pool.map(_try_to_read, folders, workdirs, chunksize=16))
  runs = [run for run, _ in results if run is not None]
  problems += [problem for _, found in results for problem in found]
  if not folders:
    problems.append(
      problems_lib.Problem(
        problems_lib.NO_RUNS, str(root), f'no folder below it has a {run_record.NAME} or logs of a run'
      )
    )
  return runs, problems


def _shown(folder: pathlib.Path, root: pathlib.Path) -> str:
  """The path of a folder below the root for readers: names of files can be any bytes."""
  path = str(folder.relative_to(root)) if folder != root else folder.name
  return reading.one_line(os.fsencode(path).decode('utf-8', 'replace'), 1000)


def _try_to_read(folder: pathlib.Path, name: str) -> tuple[Run | None, list[problems_lib.Problem]]:
  workdir = workdir_lib.Workdir(folder, name)
  try:
    return _read_run(workdir), workdir.problems
  except (OSError, run_record.RecordError, workdir_lib.TooSlowError) as error:
    workdir.report(problems_lib.UNREADABLE, workdir_lib.reason(error))
  except Exception as error:  # A stranger's files can hold anything, and must not cost the rows of other runs.
    workdir.report(problems_lib.UNREADABLE, f'its files are not those of a run ({type(error).__name__}: {error})')
  return None, workdir.problems


def _read_run(workdir: workdir_lib.Workdir) -> Run:
  folder = workdir.folder
  record = run_record.read(folder)
  identity, mujoco = record.identity, record.versions['mujoco']
  _report_changes(record, workdir)
  curves: run_logs.Curves = {}
  first_time, last_step = run_logs.read_episodes(workdir, curves)
  scored, last_evaluation = run_logs.read_evaluations(workdir, identity, curves)
  held_out = run_logs.read_learner(workdir, curves)
  diagnoses = run_logs.read_diagnoses(workdir)
  last_step = max(last_step, last_evaluation)
  if scored is not None:
    score = _score(scored, identity, mujoco, first_time, workdir)
  else:
    score, wanted = None, identity.protocol.environment_steps
    workdir.report(
      problems_lib.UNFINISHED,
      f'no evaluation at step {wanted:,}: it is at step {last_step:,} of {identity.environment_steps:,}',
    )
  return Run(
    workdir.name,
    folder,
    identity,
    last_step,
    mujoco,
    record.optimum,
    score,
    curves,
    diagnoses,
    _find_video(workdir),
    _read_prediction(workdir, curves),
    _read_certificate(workdir),
    held_out,
  )


def _report_changes(record: run_record.RunRecord, workdir: workdir_lib.Workdir) -> None:
  """Reports a run that was resumed with another configuration or physics."""
  if hashes := [
    earlier.config_hash for earlier in record.earlier if earlier.config_hash != record.identity.config_hash
  ]:
    workdir.report(
      problems_lib.CHANGED_CONFIGURATION,
      f'it was resumed with another configuration: #{", then #".join([*hashes, record.identity.config_hash])}',
    )
  versions = [*(earlier.versions['mujoco'] for earlier in record.earlier), record.versions['mujoco']]
  if len(set(map(physics.of_version, versions))) > 1:
    workdir.report(
      problems_lib.CHANGED_CONFIGURATION,
      f'it was resumed under another physics: MuJoCo {", then ".join(map(str, versions))}',
    )


def _find_video(workdir: workdir_lib.Workdir) -> pathlib.Path | None:
  for name in _VIDEOS:
    try:
      if reading.exists(workdir.folder / name):
        return workdir.folder / name
    except reading.RefusedError as error:
      workdir.report(problems_lib.UNREADABLE, f'{error.reason}; it is left out', name)
  return None


def _read_certificate(workdir: workdir_lib.Workdir) -> certificate_lib.Certificate | None:
  folder = workdir.folder / 'evaluation'
  try:
    if folder.is_symlink():
      raise reading.RefusedError(folder, 'its folder is a symbolic link')
    return certificate_lib.read(folder)
  except (OSError, certificate_lib.CertificateError, reading.RefusedError) as error:
    workdir.report(
      problems_lib.UNREADABLE, f'{workdir_lib.reason(error)}; it is left out', f'evaluation/{certificate_lib.NAME}'
    )
    return None


def _read_prediction(workdir: workdir_lib.Workdir, curves: run_logs.Curves) -> predictions_lib.Prediction | None:
  try:
    prediction = predictions_lib.read(workdir.folder)
  except (OSError, predictions_lib.PredictionError) as error:
    workdir.report(problems_lib.UNREADABLE, f'{workdir_lib.reason(error)}; it is left out', 'prediction.json')
    return None
  if prediction is not None:
    for part in prediction.model_errors:
      for name, errors in (
        ('prediction_error', prediction.model_errors[part]),
        ('last_seen_error', prediction.last_seen_errors[part]),
      ):
        curves[f'{name}/{part}'] = run_logs.Curve.of(enumerate(errors, start=1))
  return prediction


def _score(
  evaluation: run_logs.Evaluation,
  identity: identity_lib.Identity,
  mujoco: str | None,
  first_time: float | None,
  workdir: workdir_lib.Workdir,
) -> records.SeedScore | None:
  if not all(np.isfinite(value).all() for value in evaluation.values):
    workdir.report(problems_lib.NOT_FINITE, f'the evaluation at step {evaluation.steps:,}; it is left out')
    return None
  episode_return, cost_return, cost_regret = evaluation.values
  if len(identity.protocol.cost_limit) not in (1, len(cost_return)):
    workdir.report(
      problems_lib.UNREADABLE,
      f'{run_record.NAME} has {len(identity.protocol.cost_limit)} cost limits, '
      f'and its evaluations have {len(cost_return)} costs; its score is left out',
    )
    return None
  seconds = evaluation.time - first_time if evaluation.time is not None and first_time is not None else 0.0
  return records.SeedScore(
    identity.task,
    identity.algorithm,
    identity.seed,
    identity.protocol,
    evaluation.steps,
    float(episode_return[0]),
    tuple(cost_return.tolist()),
    tuple(cost_regret.tolist()),
    seconds,
    identity.config_hash,
    workdir.name,
    mujoco,
  )
