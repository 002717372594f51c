"""No solver: costs are measured and ignored, as in the paper's unsafe variant."""

from typing import NamedTuple

import chex
import jax.numpy as jnp

import gin
from lambda_kit import core
from lambda_kit import types


class UnconstrainedState(NamedTuple):
  multiplier: types.Array  # [C], always 0.


@gin.register
class Unconstrained(core.ConstraintSolver[UnconstrainedState]):
  """Maximises the objective alone."""

  display_name = 'unsafe'

  def init(self, num_constraints: int) -> UnconstrainedState:
    return UnconstrainedState(jnp.zeros([num_constraints]))

  def penalty(self, state: UnconstrainedState, cost_values: types.Array, budgets: types.Array) -> types.Array:
    chex.assert_rank([cost_values, budgets], 1)
    chex.assert_equal_shape([cost_values, budgets, state.multiplier])
    return jnp.zeros([])

  def update(self, state: UnconstrainedState, cost_values: types.Array, budgets: types.Array) -> UnconstrainedState:
    del cost_values, budgets
    return state

  def multipliers(self, state: UnconstrainedState) -> types.Array:
    return state.multiplier
