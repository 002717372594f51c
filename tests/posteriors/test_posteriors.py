"""What all posteriors have in common."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gin
from lambda_kit.models import optimizers
from lambda_kit.posteriors import ensemble
from lambda_kit.posteriors import multiswag
from lambda_kit.posteriors import point
from lambda_kit.posteriors import swag
from lambda_kit.posteriors import variational
from tests.fakes import posteriors as fakes

_SIMPLE = (point.Point, swag.Swag, ensemble.Ensemble, variational.Variational)
_ENSEMBLES = (ensemble.Ensemble, multiswag.MultiSwag)
_CLASSES = (*_SIMPLE, multiswag.MultiSwag)
_NUM_MODELS = 3


def _make(cls, select=fakes.select, **settings):
  if cls is multiswag.MultiSwag:
    rate = {'learning_rate': settings.pop('learning_rate')} if 'learning_rate' in settings else {}
    return multiswag.MultiSwag(
      select,
      lambda select, learning_rate: _make(ensemble.Ensemble, select, learning_rate=learning_rate, **settings),
      lambda select: _make(swag.Swag, select, **rate),
    )
  if cls is swag.Swag:  # A snapshot after each update, so that samples differ after three.
    settings = dict(burn_in=0, period=1, num_models=_NUM_MODELS) | settings
  if cls is ensemble.Ensemble:
    settings = dict(bootstrap=False, prior_scale=0.0) | settings  # The parameters here are no networks.
  return cls(select, **settings)


def _is_guard(node):
  return isinstance(node, optax.ApplyIfFiniteState)


@functools.cache
def _jitted(cls):
  return fakes.Jitted(_make(cls, clip_norm=20.0))


@pytest.mark.parametrize('cls', _CLASSES)
@pytest.mark.parametrize('wrap', [lambda f: f, jax.jit])
def test_state_is_one_tree_of_buffers_that_can_all_be_donated(cls, wrap):
  posterior = _make(cls)
  state = wrap(lambda key: posterior.init(key, fakes.init_params))(jax.random.key(0))
  leaves = jax.tree.leaves(state)
  assert all(isinstance(leaf, jax.Array) for leaf in leaves)
  assert len({leaf.unsafe_buffer_pointer() for leaf in leaves}) == len(leaves)
  touch = jax.jit(
    lambda state: jax.tree.map(lambda leaf: leaf | True if leaf.dtype == bool else leaf + 1, state), donate_argnums=0
  )
  touch(state)  # Raises if a buffer is donated twice.
  assert all(leaf.is_deleted() for leaf in leaves)


@pytest.mark.parametrize('cls', _CLASSES)
def test_types_and_shapes_stay(cls):
  posterior = _make(cls)
  state = jax.eval_shape(lambda key: posterior.init(key, fakes.init_params), jax.random.key(0))
  loss = fakes.EnsembleLoss(fakes.noisy_loss) if cls in _ENSEMBLES else fakes.noisy_loss
  new_state, _, _ = jax.eval_shape(lambda state, key: posterior.update(state, loss, key), state, jax.random.key(0))
  describe = lambda tree: jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype), leaf.weak_type), tree)
  assert describe(state) == describe(new_state)  # A scan over updates and a checkpoint depend on it.
  assert {str(leaf.dtype) for leaf in jax.tree.leaves(state)} <= {'float32', 'int32', 'bool'}


@pytest.mark.parametrize('cls', _CLASSES)
def test_samples_are_stacked_and_the_mean_is_complete(cls):
  posterior = _jitted(cls)
  state, metrics = posterior.train(_NUM_MODELS)
  samples = posterior.sample(state, jax.random.key(2), 5)
  shapes = lambda tree: jax.tree.map(jnp.shape, tree)
  params = fakes.init_params(jax.random.key(0))
  assert shapes(samples) == jax.tree.map(lambda leaf: (5, *leaf.shape), fakes.select(params))
  assert shapes(posterior.mean(state)) == shapes(params)
  assert {'loss', 'learning_rate', 'gradient_norm', 'skipped_updates', 'posterior_spread'} <= set(metrics)
  assert all(jnp.shape(value) == () for value in metrics.values())


@pytest.mark.parametrize('cls', _CLASSES[1:])
def test_samples_are_all_different_and_decided_by_the_key(cls):
  posterior = _jitted(cls)
  state, metrics = posterior.train(_NUM_MODELS)
  sample = lambda seed: fakes.to_vectors(posterior.sample(state, jax.random.key(seed), 5))
  samples = sample(2)
  for i in range(5):
    for j in range(i):
      assert np.all(samples[i] != samples[j])  # In each of the weights.
  np.testing.assert_array_equal(samples, sample(2))
  assert not np.array_equal(samples, sample(3))
  assert metrics['posterior_spread'] > 0


@pytest.mark.parametrize('cls', [cls for cls in _CLASSES if cls not in _ENSEMBLES])
def test_a_scale_multiplies_the_covariance(cls):
  posterior = _jitted(cls)
  state, _ = posterior.train(_NUM_MODELS)
  num_samples = 2_000
  sample = lambda scale: fakes.to_vectors(posterior.sample(state, jax.random.key(2), num_samples, scale))
  own = sample(None)
  mean = fakes.to_vector(posterior.mean(state))
  np.testing.assert_allclose(sample(0.0), np.tile(mean, (num_samples, 1)), rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(sample(1.0), own, rtol=1e-5, atol=1e-6)
  covariance = np.cov(own, rowvar=False)
  for scale in (0.25, 9.0):  # From the same noise, so that the empirical covariance is linear to the last digits.
    found = np.cov(sample(scale), rowvar=False)
    np.testing.assert_allclose(found, scale * covariance, rtol=1e-3, atol=1e-4 * scale * np.max(covariance))
  assert np.any(covariance) == (cls is not point.Point)


def test_the_binding_and_the_argument_scale_swags_covariance_together():
  bound = fakes.Jitted(_make(swag.Swag, scale=4.0, clip_norm=20.0))
  state, _ = _jitted(swag.Swag).train(_NUM_MODELS)
  samples = [
    fakes.to_vectors(posterior.sample(state, jax.random.key(2), 3, scale))
    for posterior, scale in ((bound, 2.0), (_jitted(swag.Swag), 8.0), (bound, None), (_jitted(swag.Swag), 4.0))
  ]
  np.testing.assert_allclose(samples[0], samples[1], rtol=1e-5)
  np.testing.assert_allclose(samples[2], samples[3], rtol=1e-5)


@pytest.mark.parametrize('cls', _CLASSES)
def test_a_gradient_that_is_not_finite_leaves_all_but_the_counters_as_it_was(cls):
  posterior = _jitted(cls)
  state, _ = posterior.train(_NUM_MODELS)
  after, _, metrics = posterior.update(state, jax.random.key(3), factor=np.nan)
  assert metrics['skipped_updates'] == 1 == optimizers.consecutive_skips(after)
  forget = lambda state: jax.tree.map(
    lambda node: node.inner_state if _is_guard(node) else node, state, is_leaf=_is_guard
  )
  jax.tree.map(np.testing.assert_array_equal, forget(after), forget(state))
  after, _, metrics = posterior.update(after, jax.random.key(3))
  assert metrics['skipped_updates'] == 1 and optimizers.consecutive_skips(after) == 0
  assert not np.array_equal(fakes.to_vector(posterior.mean(after)), fakes.to_vector(posterior.mean(state)))


@pytest.mark.parametrize('cls', _CLASSES)
def test_clipping_reaches_the_optimiser(cls):
  posterior = _jitted(cls)
  state, _, metrics = posterior.update(posterior.init(jax.random.key(0)), jax.random.key(1), factor=1e6)
  assert metrics['gradient_norm'] > 1e6
  # Adam's first moment is (1 - 0.9) times the clipped gradient.
  moments = optax.tree.get(state, 'mu')
  if cls in _ENSEMBLES:  # The reference's, and each member's.
    moments, members = moments
    np.testing.assert_allclose(jax.vmap(optax.tree.norm)(members), np.full(5, 0.1 * 20.0), rtol=1e-4)
  assert optax.tree.norm(moments) == pytest.approx(0.1 * 20.0, rel=1e-4)


@pytest.mark.parametrize('cls', [swag.Swag, ensemble.Ensemble, multiswag.MultiSwag])
def test_haiku_parameters_learn_in_a_scan(cls):
  network = fakes.haiku_network()
  posterior = _make(cls, fakes.select_haiku, learning_rate=1e-2)

  @jax.jit
  def train(key):
    x = jax.random.normal(key, (64, 3))
    y = jnp.sum(x, axis=1, keepdims=True)

    def loss(params, key):
      prediction = network.apply(params, x)
      return jnp.mean(jnp.square(prediction - y)), prediction

    def step(state, key):
      given = fakes.EnsembleLoss(loss) if cls in _ENSEMBLES else loss
      state, output, metrics = posterior.update(state, given, key)
      assert (output['aux'] if cls in _ENSEMBLES else output).shape == (64, 1)
      return state, metrics['loss']

    state = posterior.init(key, lambda key: network.init(key, x))
    state, losses = jax.lax.scan(step, state, jax.random.split(key, 150))
    mean = posterior.mean(state)
    # Samples fit into complete parameters by their names.
    sample_losses, _ = jax.vmap(lambda sample: loss({**mean, **sample}, key))(posterior.sample(state, key, 3))
    return losses, loss(mean, key)[0], sample_losses

  losses, mean_loss, sample_losses = train(jax.random.key(1))
  assert losses[-1] < 0.1 * losses[0] and mean_loss < 0.1 * losses[0]
  assert np.all(sample_losses < 0.3 * losses[0])


@pytest.mark.parametrize('cls', _SIMPLE)
def test_gin_binds_all_but_the_selection(cls):
  try:
    gin.parse_config(f'{cls.__name__}.clip_norm = -3.0')
    with pytest.raises(ValueError, match=r'clip_norm = -3\.0 should be a number, more than 0'):
      gin.get_configurable(cls)(fakes.select)
    assert isinstance(cls(fakes.select), cls)  # Called from Python, it ignores bindings.
  finally:
    gin.clear_config()


def test_a_point_estimate_is_its_own_samples():
  posterior = _jitted(point.Point)
  state, metrics = posterior.train(2)
  samples = fakes.to_vectors(posterior.sample(state, jax.random.key(2), 3))
  np.testing.assert_array_equal(samples, np.tile(fakes.to_vector(state.params), (3, 1)))
  assert metrics['posterior_spread'] == 0 and metrics['learning_rate'] == pytest.approx(1e-4)
