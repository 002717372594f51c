"""The certificate of a policy: in a few numbers, what it costs, and whether its models knew. See docs/calibration.md.

`evaluate --calibrate` writes it, exported policies carry it, reports show it.
"""

from collections.abc import Mapping
import json
import math
import pathlib
import re
from typing import Any, NamedTuple

from lambda_kit import files
from lambda_kit import reading

NAME = 'calibration.json'

_LEVEL = 0.9  # Of the interval whose coverage is kept.


class CertificateError(ValueError):
  """A file is not a certificate."""


class Interval(NamedTuple):
  """An estimate with its 90% interval; NaN is unknown, as the interval is of a single episode."""

  value: float
  low: float
  high: float

  def __str__(self) -> str:
    if math.isnan(self.value):
      return 'unknown'
    # NaN has no digits to show, and an end without a limit is written as infinite.
    return f'{self.value:.3g}' + ('' if math.isnan(self.low) else f' ({self.low:.3g} to {self.high:.3g})')


class Constraint(NamedTuple):
  """One cost. Forecasts are of H agent steps; observed is what came."""

  limit: float
  cost_return: Interval  # Mean cost of an episode of the policy, as it is evaluated and exported.
  raw_forecast_over_observed: Interval  # As models expect.
  forecast_over_observed: Interval  # As the agent corrects it.
  bound_over_observed: Interval
  bound_covered: Interval  # Share of costs that were at most the bound.
  bound_promised: float  # The share that the models say.
  level: float | None  # k / (N + 1) of a bound that selects the k-th smallest of N samples.
  covered_at_level: Interval | None  # Share of costs below this quantile of what models draw.
  covered_at_90: Interval  # Share of costs below their 90% quantile.


class Certificate(NamedTuple):
  """Of a policy, on episodes that neither weights nor checkpoints were chosen by."""

  task: str
  seed: int
  environment_steps: int  # Of the checkpoint.
  episodes: int
  horizon: int  # H, agent steps ahead.
  samples: int  # N
  episode_return: Interval  # Mean of the policy, as it is evaluated and exported.
  constraints: Mapping[str, Constraint]  # By name.

  def describe(self) -> str:
    """Describes it in a few sentences for each constraint."""
    return '\n'.join(
      [
        f'An episode returns {self.episode_return}, in {self.episodes} new episodes with 90% intervals.',
        *(self._describe(name, constraint) for name, constraint in self.constraints.items()),
      ]
    )

  def _describe(self, name: str, constraint: Constraint) -> str:
    level = (
      ''
      if constraint.level is None or constraint.covered_at_level is None
      else f' {constraint.covered_at_level} of costs were below the {constraint.level:.0%} quantile of what the models '
      f'draw, the level of a bound over {self.samples} samples.'
    )
    ratios = (
      f'forecast / observed cost is {constraint.forecast_over_observed}, before any correction '
      f'{constraint.raw_forecast_over_observed}; bound / observed is {constraint.bound_over_observed}'
    )
    return (
      f'{name}: an episode costs {constraint.cost_return}, with a limit of {constraint.limit:g}. Within '
      f'{self.horizon} steps, {ratios}. The bound covered {constraint.bound_covered} of the costs that came, and would '
      f'cover {constraint.bound_promised:.3g} if the models were exact.{level} Below their 90% quantile were '
      f'{constraint.covered_at_90}.'
    )


def of_calibration(result: Mapping[str, Any]) -> Certificate:
  """The certificate of what `calibration.write_calibration` returns, or a CertificateError."""
  names = ('task', 'seed', 'environment_steps', 'episodes', 'horizon', 'samples', 'episode_return')
  try:
    content = {name: result[name] for name in names}
    constraints = {name: _of_scores(scores) for name, scores in result['constraints'].items()}
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise CertificateError(f'it is no calibration of this version: {type(error).__name__}') from error
  return from_json({**content, 'constraints': constraints})


