"""Reading workdirs: what each run is, its score, curves and warnings. Bad input becomes a problem."""

from collections.abc import Callable, Iterable, Iterator, Sequence
import concurrent.futures
import dataclasses
import multiprocessing
import os
import pathlib
import re
from typing import Any, NamedTuple

import numpy as np

from lambda_kit.analysis import certificate as certificate_lib
from lambda_kit.analysis import held_out as held_out_lib
from lambda_kit.analysis import identity as identity_lib
from lambda_kit.analysis import run_record
from lambda_kit.analysis import streams
from lambda_kit.analysis.metrics import physics
from lambda_kit.analysis.metrics import records
from lambda_kit.analysis.reports import predictions as predictions_lib
from lambda_kit.analysis.reports import problems as problems_lib

# Metrics of the learner's rows. Those with a number for each constraint are summed over constraints.
LEARNER_METRICS = ('imagined_cost', 'multiplier', 'penalty', 'posterior_spread', 'value_spread', 'cost_value_spread')
_EVALUATED = ('episode_return', 'cost_return', 'cost_regret')
# Any of these makes a folder a workdir. Without a record it is reported, not skipped in silence.
_SIGNS = (run_record.NAME, 'config.gin', 'evaluation.jsonl', 'episode.jsonl', 'learner.jsonl', 'diagnosis.jsonl')
_VIDEOS = ('video.mp4', 'video.gif')
_BAD_LINES_TOLD = 3  # Reported one by one, for each file; further ones are counted.
_MAX_DIAGNOSES = 50
_RUNS_OF_A_PROCESS = 100  # Reading more is worth starting another process.
_SMOOTHING = 0.1  # Of the realised cost: an exponential mean over about ten episodes.

Report = Callable[[str, str, str], None]  # Takes the kind of a problem, its location, and a message.


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
class HeldOut:
  """The last scores of new episodes of training."""

  environment_steps: int
  figures: tuple[dict[str, float], ...]  # By constraint, see `held_out.summarize`.


@dataclasses.dataclass(frozen=True)
class Run:
  """One workdir."""

  workdir: str  # Relative to the folder that was read.
  folder: pathlib.Path
  identity: identity_lib.Identity
  last_step: int  # Of the last training episode or evaluation.
  mujoco: str | None  # Version; None if MuJoCo didn't simulate the task.
  optimum: run_record.Optimum | None  # Of the task; None if it is unknown.
  score: records.SeedScore | None  # None if the run has not reached its protocol's steps.
  # 'episode_return', 'cost_return' and 'cost_regret' of evaluations; `LEARNER_METRICS`; `held_out.FIGURES`, means over
  # constraints; 'realised_cost' of episodes;
  # and, by predicted step, 'prediction_error/image' and 'last_seen_error/image', or the same for 'vector'.
  curves: dict[str, Curve]
  diagnoses: tuple[Diagnosis, ...]
  video: pathlib.Path | None
  prediction: predictions_lib.Prediction | None
  certificate: certificate_lib.Certificate | None  # Of the checkpoint that was calibrated last.
  held_out: HeldOut | None  # None if no episode was scored.


class _Evaluation(NamedTuple):
  """An evaluation, as its row says."""

  steps: int
  time: float | None
  values: list[np.ndarray]  # By `_EVALUATED`, [1] or [C].


def find_workdirs(root: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields folders that hold a run's record or logs, in the order of their names. Does not search inside of them."""
  for folder, subfolders, files in os.walk(root):
    subfolders.sort(key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r'(\d+)', name)])
    if any(name in files for name in _SIGNS):
      subfolders.clear()
      yield pathlib.Path(folder)


