"""Workdirs of runs as records: what each run is, its score, its curves, its warnings. Bad input becomes a problem."""

from collections.abc import Callable, Iterable, Iterator
import concurrent.futures
import dataclasses
import multiprocessing
import os
import pathlib
import re
from typing import Any

import numpy as np

from lambda_kit.analysis import identity as identity_lib
from lambda_kit.analysis import run_record
from lambda_kit.analysis import streams
from lambda_kit.analysis.metrics import physics
from lambda_kit.analysis.metrics import records
from lambda_kit.analysis.reports import predictions as predictions_lib
from lambda_kit.analysis.reports import problems as problems_lib

# Of the learner's rows; those with a number for each constraint are summed over constraints.
LEARNER_METRICS = ('imagined_cost', 'multiplier', 'penalty', 'posterior_spread', 'value_spread', 'cost_value_spread')
_EVALUATED = ('episode_return', 'cost_return', 'cost_regret')
# Of a workdir. One that a run older than its record has left is told, not passed over.
_SIGNS = (run_record.NAME, 'config.gin', 'evaluation.jsonl', 'episode.jsonl', 'learner.jsonl', 'diagnosis.jsonl')
_VIDEOS = ('video.mp4', 'video.gif')
_BAD_LINES_TOLD = 3  # Of each file; then only how many.
_MAX_DIAGNOSES = 50
_RUNS_OF_A_PROCESS = 100  # Reading more of them is worth starting another.
_SMOOTHING = 0.1  # Of the realised cost: an exponential mean over some ten episodes.

Report = Callable[[str, str, str], None]  # Takes the kind of a problem, where, and a message.


@dataclasses.dataclass(frozen=True)
class Curve:
  """A series over environment steps."""

  steps: np.ndarray  # [R].
  values: np.ndarray  # [R].

  def __len__(self) -> int:
    return len(self.steps)


@dataclasses.dataclass(frozen=True)
class Diagnosis:
  """A warning that a run gave."""

  environment_steps: int
  name: str
  message: str


@dataclasses.dataclass(frozen=True)
class Run:
  """One workdir."""

  workdir: str  # From the folder that was read.
  folder: pathlib.Path
  identity: identity_lib.Identity
  last_step: int  # Of the last training episode or evaluation.
  mujoco: str | None  # Version of what simulated it; None if that wasn't MuJoCo.
  optimum: run_record.Optimum | None  # Of the task; None if it is unknown.
  score: records.SeedScore | None  # None of a run that has not reached its protocol's steps.
  # 'episode_return', 'cost_return' and 'cost_regret' of evaluations; the learner's; 'realised_cost' of episodes; and,
  # over steps that were predicted, 'prediction_error/image', 'last_seen_error/image', or the same of 'vector'.
  curves: dict[str, Curve]
  diagnoses: tuple[Diagnosis, ...]
  video: pathlib.Path | None
  prediction: predictions_lib.Prediction | None


def find_workdirs(root: pathlib.Path) -> Iterator[pathlib.Path]:
  """Folders that hold a run's record or logs, in the order of their names. Not searched inside of those."""
  for folder, subfolders, files in os.walk(root):
    subfolders.sort(key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r'(\d+)', name)])
    if any(name in files for name in _SIGNS):
      subfolders.clear()
      yield pathlib.Path(folder)


