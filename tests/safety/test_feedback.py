"""Feedback of real costs, against plants whose answer is arithmetic."""

import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.safety import feedback

_LIMITS = jnp.array([25.0, 10.0])


def _settle(controller, bias, episodes=300, highest_cost=1e9, multiplier=1.0):
  """The shares and the costs after many episodes of a policy that spends its budget, where the model sees 1 / bias."""
  state = controller.init(2)
  for _ in range(episodes):
    shares = controller.shares(state, 2)
    budgets = shares * _LIMITS
    for _ in range(10):
      state = controller.observe_update(state, 0.99 * budgets, budgets, jnp.full(2, multiplier))
    costs = jnp.minimum(bias * budgets, highest_cost)
    state = controller.observe_episode(state, costs, _LIMITS)
  return np.asarray(controller.shares(state, 2)), np.asarray(costs)


@pytest.mark.parametrize('bias', [2.0, 1.3, 0.7])
def test_costs_settle_at_the_limit_whatever_the_models_bias(bias):
  shares, costs = _settle(feedback.IntegralFeedback(highest=2.0, memory=10.0), bias)
  np.testing.assert_allclose(costs, _LIMITS, rtol=0.01)
  np.testing.assert_allclose(shares, 1.0 / bias, rtol=0.01)
  _, costs = _settle(feedback.NoFeedback(), bias)
  np.testing.assert_allclose(costs, bias * _LIMITS)


def test_shares_stay_within_their_range():
  low, _ = _settle(feedback.IntegralFeedback(memory=10.0), bias=100.0)
  high, _ = _settle(feedback.IntegralFeedback(highest=2.0, memory=10.0), bias=0.1)
  np.testing.assert_allclose(low, 0.1, rtol=1e-5)
  np.testing.assert_allclose(high, 2.0, rtol=1e-5)
  default, _ = _settle(feedback.IntegralFeedback(memory=10.0), bias=0.1)
  np.testing.assert_array_equal(default, 1.0)


def test_it_is_asleep_before_the_first_update_and_while_imagined_costs_exceed_their_budget():
  controller = feedback.IntegralFeedback()
  state = controller.init(1)
  limits = jnp.array([25.0])
  state = controller.observe_episode(state, jnp.array([80.0]), limits)
  for _ in range(100):
    state = controller.observe_update(state, jnp.array([7.0]), jnp.array([5.0]), jnp.array([0.1]))
  state = controller.observe_episode(state, jnp.array([80.0]), limits)
  assert controller.shares(state, 1) == 1.0
  for _ in range(1000):
    state = controller.observe_update(state, jnp.array([4.0]), jnp.array([5.0]), jnp.array([0.1]))
  state = controller.observe_episode(state, jnp.array([1e6]), limits)
  # Five times the limit and more counts as five times: exp(-0.05 * 4).
  np.testing.assert_allclose(controller.shares(state, 1), np.exp(-0.2), rtol=1e-3)


@pytest.mark.parametrize('margin', [0.0, 1.0, 2.0])
def test_skewed_costs_and_noisy_values_settle_below_the_limit_by_the_margin(margin):
  """Costs of episodes are exponential, and imagined costs within the budget half of the time.

  Their standard deviation is their mean c, and the mean of those that are remembered, with weights g^i, has
  q = (1 - g) / (1 + g) of its square as variance: c + margin sqrt(q) c = 25.
  """
  rng, limits = np.random.default_rng(0), jnp.array([25.0])
  controller = feedback.IntegralFeedback(gain=0.01, highest=2.0, margin=margin, episodes=20.0)
  state, means = controller.init(1), []
  for _ in range(4_000):
    shares = controller.shares(state, 1)
    budgets = shares * limits
    state = controller.observe_update(state, budgets * rng.uniform(0.9, 1.1), budgets, jnp.ones(1))
    means.append(2.0 * budgets[0])
    state = controller.observe_episode(state, jnp.array([rng.exponential(means[-1])]), limits)
  np.testing.assert_allclose(np.mean(means[1_000:]), 25.0 / (1.0 + margin * np.sqrt(0.05 / 1.95)), rtol=0.04)


