"""What the logs of a run hold: its score's evaluation, curves, calibration during training, and warnings."""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
from typing import Any, NamedTuple

import numpy as np

from lambda_kit import reading
from lambda_kit.analysis import held_out as held_out_lib
from lambda_kit.analysis import identity as identity_lib
from lambda_kit.analysis import streams
from lambda_kit.analysis.reports import problems as problems_lib
from lambda_kit.analysis.reports import workdir as workdir_lib

# Metrics of the learner's rows. Those with a number for each constraint are summed over constraints.
LEARNER_METRICS = ('imagined_cost', 'multiplier', 'penalty', 'posterior_spread', 'value_spread', 'cost_value_spread')
EVALUATED = ('episode_return', 'cost_return', 'cost_regret')
_KEPT = frozenset((*LEARNER_METRICS, *held_out_lib.METRICS))
_MAX_COSTS = 100  # Of a run.
_MAX_DIAGNOSES = 50
_SMOOTHING = 0.1  # Of the realised cost: an exponential mean over about ten episodes.


@dataclasses.dataclass(frozen=True)
class Curve:
  """A series over environment steps."""

  steps: np.ndarray  # [R].
  values: np.ndarray  # [R], NaN where they are not finite.

  @classmethod
  def of(cls, points: Iterable[tuple[float, float]]) -> 'Curve':
    table = np.array(list(points), np.float64).reshape(-1, 2)
    return cls(table[:, 0], np.where(np.isfinite(table[:, 1]), table[:, 1], np.nan))

  def __len__(self) -> int:
    return len(self.steps)


Curves = dict[str, Curve]  # By name.


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


class Evaluation(NamedTuple):
  """An evaluation, as its row says."""

  steps: int
  time: float | None
  values: list[np.ndarray]  # By `EVALUATED`, [1] or [C].


def read_evaluations(
  workdir: workdir_lib.Workdir, identity: identity_lib.Identity, curves: Curves
) -> tuple[Evaluation | None, int]:
  """Returns the evaluation that gives the score, if there is one yet, and the last step. Adds curves."""
  points, scored, steps, incomplete = streams.Thinned(), None, 0, 0
  wanted = identity.protocol.environment_steps
  for row in workdir.rows('evaluation.jsonl'):
    values = _evaluated(row)
    if values is None:
      incomplete += 1
      if incomplete == 1:
        workdir.report(
          problems_lib.CORRUPT_LINE,
          f'the evaluation at step {row["environment_steps"]:,} has no return, cost return or cost regret',
          'evaluation.jsonl',
        )
      continue
    steps = row['environment_steps']
    points.append((steps, *(value.sum() for value in values)))
    # A much later evaluation says nothing about the protocol's step, unless it ends the run: epochs may be long.
    is_near = steps < wanted + identity.evaluate_every or identity.environment_steps == wanted
    if scored is None and wanted <= steps and is_near:
      scored = Evaluation(steps, streams.number(row.get('time')), values)
  if incomplete > 1:
    workdir.report(problems_lib.CORRUPT_LINE, f'so have {incomplete - 1} others', 'evaluation.jsonl')
  for i, name in enumerate(EVALUATED, start=1):
    curves[name] = Curve.of((point[0], point[i]) for point in points.items())
  return scored, steps


def _evaluated(row: Mapping[str, Any]) -> list[np.ndarray] | None:
  """The values of an evaluation; None if they are missing, or if return, costs and regrets don't fit together."""
  values = [value for name in EVALUATED if (value := streams.vector(row.get(name))) is not None]
  sizes = list(map(len, values))
  return (
    values if len(values) == len(EVALUATED) and sizes == [1, sizes[1], sizes[1]] and sizes[1] <= _MAX_COSTS else None
  )


def read_episodes(workdir: workdir_lib.Workdir, curves: Curves) -> tuple[float | None, int]:
  """Returns the time of the first episode, and the last step. Adds the curve of an agent step's cost."""
  points, first_time, steps, mean = streams.Thinned(), None, 0, None
  for row in workdir.rows('episode.jsonl'):
    steps = row['environment_steps']
    if first_time is None:
      first_time = streams.number(row.get('time'))
    costs, length = row.get('cost_return'), streams.number(row.get('length'))
    costs = list(map(streams.number, costs if isinstance(costs, list) else [costs]))
    if None not in costs and length is not None and length > 0:
      cost = sum(costs) / length
      mean = cost if mean is None else mean + _SMOOTHING * (cost - mean)
      points.append((steps, mean))
  curves['realised_cost'] = Curve.of(points.items())
  return first_time, steps


def read_learner(workdir: workdir_lib.Workdir, curves: Curves) -> HeldOut | None:
  """Adds curves. Returns the last scores of new episodes."""
  rows = streams.Thinned()
  for row in workdir.rows('learner.jsonl'):
    # Only what is shown is kept: 256 whole rows of a stranger may be larger than the memory.
    kept = {key: value for key, value in row.items() if _is_shown(key)}
    rows.append((row['environment_steps'], kept))
  points: dict[str, list[tuple[float, float]]] = {name: [] for name in LEARNER_METRICS}
  keys = set().union(*(row for _, row in rows.items()))
  columns = {key: key.split('/')[0] for key in sorted(keys) if key.split('/')[0] in points}  # 'multiplier/0' as well.
  for steps, row in rows.items():
    sums: dict[str, float] = {}
    for key, name in columns.items():
      value = streams.number(row.get(key))
      if value is not None:
        sums[name] = sums.get(name, 0.0) + value
    for name, value in sums.items():
      points[name].append((steps, value))
  curves.update({name: Curve.of(found) for name, found in points.items() if found})
  return _add_held_out(rows.items(), sorted(keys), curves)


def _is_shown(key: str) -> bool:
  """Whether a learner's metric is shown: 'penalty', or for a constraint 'multiplier/0'."""
  name, _, number = key.partition('/')
  return name in _KEPT and (not number or (len(number) < 3 and number.isascii() and number.isdigit()))


def _add_held_out(rows: Sequence[tuple[int, dict[str, Any]]], keys: Sequence[str], curves: Curves) -> HeldOut | None:
  wanted = [key for key in keys if key.split('/')[0] in held_out_lib.METRICS]
  num_constraints = min(_MAX_COSTS, sum(key.startswith('held_out_cost/') for key in wanted))
  points: dict[str, list[tuple[float, float]]] = {name: [] for name in held_out_lib.FIGURES}
  last = None
  for steps, row in rows if num_constraints else ():
    numbers = {key: streams.number(row.get(key)) for key in wanted}
    figures = tuple(held_out_lib.summarize(numbers, i) for i in range(num_constraints))
    if any(figures):
      last = HeldOut(steps, figures)
    for name, found in points.items():
      values = [known[name] for known in figures if name in known]
      if values:
        found.append((steps, float(np.mean(values))))
  curves.update({name: Curve.of(found) for name, found in points.items() if found})
  return last


def read_diagnoses(workdir: workdir_lib.Workdir) -> tuple[Diagnosis, ...]:
  diagnoses: list[Diagnosis] = []
  for row in workdir.rows('diagnosis.jsonl'):
    if len(diagnoses) < _MAX_DIAGNOSES:
      name, message = (value if isinstance(value := row.get(key), str) else '?' for key in ('name', 'message'))
      diagnoses.append(Diagnosis(row['environment_steps'], reading.one_line(name), reading.one_line(message, 1000)))
  return tuple(diagnoses)