def read_runs(root: str | os.PathLike) -> tuple[list[Run], list[problems_lib.Problem]]:
  """Reads all runs below a folder. Memory grows with their number, not with the length of their logs."""
  root = pathlib.Path(root)
  folders = list(find_workdirs(root))
  workdirs = [str(folder.relative_to(root)) if folder != root else folder.name for folder in folders]
  processes = min(os.cpu_count() or 1, 1 + len(folders) // _RUNS_OF_A_PROCESS)
  if processes == 1:
    results = list(map(_try_to_read, folders, workdirs))
  else:
    # Not forked: this process may have threads.
    with concurrent.futures.ProcessPoolExecutor(processes, multiprocessing.get_context('spawn')) as pool:
      results = list(pool.map(_try_to_read, folders, workdirs, chunksize=16))
  runs = [run for run, _ in results if run is not None]
  problems = [problem for _, found in results for problem in found]
  if not folders:
    problems.append(
      problems_lib.Problem(
        problems_lib.NO_RUNS, str(root), f'no folder below it has a {run_record.NAME} or logs of a run'
      )
    )
  return runs, problems


def _try_to_read(folder: pathlib.Path, workdir: str) -> tuple[Run | None, list[problems_lib.Problem]]:
  problems: list[problems_lib.Problem] = []
  report = lambda kind, where, message: problems.append(problems_lib.Problem(kind, where, message))
  try:
    return _read_run(folder, workdir, report), problems
  except (OSError, run_record.RecordError) as error:
    report(problems_lib.UNREADABLE, workdir, _reason(error))
    return None, problems


def _read_run(folder: pathlib.Path, workdir: str, report: Report) -> Run:
  record = run_record.read(folder)
  identity, mujoco = record.identity, record.versions['mujoco']
  _report_changes(record, workdir, report)
  curves: dict[str, Curve] = {}
  first_time, last_step = _read_episodes(folder, workdir, report, curves)
  score_row, last_evaluation = _read_evaluations(folder, workdir, report, identity, curves)
  _read_learner(folder, workdir, report, curves)
  diagnoses = _read_diagnoses(folder, workdir, report)
  last_step = max(last_step, last_evaluation)
  score = _score(score_row, identity, mujoco, first_time, workdir, report)
  if score_row is None:
    wanted = identity.protocol.environment_steps
    report(
      problems_lib.UNFINISHED,
      workdir,
      f'no evaluation at step {wanted:,}: it is at step {last_step:,} of {identity.environment_steps:,}',
    )
  video = next((folder / name for name in _VIDEOS if (folder / name).is_file()), None)
  prediction = _read_prediction(folder, workdir, report, curves)
  return Run(workdir, folder, identity, last_step, mujoco, record.optimum, score, curves, diagnoses, video, prediction)


def _report_changes(record: run_record.RunRecord, workdir: str, report: Report) -> None:
  """Tells if a run went on as something else than it began."""
  if hashes := [
    earlier.config_hash for earlier in record.earlier if earlier.config_hash != record.identity.config_hash
  ]:
    report(
      problems_lib.CHANGED_CONFIGURATION,
      workdir,
      f'it went on with another configuration: #{", then #".join([*hashes, record.identity.config_hash])}',
    )
  versions = [*(earlier.versions['mujoco'] for earlier in record.earlier), record.versions['mujoco']]
  if len(set(map(physics.of_version, versions))) > 1:
    report(
      problems_lib.CHANGED_CONFIGURATION,
      workdir,
      f'it went on under another physics: MuJoCo {", then ".join(map(str, versions))}',
    )


def _rows(folder: pathlib.Path, name: str, workdir: str, report: Report) -> Iterator[dict[str, Any]]:
  """The rows of a log. Lines that are none, and steps that go back, are told; a log that is missing has no rows."""
  where, bad = f'{workdir}/{name}', 0

  def on_bad_line(number: int, reason: str) -> None:
    nonlocal bad
    bad += 1
    if bad <= _BAD_LINES_TOLD:
      report(problems_lib.CORRUPT_LINE, where, f'line {number}, skipped: {reason}')

  if (folder / name).exists():
    previous = 0
    for number, row in streams.read_rows(folder / name, on_bad_line):
      if row['environment_steps'] < previous:
        on_bad_line(number, f'steps go back from {previous:,} to {row["environment_steps"]:,}')
      else:
        previous = row['environment_steps']
        yield row
  if bad > _BAD_LINES_TOLD:
    report(problems_lib.CORRUPT_LINE, where, f'{bad} lines in all were skipped')


def _read_evaluations(
  folder: pathlib.Path, workdir: str, report: Report, identity: identity_lib.Identity, curves: dict[str, Curve]
) -> tuple[dict[str, Any] | None, int]:
  """The row that holds the score, if there is one yet, and the last step. Adds returns and costs to the curves."""
  points, score_row, steps = streams.Thinned(), None, 0
  wanted = identity.protocol.environment_steps
  for row in _rows(folder, 'evaluation.jsonl', workdir, report):
    values = [streams.vector(row.get(name)) for name in _EVALUATED]
    if any(value is None for value in values):
      report(
        problems_lib.CORRUPT_LINE,
        f'{workdir}/evaluation.jsonl',
        f'the evaluation at step {row["environment_steps"]:,} has no return, cost return or cost regret',
      )
      continue
    steps = row['environment_steps']
    points.append((steps, *(value.sum() for value in values)))
    # One that is much later says nothing about the protocol's step, unless the run ends with it: epochs may be long.
    is_near = steps < wanted + identity.evaluate_every or identity.environment_steps == wanted
    if score_row is None and wanted <= steps and is_near:
      score_row = row
  for i, name in enumerate(_EVALUATED, start=1):
    curves[name] = _curve((point[0], point[i]) for point in points.items())
  return score_row, steps


def _read_episodes(
  folder: pathlib.Path, workdir: str, report: Report, curves: dict[str, Curve]
) -> tuple[float | None, int]:
  """The time of the first episode, and the last step. Adds the cost of an agent step in episodes to the curves."""
  points, first_time, steps, mean = streams.Thinned(), None, 0, None
  for row in _rows(folder, 'episode.jsonl', workdir, report):
    steps = row['environment_steps']
    if first_time is None:
      first_time = streams.number(row.get('time'))
    costs, length = row.get('cost_return'), streams.number(row.get('length'))
    costs = list(map(streams.number, costs if isinstance(costs, list) else [costs]))
    if None not in costs and length is not None and length > 0:
      cost = sum(costs) / length
      mean = cost if mean is None else mean + _SMOOTHING * (cost - mean)
      points.append((steps, mean))
  curves['realised_cost'] = _curve(points.items())
  return first_time, steps


def _read_learner(folder: pathlib.Path, workdir: str, report: Report, curves: dict[str, Curve]) -> None:
  rows = streams.Thinned()
  for row in _rows(folder, 'learner.jsonl', workdir, report):
    rows.append(row)
  points: dict[str, list[tuple[float, float]]] = {name: [] for name in LEARNER_METRICS}
  keys = set().union(*rows.items())
  columns = {key: key.split('/')[0] for key in sorted(keys) if key.split('/')[0] in points}  # 'multiplier/0' as well.
  for row in rows.items():
    sums: dict[str, float] = {}
    for key, name in columns.items():
      value = streams.number(row.get(key))
      if value is not None:
        sums[name] = sums.get(name, 0.0) + value
    for name, value in sums.items():
      points[name].append((row['environment_steps'], value))
  curves.update({name: _curve(found) for name, found in points.items() if found})


def _curve(points: Iterable[tuple[float, float]]) -> Curve:
  table = np.array(list(points), np.float64).reshape(-1, 2)
  return Curve(table[:, 0], table[:, 1])


def _read_diagnoses(folder: pathlib.Path, workdir: str, report: Report) -> tuple[Diagnosis, ...]:
  diagnoses = []
  for row in _rows(folder, 'diagnosis.jsonl', workdir, report):
    if len(diagnoses) < _MAX_DIAGNOSES:
      diagnoses.append(Diagnosis(row['environment_steps'], str(row.get('name')), str(row.get('message'))))
  return tuple(diagnoses)


def _read_prediction(
  folder: pathlib.Path, workdir: str, report: Report, curves: dict[str, Curve]
) -> predictions_lib.Prediction | None:
  try:
    prediction = predictions_lib.read(folder)
  except (OSError, predictions_lib.PredictionError) as error:
    report(problems_lib.UNREADABLE, f'{workdir}/prediction.json', f'{_reason(error)}; it is left out')
    return None
  if prediction is not None:
    for part in prediction.model_errors:
      for name, errors in (
        ('prediction_error', prediction.model_errors[part]),
        ('last_seen_error', prediction.last_seen_errors[part]),
      ):
        curves[f'{name}/{part}'] = _curve(enumerate(errors, start=1))
  return prediction


def _score(
  row: dict[str, Any] | None,
  identity: identity_lib.Identity,
  mujoco: str | None,
  first_time: float | None,
  workdir: str,
  report: Report,
) -> records.SeedScore | None:
  if row is None:
    return None
  numbers = [streams.vector(row[name]) for name in _EVALUATED]
  if not all(np.isfinite(number).all() for number in numbers):
    report(problems_lib.NOT_FINITE, workdir, f'the evaluation at step {row["environment_steps"]:,}; it is left out')
    return None
  if len(identity.protocol.cost_limit) not in (1, len(numbers[1])):
    report(
      problems_lib.UNREADABLE,
      workdir,
      f'{run_record.NAME} has {len(identity.protocol.cost_limit)} cost limits, '
      f'and its evaluations have {len(numbers[1])} costs; its score is left out',
    )
    return None
  time = streams.number(row.get('time'))
  seconds = time - first_time if time is not None and first_time is not None else 0.0
  return records.SeedScore(
    identity.task,
    identity.algorithm,
    identity.seed,
    identity.protocol,
    row['environment_steps'],
    float(numbers[0][0]),
    tuple(numbers[1].tolist()),
    tuple(numbers[2].tolist()),
    seconds,
    identity.config_hash,
    workdir,
    mujoco,
  )


def _reason(error: Exception) -> str:
  return error.strerror or str(error) if isinstance(error, OSError) else str(error)
