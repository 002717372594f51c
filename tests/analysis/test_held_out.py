"""What is made of a learner's row about new episodes."""

import pytest

from lambda_kit.analysis import held_out

_ROW = {
  'held_out_raw_forecast/1': 0.3,
  'held_out_forecast/1': 0.4,
  'held_out_cost/1': 0.6,
  'held_out_bound/1': 0.54,
  'held_out_covered/1': 0.8,
  'budget_share/1': 0.7,
  'posterior_scale': 11.0,
}


def test_hand_numbers():
  figures = held_out.summarize(_ROW, 1)
  assert list(figures) == list(held_out.FIGURES)
  assert figures == pytest.approx(
    dict(
      forecast_over_observed=2 / 3,
      bound_over_observed=0.9,
      bound_covered=0.8,
      correction=4 / 3,
      posterior_scale=11.0,
      budget_share=0.7,
    )
  )
  assert held_out.describe(figures) == (
    'forecast / observed 0.667, bound / observed 0.9, covered by the bound 0.8, correction 1.33, posterior scale 11, '
    'budget share 0.7'
  )


def test_what_is_unknown_is_left_out():
  assert held_out.summarize(_ROW, 0) == {}
  assert held_out.summarize({'budget_share/0': 1.0, 'posterior_scale': 1.0}, 0) == {}  # No episode was scored.
  never = held_out.summarize(_ROW | {'held_out_cost/1': 0.0, 'held_out_raw_forecast/1': None}, 1)
  assert list(never) == ['bound_covered', 'posterior_scale', 'budget_share']
