"""Critics, alone and stacked, and their targets."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gin
from lambda_kit.policies import critic as critics
from lambda_kit.policies import targets

_SMALL = functools.partial(critics.Critic, hidden_sizes=(8, 8))


def _init(network):
  """Parameters for 6 features."""
  return jax.jit(network.init, static_argnums=1)(jax.random.key(0), 6)


class TestCritic:
  def test_paper_s_network(self):
    params = jax.eval_shape(lambda key: critics.make_critic(critics.Critic).init(key, 230), jax.random.key(0))
    shapes = sorted(x.shape for x in jax.tree.leaves(params) if len(x.shape) == 2)
    assert shapes == [(230, 400), (400, 1), (400, 400), (400, 400)]

  @pytest.mark.parametrize('leading', [(), (5,), (2, 3, 4)])
  def test_one_value_for_each_state(self, leading):
    critic = critics.make_critic(_SMALL)
    values = critic.apply(_init(critic), jnp.ones([*leading, 6]))
    assert values.shape == leading and values.dtype == jnp.float32

  def test_gin_configures_the_factory_in_its_scope(self):
    gin.clear_config()
    gin.parse_config('Critic.hidden_sizes = (8,)\ncost/Critic.hidden_sizes = (8, 8)')
    count = lambda name: len(_init(critics.make_critic(gin.get_configurable(name))))
    layers = count('Critic'), count('cost/Critic')
    gin.clear_config()
    assert layers == (2, 3)


class TestStackedCritics:
  def test_each_is_a_critic_of_its_own(self):
    stacked, single = critics.make_stacked_critics(_SMALL, 3), critics.make_critic(_SMALL)
    params = _init(stacked)
    assert all(x.shape[0] == 3 for x in jax.tree.leaves(params))
    features = jax.random.normal(jax.random.key(1), [4, 5, 6])
    values = jax.jit(stacked.apply)(params, features)
    assert values.shape == (4, 5, 3)
    for i in range(3):
      own = jax.tree.map(lambda x, i=i: x[i], params)
      np.testing.assert_allclose(values[..., i], single.apply(own, features), rtol=1e-4, atol=1e-5)

  def test_initialised_independently(self):
    params = _init(critics.make_stacked_critics(_SMALL, 3))
    for x in jax.tree.leaves(params):
      if x.ndim == 3:  # Weights; biases are all 0.
        assert np.all(x[0] != x[1]) and np.all(x[1] != x[2])

  def test_a_value_has_a_gradient_in_its_own_critic_only(self):
    stacked = critics.make_stacked_critics(_SMALL, 2)
    params = _init(stacked)
    gradient = jax.jit(jax.grad(lambda p: stacked.apply(p, jnp.ones(6))[0]))(params)
    assert all(np.any(x[0] != 0) and not np.any(x[1]) for x in jax.tree.leaves(gradient))

  def test_none_are_refused(self):
    with pytest.raises(ValueError, match='num=0'):
      critics.make_stacked_critics(_SMALL, 0)


class TestTargets:
  def test_periodic_target_is_an_exact_copy_at_every_period(self):
    update = jax.jit(targets.PeriodicTarget(period=3))
    target, trace = {'w': jnp.array([-1.0])}, []
    for step in range(1, 8):
      target = update({'w': jnp.array([0.1 * step])}, target, step)
      trace.append(float(target['w'][0]))
    np.testing.assert_array_equal(np.float32(trace), np.float32([-1, -1, 0.1 * 3, 0.1 * 3, 0.1 * 3, 0.1 * 6, 0.1 * 6]))

  def test_slow_target_follows_by_averaging(self):
    update = jax.jit(targets.SlowTarget(rate=0.25))
    target = {'w': jnp.array([0.0])}
    for step, expected in enumerate((2.0, 3.5), start=1):  # 0.25 * 8, then 0.25 * 8 + 0.75 * 2.
      target = update({'w': jnp.array([8.0])}, target, step)
      assert float(target['w'][0]) == expected

  def test_the_defaults_are_the_paper_s(self):
    online, target = jnp.ones(1), jnp.zeros(1)
    copied = [int(targets.PeriodicTarget()(online, target, step)[0]) for step in (1, 99, 100, 101, 200)]
    assert copied == [0, 0, 1, 0, 1]
    assert float(targets.SlowTarget()(online, target, 1)[0]) == pytest.approx(0.01)

  def test_other_structures_are_refused(self):
    for update in (targets.PeriodicTarget(), targets.SlowTarget()):
      with pytest.raises(AssertionError):
        update({'w': jnp.ones(2)}, {'w': jnp.ones(3)}, 1)

  def test_wrong_settings_are_refused(self):
    with pytest.raises(ValueError, match='PeriodicTarget.period = 0 should be'):
      targets.PeriodicTarget(0)
    for rate in (0.0, 1.1):
      with pytest.raises(ValueError, match='SlowTarget.rate = .* should be'):
        targets.SlowTarget(rate)

  def test_targets_are_known_to_gin(self):
    gin.clear_config()
    gin.parse_config('PeriodicTarget.period = 2\nSlowTarget.rate = 0.5')
    online, target = jnp.ones(1), jnp.zeros(1)
    assert gin.get_configurable('PeriodicTarget')()(online, target, 2).tolist() == [1]
    assert gin.get_configurable('SlowTarget')()(online, target, 2).tolist() == [0.5]
    gin.clear_config()
