"""Scores of new episodes, against a naive reimplementation with a model whose answers can be written down."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit import types
from lambda_kit.agents.lambda_ import held_out
from lambda_kit.agents.lambda_ import imagination
from lambda_kit.models import normalizer
from lambda_kit.safety import bounds
from tests.fakes import linear

_HORIZON = 2
_ACTION = [0.5, -1.0, 0.35, 1.0, 0.0]  # a_0, ..., a_4.
_OBSERVED = [1.0, 0.4, -0.2, 0.1, 0.9, 0.3]
_REWARD = [0.0, 1.0, -0.5, 0.2, 0.3, 0.1]  # Of the moments 0, ..., 5.
_COST = [0.0, 2.0, 0.0, 0.5, 1.0, 0.0]


def _episode(padding=0):
  pad = lambda values: np.asarray([*values, *[7.0] * padding], np.float32)
  return types.Trajectory(
    observation={'vector': pad(_OBSERVED)[:, None]},
    action=pad([0.0, *_ACTION])[:, None],
    reward=pad(_REWARD),
    cost=pad(_COST)[:, None],
    terminal=pad([0.0] * 6),
  )


def _thetas(scale):
  """Two samples around 1."""
  return 1.0 - math.sqrt(scale), 1.0 + math.sqrt(scale)


def _score(*args, **kwargs):
  return _score_and_surprise(*args, **kwargs)[0]


def _score_and_surprise(
  scales=(1.0, 4.0),
  scale=1.0,
  factors=(1.0, 1.0),
  model=linear.LinearModel(),
  shared_noise=False,
  policy=None,
  **episode,
):
  sample = lambda scale: {'theta': 1.0 + jnp.sqrt(scale) * jnp.array([-1.0, 1.0])}

  filtering = {'model': {'theta': jnp.ones(())}, 'normalizer': normalizer.State(jnp.zeros((), jnp.int32), {}, {})}
  return held_out.score(
    model,
    bounds.UpperBound(),
    _HORIZON,
    filtering,
    sample(scale),
    sample,
    scales,
    jnp.array(factors)[:, None],
    policy,
    1,
    shared_noise,
    jax.random.PRNGKey(0),
    _episode(**episode),
    jnp.asarray(5),
  )


def _naive(scale):
  """Windows from o_0, ..., o_3: predicted states by sample, window and step."""
  states = []
  for theta in _thetas(scale):
    windows = []
    for start in range(4):
      state, window = _OBSERVED[start], []
      for step in range(_HORIZON):
        state = theta * state + _ACTION[start + step]
        window.append(state)
      windows.append(window)
    states.append(windows)
  return np.array(states)  # [N, S, H]


_CAME_REWARD, _CAME_COST = (
  np.array([[series[start + step + 1] for step in range(_HORIZON)] for start in range(4)])
  for series in (_REWARD, _COST)
)


@pytest.mark.parametrize('padding', [0, 3])
def test_scores_are_those_of_a_naive_reimplementation(padding):
  scores = _score(padding=padding)
  for k, scale in enumerate((1.0, 4.0)):
    states = _naive(scale)
    for name, error in {'reward': _CAME_REWARD - states, 'cost': _CAME_COST - 2.0 * states}.items():
      likelihood = np.log(np.mean(np.exp(-0.5 * error**2), axis=0))  # Of the mixture, step by step.
      assert scores.log_likelihood[name][k] == pytest.approx(likelihood.mean(), abs=1e-4), (name, scale)
  costs = 2.0 * _naive(1.0)  # The posterior's own width.
  assert scores.log_loss == pytest.approx(-float(scores.log_likelihood['cost'][0]), abs=1e-6)
  np.testing.assert_allclose(scores.forecast[:, 0], costs.mean(axis=(0, 1)), rtol=1e-4)
  np.testing.assert_allclose(scores.came[:, 0], _CAME_COST.mean(axis=0), rtol=1e-5)
  sums = costs.sum(axis=2)
  assert scores.disagreement[0] == pytest.approx(sums.std(axis=0).mean(), rel=1e-4)
  assert scores.bound[0] == pytest.approx(sums.max(axis=0).mean(), rel=1e-4)
  assert scores.covered[0] == pytest.approx(np.mean(sums.max(axis=0) >= _CAME_COST.sum(axis=1)))
  bins = np.searchsorted(held_out.BIN_EDGES, costs.mean(axis=0))
  for g in range(5):
    assert scores.bin_steps[g] == pytest.approx(np.mean(bins == g))
    assert scores.bin_came[g] == pytest.approx(np.mean((bins == g) * _CAME_COST), rel=1e-5)


def test_the_present_width_is_what_forecasts_are_of():
  np.testing.assert_allclose(_score(scale=4.0).forecast, _score(scales=(1.0,), scale=4.0).forecast)
  assert _score(scale=4.0).disagreement[0] > _score().disagreement[0]


def test_forecasts_are_of_the_policy_and_likelihoods_given_what_it_did():
  """With actions k s, theta leads from s to (theta + k) s, which costs twice as much."""
  k = 0.3
  plain = _score()
  scores, surprise = _score_and_surprise(policy=imagination.policy_sampler(linear.linear_policy, {'k': k}))
  jax.tree.map(np.testing.assert_array_equal, scores.log_likelihood, plain.log_likelihood)
  assert scores.log_loss == plain.log_loss
  starts, gains = np.array(_OBSERVED[:4]), np.array(_thetas(1.0)) + k
  costs = 2.0 * np.stack([gains[:, None] * starts, gains[:, None] ** 2 * starts], axis=2)  # [N, S, H]
  np.testing.assert_allclose(scores.raw_forecast[:, 0], costs.mean(axis=(0, 1)), rtol=1e-4)
  np.testing.assert_allclose(scores.came, plain.came)
  sums = costs.sum(axis=2)
  assert scores.bound[0] == pytest.approx(sums.max(axis=0).mean(), rel=1e-4)
  excess = np.maximum(_CAME_COST.sum(axis=1) - sums.mean(axis=0), 0.0)
  assert surprise[0] == pytest.approx(excess[0], rel=1e-4) and surprise[5] == pytest.approx(excess[3], rel=1e-4)


def test_factors_are_of_forecasts_and_bounds_and_not_of_likelihoods():
  plain, scores = _score(), _score(factors=(3.0, 0.5))
  jax.tree.map(np.testing.assert_array_equal, scores.log_likelihood, plain.log_likelihood)
  np.testing.assert_array_equal(scores.raw_forecast, plain.forecast)
  np.testing.assert_allclose(scores.forecast[:, 0], np.array([3.0, 0.5]) * plain.forecast[:, 0], rtol=1e-6)
  sums = 2.0 * _naive(1.0) @ np.array([3.0, 0.5])  # [N, S]
  assert scores.bound[0] == pytest.approx(sums.max(axis=0).mean(), rel=1e-4)
  assert scores.disagreement[0] == pytest.approx(sums.std(axis=0).mean(), rel=1e-4)


@pytest.mark.parametrize('padding', [0, 3])
@pytest.mark.parametrize('factors', [(1.0, 1.0), (3.0, 0.5)])
def test_surprise_is_what_came_beyond_the_forecast(padding, factors):
  _, surprise = _score_and_surprise(padding=padding, factors=factors)
  forecast = 2.0 * (_naive(1.0) @ np.array(factors)).mean(axis=0)  # [S]
  excess = np.maximum(_CAME_COST.sum(axis=1) - forecast, 0.0)
  assert 0 < np.count_nonzero(excess) < 4
  # Time step t is among the states s, s + 1, s + 2 of the start states s = 0, ..., 3, if these are start states.
  expected = [np.mean([excess[s] for s in range(4) if s <= t <= s + 2]) for t in range(6)]
  np.testing.assert_allclose(surprise, [*expected, *[0.0] * padding], rtol=1e-4)


def test_surprise_adds_up_over_costs_and_ignores_what_is_not_finite():
  forecast, came = np.array([[1.0, 1.0], [np.nan, 0.0]]), np.array([[3.0, 0.0], [5.0, 1.0]])
  steps = np.array([[1, 2]])
  surprise = held_out.spread_surprise(forecast, came, np.ones(2), steps, length=4)
  np.testing.assert_allclose(surprise, [2.0, 1.0, 0.0, 0.0])  # Too little of one cost doesn't make up for the other.


def test_averages_forget_and_are_not_biased_towards_nothing():
  state = held_out.init((), 2, _HORIZON, 1)
  scores = _score()
  state = held_out.add(state, scores)
  metrics = held_out.metrics(jax.device_get(state), (1.0, 4.0))
  assert metrics['held_out_cost/0'] == pytest.approx(_CAME_COST.sum(axis=1).mean(), rel=1e-5)
  assert metrics['held_out_cost_ahead/0/2'] == pytest.approx(_CAME_COST[:, 1].mean(), rel=1e-5)
  doubled = jax.tree.map(lambda x: 2.0 * x, scores)
  state = held_out.add(state, doubled)
  # The first weighs 19/20 of the second: (0.95 + 2) / 1.95.
  metrics = held_out.metrics(jax.device_get(state), (1.0, 4.0))
  assert metrics['held_out_cost/0'] == pytest.approx(_CAME_COST.sum(axis=1).mean() * 2.95 / 1.95, rel=1e-5)


def test_scores_that_are_not_finite_do_not_stay():
  scores = _score()
  state = held_out.add(held_out.init((), 2, _HORIZON, 1), jax.tree.map(lambda x: x * jnp.nan, scores))
  for _ in range(200):
    state = held_out.add(state, scores)
  metrics = held_out.metrics(jax.device_get(state), (1.0, 4.0))
  assert metrics['held_out_cost/0'] == pytest.approx(_CAME_COST.sum(axis=1).mean(), rel=1e-3)


def test_pictures_are_not_scored():
  assert held_out.scored_parts({'image': None, 'vector': None}) == ('vector',)


class _NoisyModel(linear.LinearModel):
  """Nothing but noise matters."""

  def imagine_step(self, params, state, action, noise):
    return 0.0 * params['theta'] * state + noise


def test_bounds_select_on_luck_only_where_samples_have_their_own_noise():
  own, shared = (_score(model=_NoisyModel(), shared_noise=shared) for shared in (False, True))
  assert own.disagreement[0] > 0.1 and own.bound[0] > own.forecast.sum() + 0.1
  np.testing.assert_allclose([shared.disagreement[0], shared.bound[0] - shared.forecast.sum()], 0.0, atol=1e-6)
  jax.tree.map(np.testing.assert_array_equal, own.log_likelihood, shared.log_likelihood)
