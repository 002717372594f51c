"""What the solvers share: the multipliers' initial values, their projected step, and the plain Lagrangian."""

from collections.abc import Sequence

import chex
import jax.numpy as jnp
import numpy as np

from lambda_kit import errors
from lambda_kit import types


def initial_multipliers(value: float | Sequence[float], num_constraints: int) -> types.Array:
  """Multipliers [C], all equal to `value` or given by it."""
  if np.ndim(value) == 1 and np.size(value) != num_constraints:
    raise errors.SetupError(
      f'The task has {num_constraints} constraints, and the solver {np.size(value)} initial multipliers, {value}: bind '
      'initial_multiplier to one number for all, or to one for each.'
    )
  return jnp.asarray(np.broadcast_to(np.asarray(value, np.float32), (num_constraints,)))


def ascend(multiplier: types.Array, rate: types.Array, cost_values: types.Array, budgets: types.Array) -> types.Array:
  """max(0, lambda^i + rate (J^i - d^i)), [C]. A multiplier whose step would not be finite stays where it is."""
  chex.assert_rank([multiplier, cost_values, budgets], 1)
  chex.assert_equal_shape([multiplier, cost_values, budgets])
  proposal = jnp.maximum(multiplier + rate * (cost_values - budgets), 0.0)
  return jnp.where(jnp.isfinite(proposal) & jnp.isfinite(cost_values), proposal, multiplier)


def penalty(multiplier: types.Array, cost_values: types.Array, budgets: types.Array) -> types.Array:
  """sum_i lambda^i (J^i - d^i), [] (eq. 5)."""
  chex.assert_rank([multiplier, cost_values, budgets], 1)
  chex.assert_equal_shape([multiplier, cost_values, budgets])
  return jnp.sum(multiplier * (cost_values - budgets))
