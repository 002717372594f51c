"""Activations against those of JAX."""

import jax
import jax.numpy as jnp
import numpy as np

import gin
from lambda_kit.models import activations


def test_elu_and_its_gradient_are_those_of_jax():
  x = jnp.concatenate([jnp.linspace(-10.0, 10.0, 1001), jnp.array([-1e30, -1e-30, 1e-30, 200.0, 1e30])])
  gradient = lambda function: jax.vmap(jax.grad(function))(x)
  np.testing.assert_allclose(activations.elu(x), jax.nn.elu(x), rtol=1e-6, atol=1e-7)
  np.testing.assert_allclose(gradient(activations.elu), gradient(jax.nn.elu), rtol=1e-6, atol=1e-7)


def test_not_a_number_stays_one():
  assert np.isnan(activations.elu(jnp.nan))
  assert np.isnan(jax.grad(activations.elu)(jnp.nan))


def test_gin_files_can_bind_them():
  assert gin.get_configurable('elu')(1.0) == 1.0
  assert gin.get_configurable('jax.nn.relu')(-1.0) == 0.0