def test_it_sleeps_for_some_episodes_after_the_first_update():
  controller, limits = feedback.IntegralFeedback(asleep=3, memory=1.0), jnp.array([25.0])
  state = controller.init(1)
  for _ in range(5):  # Of random actions.
    state = controller.observe_episode(state, 2 * limits, limits)
  state = controller.observe_update(state, jnp.zeros(1), jnp.ones(1), jnp.ones(1))
  for _ in range(3):
    state = controller.observe_episode(state, 2 * limits, limits)
  assert controller.shares(state, 1) == 1.0
  state = controller.observe_episode(state, 2 * limits, limits)
  np.testing.assert_allclose(controller.shares(state, 1), np.exp(-0.05), rtol=1e-6)


def test_the_margin_counts_standard_errors_of_recent_costs():
  """Against weights written out: the variance is that of values with weights w_i, unbiased."""
  costs, keep = np.array([30.0, 0.0, 70.0, 10.0]), 0.5
  controller = feedback.IntegralFeedback(gain=0.01, highest=2.0, margin=1.5, episodes=2.0, memory=1.0)
  state = controller.observe_update(controller.init(1), jnp.zeros(1), jnp.ones(1), jnp.ones(1))
  shares = []
  for cost in costs:
    state = controller.observe_episode(state, jnp.array([cost]), jnp.array([25.0]))
    shares.append(controller.shares(state, 1).item())
  weights = keep ** np.arange(4.0)[::-1]
  mean, q = np.average(costs, weights=weights), np.sum(weights**2) / np.sum(weights) ** 2
  variance = np.average((costs - mean) ** 2, weights=weights) / (1.0 - q)
  np.testing.assert_allclose(shares[0], np.exp(-0.01 * 5.0 / 25.0), rtol=1e-5)  # One cost has no standard error.
  last = 0.01 * (25.0 - 1.5 * np.sqrt(q * variance) - 10.0) / 25.0
  np.testing.assert_allclose(shares[3], shares[2] * np.exp(last), rtol=1e-5)


def test_shares_begin_where_they_are_bound_and_are_earned():
  controller, limits = feedback.IntegralFeedback(initial=0.2, memory=1.0), jnp.array([25.0, 10.0])
  state = controller.init(2)
  np.testing.assert_allclose(controller.shares(state, 2), 0.2, rtol=1e-6)
  state = controller.observe_update(state, jnp.zeros(2), jnp.ones(2), jnp.ones(2))
  for cost, share in ((0.0, 0.2 * np.exp(0.05)), (1.0, 0.2 * np.exp(0.05))):
    state = controller.observe_episode(state, cost * limits, limits)
    np.testing.assert_allclose(controller.shares(state, 2), share, rtol=1e-5)


def test_it_does_not_loosen_a_constraint_that_holds_nothing_back():
  shares, _ = _settle(feedback.IntegralFeedback(highest=2.0, memory=10.0), bias=0.5, multiplier=0.0)
  np.testing.assert_array_equal(shares, 1.0)


def test_a_cost_that_is_not_finite_changes_nothing():
  controller = feedback.IntegralFeedback(memory=1.0)
  state = controller.observe_update(controller.init(2), jnp.zeros(2), jnp.ones(2), jnp.ones(2))
  state = controller.observe_episode(state, jnp.array([jnp.nan, 20.0]), _LIMITS)
  np.testing.assert_allclose(controller.shares(state, 2), [1.0, np.exp(-0.05)], rtol=1e-6)


@pytest.mark.parametrize(
  'name, value', [('gain', 0.0), ('lowest', 0.0), ('highest', 0.9), ('initial', 1.5), ('memory', 0.5)]
)
def test_settings_out_of_range_are_refused(name, value):
  with pytest.raises(ValueError, match=rf'IntegralFeedback\.{name} = {value} '):
    feedback.IntegralFeedback(**{name: value})
