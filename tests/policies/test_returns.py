"""TD(lambda) values and the critics' loss against naive versions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.policies import returns

_lambda_values = jax.jit(returns.lambda_values)
_value_loss = jax.jit(returns.value_loss)


def _naive_lambda_values(rewards, continuations, next_values, discount, lambda_):
  """The recursion of the docstring, backwards in time."""
  values, following = [], next_values[-1]
  for r_t, c_t, v_t in reversed(list(zip(rewards, continuations, next_values))):
    following = r_t + discount * c_t * ((1 - lambda_) * v_t + lambda_ * following)
    values.insert(0, following)
  return np.array(values)


def _trajectory(seed=0, horizon=6):
  rng = np.random.default_rng(seed)
  return tuple(
    jnp.asarray(x, jnp.float32)
    for x in (rng.normal(size=horizon), rng.uniform(0.5, 1.0, size=horizon), rng.normal(size=horizon))
  )


class TestLambdaValues:
  @pytest.mark.parametrize('horizon', [1, 2, 6])
  @pytest.mark.parametrize('lambda_', [0, 0.0, 0.5, 0.95, 1])  # Integers, too: gin files may say 1.
  def test_naive_recursion(self, horizon, lambda_):
    trajectory = _trajectory(horizon=horizon)
    values = _lambda_values(*trajectory, 0.99, lambda_)
    np.testing.assert_allclose(values, _naive_lambda_values(*trajectory, 0.99, lambda_), rtol=1e-5, atol=1e-6)

  def test_by_hand(self):
    # discount 0.5, lambda 0.5, v = 4, 8, 16, all continue:
    #   G_2 = 3 + 0.5 (0.5 * 16 + 0.5 * 16) = 11
    #   G_1 = 2 + 0.5 (0.5 * 8 + 0.5 * 11) = 6.75
    #   G_0 = 1 + 0.5 (0.5 * 4 + 0.5 * 6.75) = 3.6875
    values = _lambda_values(jnp.array([1.0, 2.0, 3.0]), jnp.ones(3), jnp.array([4.0, 8.0, 16.0]), 0.5, 0.5)
    assert values.tolist() == [3.6875, 6.75, 11]

  def test_values_are_in_the_order_of_time(self):
    # The only reward comes first: it is part of the first value and of no other.
    values = _lambda_values(jnp.array([1.0, 0.0, 0.0]), jnp.ones(3), jnp.zeros(3), 0.9, 0.95)
    assert values.tolist() == [1, 0, 0]
    # It comes last: the earlier the state, the more it is discounted. 1, 0.9 * 0.95, (0.9 * 0.95)^2.
    values = _lambda_values(jnp.array([0.0, 0.0, 1.0]), jnp.ones(3), jnp.zeros(3), 0.9, 0.95)
    np.testing.assert_allclose(values, [0.855**2, 0.855, 1], rtol=1e-6)

  def test_lambda_zero_is_one_step_bootstrapping(self):
    rewards, continuations, next_values = _trajectory()
    values = _lambda_values(rewards, continuations, next_values, 0.9, 0.0)
    np.testing.assert_allclose(values, rewards + 0.9 * continuations * next_values, rtol=1e-6)

  def test_lambda_one_bootstraps_at_the_horizon_only(self):
    rewards, _, next_values = _trajectory(horizon=3)
    values = _lambda_values(rewards, jnp.ones(3), next_values, 0.9, 1.0)
    first = rewards[0] + 0.9 * rewards[1] + 0.81 * rewards[2] + 0.729 * next_values[2]
    assert float(values[0]) == pytest.approx(float(first), rel=1e-5)

  @pytest.mark.parametrize('lambda_', [0.0, 0.95, 1.0])
  def test_a_terminal_state_cuts_both_branches(self, lambda_):
    """Nothing that follows s_2 is seen from before it: neither its value, nor its return by way of lambda."""
    rewards, _, next_values = _trajectory(horizon=4)
    continuations = jnp.array([1.0, 0.0, 1.0, 1.0])
    values = _lambda_values(rewards, continuations, next_values, 0.9, lambda_)
    assert float(values[1]) == float(rewards[1])  # From s_1: the reward on entering s_2, and no more.
    other = _lambda_values(rewards.at[2:].add(100.0), continuations, next_values.at[1:].add(100.0), 0.9, lambda_)
    assert values[:2].tolist() == other[:2].tolist()
    assert np.all(np.asarray(values[2:]) != np.asarray(other[2:]))

  def test_a_constant_reward_has_its_true_value(self):
    # v = 1 / (1 - 0.9) = 10 is a fixed point for all lambda.
    for lambda_ in (0.0, 0.95, 1.0):
      values = _lambda_values(jnp.ones(5), jnp.ones(5), jnp.full(5, 10.0), 0.9, lambda_)
      np.testing.assert_allclose(values, 10, rtol=1e-6)

  def test_gradients_flow_to_all_arguments(self):
    trajectory = _trajectory(horizon=4)
    mean = lambda *arrays: jnp.mean(_lambda_values(*arrays, 0.9, 0.8))
    gradients = jax.jit(jax.grad(mean, argnums=(0, 1, 2)))(*trajectory)
    step = 1e-3
    for i, gradient in enumerate(gradients):
      for t in range(4):
        plus, minus = ([np.array(x, np.float64) for x in trajectory] for _ in range(2))
        plus[i][t] += step
        minus[i][t] -= step
        difference = np.mean(_naive_lambda_values(*plus, 0.9, 0.8) - _naive_lambda_values(*minus, 0.9, 0.8))
        assert float(gradient[t]) == pytest.approx(difference / (2 * step), rel=1e-3, abs=1e-5)
        assert gradient[t] != 0

  def test_batches_are_for_vmap(self):
    batch = tuple(jnp.stack([x, 2 * x]) for x in _trajectory())
    values = jax.vmap(returns.lambda_values, in_axes=(0, 0, 0, None, None))(*batch, 0.99, 0.95)
    second = tuple(x[1] for x in batch)
    np.testing.assert_allclose(values[1], _naive_lambda_values(*second, 0.99, 0.95), rtol=1e-5, atol=1e-6)
    with pytest.raises(AssertionError):
      returns.lambda_values(*batch, 0.99, 0.95)


class TestValueLoss:
  def test_by_hand(self):
    # Errors 1, 2 and 3, 0: squares 1, 4, 9, 0; half of their mean is 14 / 8.
    values, targets = jnp.array([[1.0, 2.0], [3.0, 0.0]]), jnp.zeros([2, 2])
    assert float(_value_loss(values, targets)) == 1.75

  def test_weights_of_trajectories(self):
    # Means of squares 2.5 and 4.5. Weights 3 and 1: (3 * 2.5 + 4.5) / 4 / 2 = 1.5.
    values, targets = jnp.array([[1.0, 2.0], [3.0, 0.0]]), jnp.zeros([2, 2])
    assert float(_value_loss(values, targets, jnp.array([3.0, 1.0]))) == 1.5
    assert float(_value_loss(values, targets, jnp.array([0.75, 0.25]))) == 1.5
    assert float(_value_loss(values, targets, jnp.ones(2))) == 1.75

  def test_weights_of_states(self):
    # Weights 0, 2, 2, 0: (2 * 4 + 2 * 9) / 4 / 2.
    values, targets = jnp.array([[1.0, 2.0], [3.0, 0.0]]), jnp.zeros([2, 2])
    assert float(_value_loss(values, targets, jnp.array([[0.0, 2.0], [2.0, 0.0]]))) == 3.25

  def test_selected_trajectories_count_as_if_alone(self):
    """One-hot weights over N posterior samples: the loss of the selected ones, [S, H]."""
    rng = np.random.default_rng(0)
    values, targets = jnp.asarray(rng.normal(size=(2, 3, 4, 5)), jnp.float32)
    weights = jax.nn.one_hot(jnp.array([0, 2, 1, 2]), 3, axis=0)
    chosen = np.array([0, 2, 1, 2]), np.arange(4)
    expected = _value_loss(values[chosen], targets[chosen])
    assert float(_value_loss(values, targets, weights)) == pytest.approx(float(expected), rel=1e-5)

  def test_only_values_have_a_gradient(self):
    values, targets, weights = jnp.array([[1.0, 2.0]]), jnp.array([[0.0, 4.0]]), jnp.array([2.0])
    gradients = jax.jit(jax.grad(returns.value_loss, argnums=(0, 1, 2)))(values, targets, weights)
    assert gradients[0].tolist() == [[0.5, -1.0]]  # (v - V) / 2.
    assert not np.any(gradients[1]) and not np.any(gradients[2])

  def test_no_weight_at_all_is_no_loss(self):
    assert float(_value_loss(jnp.ones([2, 3]), jnp.zeros([2, 3]), jnp.zeros(2))) == 0

  def test_shapes_that_do_not_fit_are_refused(self):
    with pytest.raises(AssertionError):
      _value_loss(jnp.ones([2, 3]), jnp.ones([2, 1]))
    with pytest.raises((AssertionError, ValueError)):
      _value_loss(jnp.ones([2, 3]), jnp.ones([2, 3]), jnp.ones([3]))
