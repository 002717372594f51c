"""Activations that gin files can bind, e.g. `VectorEncoder.activation = @jax.nn.relu`."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

import gin
from lambda_kit import types

Activation = Callable[[types.Array], types.Array]

for _activation in (jax.nn.relu, jax.nn.silu, jax.nn.tanh):
  gin.external_configurable(_activation, module='jax.nn')


@gin.register
@jax.custom_vjp
def elu(x: types.Array) -> types.Array:
  """x where it is positive, else e^x - 1; any shape.

  `jax.nn.elu` to float precision, and faster on CPUs, where XLA has no quick expm1. The gradient is computed from the
  output, so that the backward pass stores nothing else.
  """
  return jnp.where(x > 0, x, jnp.exp(x) - 1.0)


def _elu_forward(x: types.Array) -> tuple[types.Array, types.Array]:
  value = elu(x)
  return value, value


def _elu_backward(value: types.Array, gradient: types.Array) -> tuple[types.Array]:
  return (gradient * (jnp.minimum(value, 0.0) + 1.0),)


elu.defvjp(_elu_forward, _elu_backward)
