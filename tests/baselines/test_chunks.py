"""Networks that see images in chunks: the same results, in less memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.baselines import builder
from lambda_kit.baselines import gaussian
from lambda_kit.baselines import surrogates
from lambda_kit.baselines import trust_region
from lambda_kit.environments import grid_cmdp
from lambda_kit.models import encoders

_NARROW = dict(hidden_sizes=(8,), image_factory=functools.partial(encoders.ImageEncoder, depth=2, kernels=(4, 4)))
_SIZES = (4, 100)  # Images of a chunk: four chunks, the last of which is not full, and all images at once.


def _networks(chunk_size):
  environment = grid_cmdp.GridCmdp(seed=0, observations=('image', 'vector'))
  return gaussian.make_networks(environment, functools.partial(gaussian.GaussianPolicy, **_NARROW),
                                functools.partial(gaussian.ObservationCritic, **_NARROW), chunk_size)


def _observations(networks, *leading):
  rng = np.random.default_rng(0)
  return {name: rng.integers(0, 256, (*leading, *spec.shape)).astype(spec.dtype)
          for name, spec in networks.observation_spec.items()}


def test_values_of_rollouts_are_those_of_all_images_at_once():
  chunked, whole = (_networks(size) for size in _SIZES)
  params, observations = whole.critics.init(jax.random.PRNGKey(0)), _observations(whole, 7, 2)
  values = jax.jit(chunked.critics.apply)(params, observations)
  assert values.shape == (7, 2, 2)
  np.testing.assert_allclose(values, whole.critics.apply(params, observations), rtol=1e-4, atol=1e-5)


def test_gradients_and_fisher_products_are_those_of_all_images_at_once():
  results = []
  for size in _SIZES:
    networks = _networks(size)
    observations = _observations(networks, 14)
    params, unflatten = jax.flatten_util.ravel_pytree(networks.policy.init(jax.random.PRNGKey(0)))
    outputs = lambda params: networks.policy.apply(unflatten(params), observations)  # pylint: disable=cell-var-from-loop
    kl = functools.partial(surrogates.mean_kl, jnp.ones(14))
    gradient = jax.jit(jax.grad(lambda params: jnp.sum(jnp.sin(outputs(params).mean))))(params)  # pylint: disable=cell-var-from-loop
    product = jax.jit(lambda x: trust_region.fisher_product(outputs, kl, params, 0.1)(x))(gradient)  # pylint: disable=cell-var-from-loop
    results.append((gradient, product))
  for chunked, whole in zip(*results):
    assert np.abs(whole).max() > 0
    np.testing.assert_allclose(chunked, whole, rtol=1e-3, atol=1e-4 * np.abs(whole).max())


def test_memory_does_not_grow_with_the_number_of_images():
  temporary = {}
  for chunk_size in (20, 1000):
    networks = _networks(chunk_size)
    params = networks.policy.init(jax.random.PRNGKey(0))
    loss = lambda params, observations: jnp.mean(networks.policy.apply(params, observations).mean**2)  # pylint: disable=cell-var-from-loop
    shapes = jax.eval_shape(lambda: _observations(networks, 200))  # pylint: disable=cell-var-from-loop
    compiled = jax.jit(jax.grad(loss)).lower(params, shapes).compile()
    temporary[chunk_size] = compiled.memory_analysis().temp_size_in_bytes
  assert temporary[20] < temporary[1000] / 3


def test_a_chunk_has_at_least_one_image():
  with pytest.raises(ValueError, match='image_chunk_size = 0'):
    builder.OnPolicyAgent(25.0, image_chunk_size=0)