def read_runs(root: str | os.PathLike) -> tuple[list[Run], list[problems_lib.Problem]]:
  """Reads all runs below a folder. Memory grows with the number of runs, not with the length of their logs."""
  root = pathlib.Path(root)
  folders = list(find_workdirs(root))
  workdirs = [str(folder.relative_to(root)) if folder != root else folder.name for folder in folders]
  processes = min(os.cpu_count() or 1, 1 + len(folders) // _RUNS_OF_A_PROCESS)
  if processes == 1:
    results = list(map(_try_to_read, folders, workdirs))
  else:
    # Spawned, not forked: this process may have threads.
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
  scored, last_evaluation = _read_evaluations(folder, workdir, report, identity, curves)
  held_out = _read_learner(folder, workdir, report, curves)
  diagnoses = _read_diagnoses(folder, workdir, report)
  last_step = max(last_step, last_evaluation)
  if scored is not None:
    score = _score(scored, identity, mujoco, first_time, workdir, report)
  else:
    score, wanted = None, identity.protocol.environment_steps
    report(
      problems_lib.UNFINISHED,
      workdir,
      f'no evaluation at step {wanted:,}: it is at step {last_step:,} of {identity.environment_steps:,}',
    )
  video = next((folder / name for name in _VIDEOS if (folder / name).is_file()), None)
  prediction = _read_prediction(folder, workdir, report, curves)
  return Run(
    workdir,
    folder,
    identity,
    last_step,
    mujoco,
    record.optimum,
    score,
    curves,
    diagnoses,
    video,
    prediction,
    _read_certificate(folder, workdir, report),
    held_out,
  )


def _report_changes(record: run_record.RunRecord, workdir: str, report: Report) -> None:
  """Reports a run that was resumed with another configuration or physics."""
  if hashes := [
    earlier.config_hash for earlier in record.earlier if earlier.config_hash != record.identity.config_hash
  ]:
    report(
      problems_lib.CHANGED_CONFIGURATION,
      workdir,
      f'it was resumed with another configuration: #{", then #".join([*hashes, record.identity.config_hash])}',
    )
  versions = [*(earlier.versions['mujoco'] for earlier in record.earlier), record.versions['mujoco']]
  if len(set(map(physics.of_version, versions))) > 1:
    report(
      problems_lib.CHANGED_CONFIGURATION,
      workdir,
      f'it was resumed under another physics: MuJoCo {", then ".join(map(str, versions))}',
    )


def _rows(folder: pathlib.Path, name: str, workdir: str, report: Report) -> Iterator[dict[str, Any]]:
  """Yields the rows of a log. Reports bad lines, and rows whose steps go back. A missing log has no rows."""
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
    report(problems_lib.CORRUPT_LINE, where, f'{bad} lines were skipped in all')


def _read_evaluations(
  folder: pathlib.Path, workdir: str, report: Report, identity: identity_lib.Identity, curves: dict[str, Curve]
) -> tuple[_Evaluation | None, int]:
  """Returns the evaluation that gives the score, if there is one yet, and the last step. Adds curves."""
  points, scored, steps = streams.Thinned(), None, 0
  wanted = identity.protocol.environment_steps
  for row in _rows(folder, 'evaluation.jsonl', workdir, report):
    values = [value for name in _EVALUATED if (value := streams.vector(row.get(name))) is not None]
    if len(values) < len(_EVALUATED):
      report(
        problems_lib.CORRUPT_LINE,
        f'{workdir}/evaluation.jsonl',
        f'the evaluation at step {row["environment_steps"]:,} has no return, cost return or cost regret',
      )
      continue
    steps = row['environment_steps']
    points.append((steps, *(value.sum() for value in values)))
    # A much later evaluation says nothing about the protocol's step, unless it ends the run: epochs may be long.
    is_near = steps < wanted + identity.evaluate_every or identity.environment_steps == wanted
    if scored is None and wanted <= steps and is_near:
      scored = _Evaluation(steps, streams.number(row.get('time')), values)
  for i, name in enumerate(_EVALUATED, start=1):
    curves[name] = _curve((point[0], point[i]) for point in points.items())
  return scored, steps


def _read_episodes(
  folder: pathlib.Path, workdir: str, report: Report, curves: dict[str, Curve]
) -> tuple[float | None, int]:
  """Returns the time of the first episode, and the last step. Adds the curve of an agent step's cost."""
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


def _read_learner(folder: pathlib.Path, workdir: str, report: Report, curves: dict[str, Curve]) -> HeldOut | None:
  """Adds curves. Returns the last scores of new episodes."""
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
  return _add_held_out(rows.items(), sorted(keys), curves)


def _add_held_out(rows: Sequence[dict[str, Any]], keys: Sequence[str], curves: dict[str, Curve]) -> HeldOut | None:
  wanted = [key for key in keys if key.split('/')[0] in held_out_lib.METRICS]
  num_constraints = sum(key.startswith('held_out_cost/') for key in wanted)
  points: dict[str, list[tuple[float, float]]] = {name: [] for name in held_out_lib.FIGURES}
  last = None
  for row in rows if num_constraints else ():
    numbers = {key: streams.number(row.get(key)) for key in wanted}
    figures = tuple(held_out_lib.summarize(numbers, i) for i in range(num_constraints))
    if any(figures):
      last = HeldOut(row['environment_steps'], figures)
    for name, found in points.items():
      values = [known[name] for known in figures if name in known]
      if values:
        found.append((row['environment_steps'], float(np.mean(values))))
  curves.update({name: _curve(found) for name, found in points.items() if found})
  return last


def _curve(points: Iterable[tuple[float, float]]) -> Curve:
  table = np.array(list(points), np.float64).reshape(-1, 2)
  return Curve(table[:, 0], table[:, 1])


def _read_diagnoses(folder: pathlib.Path, workdir: str, report: Report) -> tuple[Diagnosis, ...]:
  diagnoses: list[Diagnosis] = []
  for row in _rows(folder, 'diagnosis.jsonl', workdir, report):
    if len(diagnoses) < _MAX_DIAGNOSES:
      diagnoses.append(Diagnosis(row['environment_steps'], str(row.get('name')), str(row.get('message'))))
  return tuple(diagnoses)


def _read_certificate(folder: pathlib.Path, workdir: str, report: Report) -> certificate_lib.Certificate | None:
  try:
    return certificate_lib.read(folder / 'evaluation')
  except (OSError, certificate_lib.CertificateError) as error:
    where = f'{workdir}/evaluation/{certificate_lib.NAME}'
    report(problems_lib.UNREADABLE, where, f'{_reason(error)}; it is left out')
    return None


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
  evaluation: _Evaluation,
  identity: identity_lib.Identity,
  mujoco: str | None,
  first_time: float | None,
  workdir: str,
  report: Report,
) -> records.SeedScore | None:
  if not all(np.isfinite(value).all() for value in evaluation.values):
    report(problems_lib.NOT_FINITE, workdir, f'the evaluation at step {evaluation.steps:,}; it is left out')
    return None
  episode_return, cost_return, cost_regret = evaluation.values
  if len(identity.protocol.cost_limit) not in (1, len(cost_return)):
    report(
      problems_lib.UNREADABLE,
      workdir,
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
    workdir,
    mujoco,
  )


def _reason(error: Exception) -> str:
  return error.strerror or str(error) if isinstance(error, OSError) else str(error)
