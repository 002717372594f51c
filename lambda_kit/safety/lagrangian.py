"""What the solvers share: the multipliers' initial values, their projected step, and the plain Lagrangian."""

from collections.abc import Sequence

import chex
import jax.numpy as jnp
import numpy as np

from lambda_kit import types


def check_initial(value: float | Sequence[float]) -> np.ndarray:
  """Refuses multipliers that are negative or not finite. Takes one number or C of them."""
  array = np.asarray(value, np.float32)
  if array.ndim > 1 or not np.all(np.isfinite(array) & (array >= 0)):
    raise ValueError(f'Initial multipliers must be one number or one for each constraint, not negative, got {value}.')
  return array


def initial_multipliers(value: np.ndarray, num_constraints: int) -> types.Array:
  """Multipliers [C], all equal to `value` [] or given by it [C]."""
  if value.ndim == 1 and len(value) != num_constraints:
    raise ValueError(f'{num_constraints} constraints, but {len(value)} initial multipliers: {value.tolist()}.')
  return jnp.asarray(np.broadcast_to(value, (num_constraints,)))


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
