"""Natural gradients within a trust region (Schulman et al., 2015), without ever forming the Fisher matrix.

P is the number of a policy's parameters; vectors [P] are parameters flattened by `jax.flatten_util.ravel_pytree`.
"""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp

from lambda_kit import types

Product = Callable[[types.Array], types.Array]  # Multiplies a vector [P] by a matrix, [P].


def fisher_product(
  outputs: Callable[[types.Array], Any], kl: Callable[[Any, Any], types.Array], params: types.Array, damping: float
) -> Product:
  """Multiplies vectors by H + damping I, where H is the Hessian of the mean KL divergence from the current policy.

  With J the Jacobian of a policy's outputs (means and standard deviations at all observations) and M the Hessian of
  the KL divergence in these outputs, H = J^T M J exactly: at the current policy the gradient of the KL divergence is
  0, so second derivatives of the outputs drop out. J^T u is a vjp. J v is the vjp of that linear function of u rather
  than a jvp, since our convolutions (`models/convolutions.py`) define gradients but no forward derivatives.

  Args:
    outputs: Maps parameters [P] to the outputs, a pytree.
    kl: Maps the outputs of two policies to the mean KL divergence between them, [].
    params: The current parameters, [P].
    damping: Added to the diagonal.
  """
  chex.assert_rank(params, 1)
  current, times_transposed = jax.vjp(outputs, params)
  _, times_jacobian = jax.vjp(lambda cotangent: times_transposed(cotangent)[0], jax.tree.map(jnp.zeros_like, current))

  def product(vector: types.Array) -> types.Array:
    (tangent,) = times_jacobian(vector)
    _, curved = jax.jvp(jax.grad(lambda new: kl(new, current)), (current,), (tangent,))
    return times_transposed(curved)[0] + damping * vector

  return product


def conjugate_gradients(
  product: Product, target: types.Array, iterations: int, tolerance: float = 1e-10
) -> types.Array:
  """Approximates the solution x [P] of H x = target [P] for a positive definite H.

  Stops early, before rounding takes over, once the squared residual is `tolerance` times that of x = 0.
  """
  chex.assert_rank(target, 1)
  start = jnp.vdot(target, target)

  def unfinished(carry):
    i, _, _, _, square = carry
    return (i < iterations) & (square > tolerance * start)

  def body(carry):
    i, x, residual, direction, square = carry
    image = product(direction)
    alpha = square / jnp.vdot(direction, image)
    x, residual = x + alpha * direction, residual - alpha * image
    new_square = jnp.vdot(residual, residual)
    return i + 1, x, residual, residual + new_square / square * direction, new_square

  return jax.lax.while_loop(unfinished, body, (0, jnp.zeros_like(target), target, target, start))[1]


def backtrack(is_acceptable: Callable[[types.Array], types.Array], iterations: int, shrinkage: float) -> types.Array:
  """Tries the fractions 1, s, s^2, ... of a step, at most `iterations`. Returns the first acceptable one, or 0, []."""

  def body(carry):
    i, fraction, _ = carry
    candidate = shrinkage**i
    accepted = is_acceptable(candidate)
    return i + 1, jnp.where(accepted, candidate, fraction), accepted

  start = (jnp.zeros((), jnp.int32), jnp.zeros(()), jnp.array(False))
  return jax.lax.while_loop(lambda carry: (carry[0] < iterations) & ~carry[2], body, start)[1]


def take(params: types.Array, step: types.Array, fraction: types.Array) -> types.Array:
  """Parameters [P] after the accepted fraction of a step [P]. A rejected step, finite or not, changes nothing."""
  return jnp.where(fraction > 0.0, params + fraction * step, params)
