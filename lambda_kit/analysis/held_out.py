"""Calibration during training: what a learner's row says of new episodes, before any model has learned from them."""

from collections.abc import Mapping
from typing import Any

# Of a learner's row; all but the last have an entry for each constraint.
METRICS = (
  'held_out_raw_forecast',
  'held_out_forecast',
  'held_out_cost',
  'held_out_bound',
  'held_out_covered',
  'budget_share',
  'posterior_scale',
)
# What is made of them, and how it is called.
FIGURES = {
  'forecast_over_observed': 'forecast / observed',
  'bound_over_observed': 'bound / observed',
  'bound_covered': 'covered by the bound',
  'correction': 'correction',
  'posterior_scale': 'posterior scale',
  'budget_share': 'budget share',
}


def summarize(row: Mapping[str, Any], constraint: int) -> dict[str, float]:
  """Figures of one constraint by name, in the order of `FIGURES`: those that the row knows.

  `forecast_over_observed` and `bound_over_observed` are ratios of the costs of H steps, with the factors that the agent
  corrects them by; `correction` is how much these raise the forecast. `bound_covered` is the share of start states
  where the cost was at most the bound.

  Args:
    row: Of kind 'learner', with None for what is not finite.
    constraint: Its number.
  """
  of = lambda name: row.get(f'{name}/{constraint}')

  def ratio(numerator: str, denominator: str) -> float | None:
    above, below = of(numerator), of(denominator)
    return None if above is None or not below else above / below

  if of('held_out_cost') is None:  # No episode has been scored.
    return {}
  figures = dict(
    forecast_over_observed=ratio('held_out_forecast', 'held_out_cost'),
    bound_over_observed=ratio('held_out_bound', 'held_out_cost'),
    bound_covered=of('held_out_covered'),
    correction=ratio('held_out_forecast', 'held_out_raw_forecast'),
    posterior_scale=row.get('posterior_scale'),
    budget_share=of('budget_share'),
  )
  return {name: float(value) for name in FIGURES if (value := figures[name]) is not None}


def describe(figures: Mapping[str, float]) -> str:
  """Describes them in a line of ASCII."""
  return ', '.join(f'{FIGURES[name]} {value:.3g}' for name, value in figures.items())
