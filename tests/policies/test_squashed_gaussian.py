"""The squashed Gaussian and the policy that outputs it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import gin
from lambda_kit.policies import squashed_gaussian

_SMALL = {'hidden_sizes': (16, 16)}


def _policy(num_actions=2, **kwargs):
  return squashed_gaussian.make_policy(
    num_actions, lambda n: squashed_gaussian.SquashedGaussianPolicy(n, **_SMALL | kwargs)
  )


def _init(network):
  """Parameters for 4 features."""
  return jax.jit(network.init, static_argnums=1)(jax.random.key(0), 4)


def _gaussian(mean, std):
  return squashed_gaussian.SquashedGaussian(jnp.asarray(mean, jnp.float32), jnp.asarray(std, jnp.float32))


class TestSquashedGaussian:
  def test_samples_are_distributed_as_they_should(self):
    samples = _gaussian(np.full([20_000], 0.4), np.full([20_000], 0.7)).sample(jax.random.key(0))
    assert stats.kstest(np.arctanh(np.asarray(samples, np.float64)), stats.norm(0.4, 0.7).cdf).pvalue > 0.01

  def test_keys_decide(self):
    distribution = _gaussian(np.zeros([4, 2]), np.ones([4, 2]))
    first, again, other = (distribution.sample(jax.random.key(seed)) for seed in (0, 0, 1))
    assert first.tolist() == again.tolist() and np.all(first != other)
    assert len(np.unique(first)) == 8  # All entries have noise of their own.

  def test_samples_stay_inside(self):
    """Wide Gaussians saturate tanh in single precision."""
    samples = _gaussian(np.full([1000, 2], 3.0), np.full([1000, 2], 20.0)).sample(jax.random.key(0))
    assert np.all(np.abs(samples) < 1)

  def test_gradients_through_samples(self):
    # a = tanh(mean + std e): da / dmean = 1 - a^2, da / dstd = (1 - a^2) e.
    mean, std, key = jnp.array([0.2]), jnp.array([0.5]), jax.random.key(0)
    sample = lambda m, s: squashed_gaussian.SquashedGaussian(m, s).sample(key)[0]
    action = sample(mean, std)
    noise = (np.arctanh(action) - 0.2) / 0.5
    slopes = jax.jit(jax.grad(sample, argnums=(0, 1)))(mean, std)
    np.testing.assert_allclose(slopes[0][0], 1 - action**2, rtol=1e-4)
    np.testing.assert_allclose(slopes[1][0], (1 - action**2) * noise, rtol=1e-4)

  def test_mode(self):
    distribution = _gaussian([0.5, -30.0], [1.0, 1.0])
    np.testing.assert_allclose(distribution.mode(), np.tanh([0.5, -30.0]), rtol=1e-6)
    assert np.all(np.abs(distribution.mode()) < 1)

  def test_gaussian_entropy(self):
    expected = stats.norm(0, 0.5).entropy() + stats.norm(3, 2.0).entropy()
    assert float(_gaussian([0.0, 3.0], [0.5, 2.0]).gaussian_entropy()) == pytest.approx(expected, rel=1e-6)


class TestPolicy:
  def test_paper_s_network(self):
    policy = squashed_gaussian.make_policy(2, squashed_gaussian.SquashedGaussianPolicy)
    params = jax.eval_shape(lambda key: policy.init(key, 230), jax.random.key(0))
    shapes = sorted(x.shape for x in jax.tree.leaves(params) if len(x.shape) == 2)
    assert shapes == [(230, 400), (400, 4), (400, 400), (400, 400), (400, 400)]  # 4 hidden layers, then mean and std.

  @pytest.mark.parametrize('init_std, min_std', [(5.0, 1e-4), (1.0, 0.1), (50.0, 0.0)])
  def test_at_initialisation(self, init_std, min_std):
    policy = _policy(3, init_std=init_std, min_std=min_std)
    params = _init(policy)
    # Biases are 0 at first, so features of 0 show the outputs' offsets.
    distribution = jax.jit(policy.apply)(params, np.zeros([4], np.float32))
    np.testing.assert_allclose(distribution.mean, np.zeros(3), atol=1e-6)
    np.testing.assert_allclose(distribution.std, np.full(3, init_std + min_std), rtol=1e-5)
    # Other features don't lead far away.
    distribution = jax.jit(policy.apply)(params, jax.random.normal(jax.random.key(1), [100, 4]))
    assert distribution.mean.shape == distribution.std.shape == (100, 3)
    assert np.all(np.abs(np.mean(distribution.mean, axis=0)) < 1)
    np.testing.assert_allclose(np.mean(distribution.std, axis=0), init_std + min_std, atol=0.7)

  def test_bounds_of_mean_and_std(self):
    policy = _policy(mean_scale=2.0, min_std=0.3)
    params = _init(policy)
    distribution = jax.jit(policy.apply)(params, 1e4 * jax.random.normal(jax.random.key(1), [100, 4]))
    assert float(jnp.max(jnp.abs(distribution.mean))) == pytest.approx(2)
    assert float(jnp.min(distribution.std)) == pytest.approx(0.3)

  def test_formulas(self):
    """The last layer's outputs, given through its biases: m = 2.5 and raw = 1."""
    policy = _policy(1)
    params = jax.tree.map(jnp.zeros_like, _init(policy))
    last = next(name for name in params if name.endswith('linear_2'))
    params[last]['b'] = jnp.array([2.5, 1.0])
    distribution = jax.jit(policy.apply)(params, jnp.ones([4]))
    assert float(distribution.mean[0]) == pytest.approx(5 * np.tanh(2.5 / 5), rel=1e-5)
    assert float(distribution.std[0]) == pytest.approx(np.log1p(np.exp(1 + np.log(np.exp(5) - 1))) + 1e-4, rel=1e-5)

  def test_is_usable_under_jit_and_for_any_leading_axes(self):
    policy = _policy()
    params = _init(policy)
    distribution = jax.jit(policy.apply)(params, jnp.ones([2, 3, 4]))
    assert isinstance(distribution, squashed_gaussian.SquashedGaussian)
    actions = distribution.sample(jax.random.key(0))
    assert actions.shape == (2, 3, 2) and actions.dtype == jnp.float32
    assert distribution.gaussian_entropy().shape == (2, 3)
    assert distribution.mode().tolist() == jax.jit(policy.apply)(params, jnp.ones([2, 3, 4])).mode().tolist()

  def test_parameters_get_gradients_through_actions(self):
    policy = _policy(init_std=0.5)
    params = _init(policy)
    features = jax.random.normal(jax.random.key(1), [10, 4])
    gradients = jax.jit(jax.grad(lambda p: jnp.sum(policy.apply(p, features).sample(jax.random.key(2)))))(params)
    assert all(np.any(x != 0) and np.all(np.isfinite(x)) for x in jax.tree.leaves(gradients))

  def test_wrong_settings_are_refused(self):
    for wrong in ({'init_std': 0.0}, {'min_std': -1.0}, {'mean_scale': 0.0}):
      with pytest.raises(ValueError, match=next(iter(wrong))):
        _init(_policy(**wrong))

  def test_gin_configures_the_factory_and_keeps_the_names_of_parameters(self):
    gin.clear_config()
    gin.parse_config('SquashedGaussianPolicy.hidden_sizes = (16, 16)\nSquashedGaussianPolicy.init_std = 0.5')
    policy = squashed_gaussian.make_policy(2, gin.get_configurable('SquashedGaussianPolicy'))
    params = _init(policy)
    distribution = jax.jit(policy.apply)(params, np.zeros([4], np.float32))
    gin.clear_config()
    np.testing.assert_allclose(distribution.std, 0.5 + 1e-4, rtol=1e-5)
    # A checkpoint made without gin fits.
    assert jax.tree.structure(params) == jax.tree.structure(_init(_policy()))