def _of_scores(scores: Mapping[str, Any]) -> dict[str, Any]:
  bound = scores['bound']
  (at_90,) = (row['covered'] for row in scores['upper'] if row['level'] == _LEVEL)
  kept = ('limit', 'cost_return', 'raw_forecast_over_observed', 'forecast_over_observed', 'bound_over_observed')
  return dict(
    {name: scores[name] for name in kept},
    bound_covered=bound['covered'],
    bound_promised=bound['promised'],
    level=bound['level'],
    covered_at_level=bound['covered_at_level'],
    covered_at_90=at_90,
  )


def to_json(certificate: Certificate) -> dict[str, Any]:
  """Plain JSON: intervals are [value, low, high], null is unknown or without limit."""
  finite = lambda x: x if math.isfinite(x) else None
  plain = lambda value: [finite(x) for x in value] if isinstance(value, Interval) else value
  plain_fields = lambda fields: {field: plain(value) for field, value in fields._asdict().items()}
  return {
    **plain_fields(certificate),
    'constraints': {name: plain_fields(constraint) for name, constraint in certificate.constraints.items()},
  }


def from_json(content: Any) -> Certificate:
  """The inverse of `to_json`. Raises CertificateError."""
  try:
    constraints = {name: _read_constraint(row) for name, row in content['constraints'].items()}
    episode_return = _interval(content['episode_return'])
    whole = {name: _whole(content[name]) for name in ('seed', 'environment_steps', 'episodes', 'horizon', 'samples')}
    if (
      set(content) != set(Certificate._fields)
      or not constraints
      or not all(map(reading.is_line, [content['task'], *constraints]))
    ):
      raise ValueError('its fields are others')
  except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
    raise CertificateError(f'it is no certificate of calibration: {type(error).__name__}') from error
  return Certificate(task=content['task'], **whole, episode_return=episode_return, constraints=constraints)


def _read_constraint(row: Mapping[str, Any]) -> Constraint:
  if set(row) != set(Constraint._fields):
    raise ValueError('its fields are others')
  return Constraint(
    limit=_real(row['limit']),
    cost_return=_interval(row['cost_return']),
    raw_forecast_over_observed=_interval(row['raw_forecast_over_observed']),
    forecast_over_observed=_interval(row['forecast_over_observed']),
    bound_over_observed=_interval(row['bound_over_observed']),
    bound_covered=_interval(row['bound_covered']),
    bound_promised=_real(row['bound_promised']),
    level=None if row['level'] is None else _real(row['level']),
    covered_at_level=None if row['covered_at_level'] is None else _interval(row['covered_at_level']),
    covered_at_90=_interval(row['covered_at_90']),
  )


def _interval(values: Any) -> Interval:
  """From [value, low, high] with null."""
  value, low, high = values
  known = [math.nan if x is None else _real(x) for x in (value, low, high)]
  if high is None and low is not None:
    known[2] = math.inf
  return Interval(*known)


def _real(value: Any) -> float:
  if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
    raise ValueError('no number')
  return float(value)


def _whole(value: Any) -> int:
  if isinstance(value, bool) or not isinstance(value, int):
    raise ValueError('no whole number')
  return value


def to_text(content: Mapping[str, Any]) -> str:
  """JSON with lists of numbers in a line each."""
  text = json.dumps(content, indent=1, allow_nan=False)
  return re.sub(r'\[[^][{}]*\]', lambda numbers: ' '.join(numbers.group().split()), text) + '\n'


def write(folder: pathlib.Path, certificate: Certificate) -> None:
  files.write_atomically(folder / NAME, to_text(to_json(certificate)))


def read(folder: pathlib.Path) -> Certificate | None:
  """The certificate in a folder; None if there is none.

  Raises:
    CertificateError: The file is something else.
    OSError: It can't be read.
  """
  path = folder / NAME
  try:
    return from_json(reading.read_json(path)) if reading.exists(path) else None
  except reading.RefusedError as error:
    raise CertificateError(error.reason) from error
