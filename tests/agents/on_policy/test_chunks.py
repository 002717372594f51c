"""Networks that see images in chunks: the same results, in less memory."""

import functools

import jax
from jax import flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.agents.on_policy import builder
from lambda_kit.agents.on_policy import gaussian
from lambda_kit.agents.on_policy import surrogates
from lambda_kit.agents.on_policy import trust_region
from lambda_kit.environments import grid_cmdp
from lambda_kit.models import encoders
from tests.fakes import specs

_NARROW = dict(hidden_sizes=(8,), image_factory=functools.partial(encoders.ImageEncoder, depth=2, kernels=(4, 4)))
_SIZES = (4, 100)  # Images of a chunk: four chunks, the last of which is not full, and all images at once.


def _networks(chunk_size):
  environment = grid_cmdp.GridCmdp(seed=0, observations=('image', 'vector'))
  return gaussian.make_networks(
    specs.of(environment),
    functools.partial(gaussian.GaussianPolicy, **_NARROW),
    functools.partial(gaussian.ObservationCritic, **_NARROW),
    chunk_size,
  )


def _observations(networks, *leading):
  rng = np.random.default_rng(0)
  return {
    name: rng.integers(0, 256, (*leading, *spec.shape)).astype(spec.dtype)
    for name, spec in networks.observation_spec.items()
  }


def test_values_of_rollouts_are_those_of_all_images_at_once():
  chunked, whole = (_networks(size) for size in _SIZES)
  params, observations = whole.critics.init(jax.random.PRNGKey(0)), _observations(whole, 7, 2)
  values = jax.jit(chunked.critics.apply)(params, observations)
  assert values.shape == (7, 2, 2)
  np.testing.assert_allclose(values, whole.critics.apply(params, observations), rtol=1e-4, atol=1e-5)


def _gradient_and_product(chunk_size):
  networks = _networks(chunk_size)
  observations = _observations(networks, 14)
  params, unflatten = flatten_util.ravel_pytree(networks.policy.init(jax.random.PRNGKey(0)))
  outputs = lambda params: networks.policy.apply(unflatten(params), observations)
  kl = functools.partial(surrogates.mean_kl, jnp.ones(14))
  gradient = jax.jit(jax.grad(lambda params: jnp.sum(jnp.sin(outputs(params).mean))))(params)
  return gradient, jax.jit(lambda vector: trust_region.fisher_product(outputs, kl, params, 0.1)(vector))(gradient)


def test_gradients_and_fisher_products_are_those_of_all_images_at_once():
  for chunked, whole in zip(*map(_gradient_and_product, _SIZES)):
    assert np.abs(whole).max() > 0
    np.testing.assert_allclose(chunked, whole, rtol=1e-3, atol=1e-4 * np.abs(whole).max())


def _temporary_bytes(chunk_size):
  networks = _networks(chunk_size)
  params = networks.policy.init(jax.random.PRNGKey(0))
  loss = lambda params, observations: jnp.mean(networks.policy.apply(params, observations).mean ** 2)
  shapes = jax.eval_shape(lambda: _observations(networks, 200))
  return jax.jit(jax.grad(loss)).lower(params, shapes).compile().memory_analysis().temp_size_in_bytes


def test_memory_does_not_grow_with_the_number_of_images():
  assert _temporary_bytes(20) < _temporary_bytes(1000) / 3


def test_a_chunk_has_at_least_one_image():
  with pytest.raises(ValueError, match='image_chunk_size = 0'):
    builder.OnPolicyAgent(image_chunk_size=0)
