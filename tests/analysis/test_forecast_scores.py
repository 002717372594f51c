"""Scores of forecasts whose quality is known, because the costs are drawn from them or from others."""

import math

import numpy as np
import pytest

from lambda_kit.analysis import forecast_scores

_HORIZON, _DRAWS, _SAMPLES = 4, 12, 3


def _episodes(num_episodes, starts=200, factor=1.0, bound_factor=1.0, seed=0):
  """Each step ahead costs 2 with a probability that start states differ by. Forecasts of it are off by a factor."""
  rng = np.random.default_rng(seed)
  episodes = []
  for _ in range(num_episodes):
    risk = rng.uniform(0.0, 0.4, (starts, 1)) * np.linspace(1.0, 0.5, _HORIZON)
    draw = lambda probability, *shape: 2.0 * (rng.random((*shape, *probability.shape)) < probability)
    forecast = 2.0 * factor * risk
    episodes.append(
      forecast_scores.Episode(
        raw_forecast=0.5 * forecast,
        forecast=forecast,
        disagreement=np.full(starts, 0.25),
        bound=bound_factor * forecast,
        draws=draw(factor * risk, _DRAWS).sum(axis=2).T,
        observed=draw(risk),
      )
    )
  return episodes


def _level():
  return _SAMPLES / (_SAMPLES + 1)


@pytest.fixture(scope='module')
def exact():
  return forecast_scores.score(_episodes(40), _level())


@pytest.fixture(scope='module')
def half():
  return forecast_scores.score(_episodes(40, factor=0.5), _level())


def _holds(interval, truth):
  value, low, high = interval
  # The interval is one of 90%, i.e. 1.64 standard errors. Some fifty are looked at: twice as much is one of 99.9%.
  return value + 2.0 * (low - value) <= truth <= value + 2.0 * (high - value)


def test_costs_drawn_from_the_forecast_are_covered_at_every_level(exact):
  # Though most costs are 0.
  assert [row['level'] for row in exact['upper']] == [row['level'] for row in exact['central']] == [0.5, 0.8, 0.9, 0.95]
  for row in [*exact['upper'], *exact['central']]:
    assert _holds(row['covered'], row['level']) and row['covered'][2] - row['covered'][1] < 0.05, row
  assert _holds(exact['bound']['covered_at_level'], 0.75) and exact['bound']['level'] == 0.75
  assert len(exact['ranks']) == 10 and all(_holds(share, 0.1) for share in exact['ranks'])
  assert sum(value for value, _, _ in exact['ranks']) == pytest.approx(1.0, abs=1e-3)


def test_a_bound_covers_what_exact_models_promise(exact):
  bound = exact['bound']
  # Of costs that are 0, 2, 4, ... the expected one covers few that are not 0.
  assert bound['promised'] < 0.7 and _holds(bound['covered'], bound['promised'])


def test_exact_forecasts_are_reliable_at_every_step(exact):
  assert _holds(exact['forecast_over_observed'], 1.0) and _holds(exact['raw_forecast_over_observed'], 0.5)
  for step, share in zip(exact['steps'], np.linspace(1.0, 0.5, _HORIZON)):
    assert _holds(step['forecast_over_observed'], 1.0) and _holds(step['bound_over_observed'], 1.0)
    assert step['forecast'] == pytest.approx(0.4 * share, rel=0.05) == 2.0 * step['raw_forecast']
    assert step['observed'] == pytest.approx(0.4 * share, rel=0.1)
  assert len(exact['bins']) == 10 and all(_holds(part['observed'], part['forecast']) for part in exact['bins'])
  assert [part['share'] for part in exact['bins']] == pytest.approx([0.1] * 10, abs=1e-3)
  event = exact['event']
  assert _holds(event['observed'], event['forecast'])
  assert event['brier'][0] < event['uninformed_brier'] and event['log_loss'][0] < event['uninformed_log_loss']


def test_half_the_costs_are_told_as_half(exact, half):
  assert _holds(half['forecast_over_observed'], 0.5)
  assert all(_holds(step['forecast_over_observed'], 0.5) for step in half['steps'])
  assert half['bound']['covered'][2] < half['bound']['promised'] - 0.1
  for row in half['upper']:
    assert row['covered'][2] < row['level'] - 0.02
  assert half['ranks'][-1][1] > 0.15 and half['ranks'][0][2] < 0.1
  assert all(part['observed'][1] > part['forecast'] for part in half['bins'][1:])
  assert half['event']['brier'][0] > exact['event']['brier'][0]
  assert half['event']['log_loss'][0] > exact['event']['log_loss'][0]


def test_intervals_hold_the_truth_nine_times_in_ten():
  repetitions = 200
  found = [forecast_scores.score(_episodes(8, starts=20, seed=1 + i), None) for i in range(repetitions)]
  inside = lambda interval, truth: interval[1] <= truth <= interval[2]
  for rate in (
    np.mean([inside(result['forecast_over_observed'], 1.0) for result in found]),
    np.mean([inside(result['central'][1]['covered'], 0.8) for result in found]),
  ):
    assert 0.85 <= rate <= 0.95  # Two and a half standard errors are 0.05.
  assert found[0]['bound']['level'] is found[0]['bound']['covered_at_level'] is None


def test_hand_numbers():
  episode = forecast_scores.Episode(
    raw_forecast=np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0], [3.0, 1.0]]),
    forecast=np.array([[2.0, 0.0], [0.0, 4.0], [0.0, 0.0], [6.0, 2.0]]),
    disagreement=np.array([0.0, 1.0, 2.0, 3.0]),
    bound=np.array([[2.0, 1.0], [1.0, 4.0], [0.0, 0.0], [6.0, 4.0]]),
    draws=np.array([[0.0, 4.0], [0.0, 0.0], [0.0, 0.0], [8.0, 12.0]]),
    observed=np.array([[1.0, 1.0], [4.0, 4.0], [0.0, 0.0], [0.0, 1.0]]),
  )
  found = forecast_scores.score([episode], None)
  alone = lambda value: [pytest.approx(value, abs=1e-3), None, None]
  assert found['observed'] == alone(11 / 4)
  assert found['raw_forecast_over_observed'] == alone(7 / 11) and found['forecast_over_observed'] == alone(14 / 11)
  assert found['bound_over_observed'] == alone(18 / 11)
  # Bounds 3, 5, 0, 10; costs 2, 8, 0, 1; of the draws 1, 2, 2 and 1 are covered.
  assert found['bound']['covered'] == alone(3 / 4) and found['bound']['promised'] == pytest.approx(6 / 8)
  assert found['steps'][1] == dict(
    observed=1.5,
    raw_forecast=0.75,
    forecast=1.5,
    bound=2.25,
    forecast_over_observed=alone(1.0),
    bound_over_observed=alone(1.5),
  )
  assert [part['forecast'] for part in found['bins']] == [0.0, 2.0, 4.0, 8.0]
  assert [part['observed'][0] for part in found['bins']] == [0.0, 2.0, 8.0, 1.0]
  # Deviations of two draws: 4 / sqrt(2) twice, and 0. Forecasts 2, 4, 0, 8.
  assert found['sharpness'] == dict(
    spread=pytest.approx(2.0 * math.sqrt(2.0) / 2.0, abs=1e-3),
    disagreement=1.5,
    deviation=pytest.approx(math.sqrt(21.0 - 3.5**2), abs=1e-3),
  )
  # Probabilities 1/2, 0, 0, 1; events 1, 1, 0, 1. Half of two draws is as good as 0 or 1: 1/4 - 1/4.
  event = found['event']
  assert event['forecast'] == pytest.approx(3 / 8) and event['observed'] == alone(3 / 4)
  assert event['brier'] == alone(1 / 4) and event['uninformed_brier'] == pytest.approx(3 / 16, abs=1e-4)
  # log(1/2), log(1/6), log(5/6), log(5/6).
  assert event['log_loss'] == alone(-math.log(1 / 2 * 1 / 6 * 25 / 36) / 4)


def test_ranks_are_between_draws_and_anywhere_among_equals():
  draws = np.array([[0.0, 1.0, 2.0], [0.0, 0.0, 0.0], [0.0, 0.0, 5.0]])
  found = forecast_scores.below(np.array([1.5, 0.0, 0.0]), draws, np.array([0.0, 0.5, 0.6, 0.75, 1.0]))
  # Above two of three draws: between 2/4 and 3/4. Among three equals: anywhere. Among two: below 3/4.
  np.testing.assert_allclose(found, [[0, 0, 0.4, 1, 1], [0, 0.5, 0.6, 0.75, 1], [0, 2 / 3, 0.8, 1, 1]])


def test_costs_that_never_come_leave_ratios_open():
  zeros = np.zeros((5, 2))
  never = forecast_scores.Episode(zeros, zeros, np.zeros(5), zeros, np.zeros((5, 4)), zeros)
  found = forecast_scores.score([never] * 3, 0.5)
  assert found['forecast_over_observed'] == found['bound_over_observed'] == [None, None, None]
  assert found['bound']['covered'] == [1.0, 1.0, 1.0] and len(found['bins']) == 1
  assert found['event']['uninformed_log_loss'] == found['event']['uninformed_brier'] == 0.0
