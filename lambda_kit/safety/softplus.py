"""Multipliers behind a softplus, learned by Adam (Ray, Achiam and Amodei, 2019)."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

import gin
from lambda_kit import core
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.safety import lagrangian


class SoftplusState(NamedTuple):
  raw: types.Array  # [C], lambda = softplus(raw).
  optimizer: optax.OptState


@gin.register
@ranges.checked
class SoftplusLagrangian(core.ConstraintSolver[SoftplusState]):
  """Takes steps of Adam on the loss -raw^i (J^i - d^i), with lambda^i = softplus(raw^i).

  The loss is in the raw parameter, not in the multiplier: a multiplier close to 0, where softplus is flat, rises as
  fast as any other.

  Args:
    initial_multiplier: Positive.
    learning_rate: Adam's first steps have this size, whatever the violation.
  """

  def __init__(self, initial_multiplier: ranges.Positive = 1.0, learning_rate: ranges.Positive = 5e-2):
    self._initial = float(np.log(np.expm1(initial_multiplier)))
    self._adam = optax.adam(learning_rate)

  def init(self, num_constraints: int) -> SoftplusState:
    raw = jnp.full((num_constraints,), self._initial)
    return SoftplusState(raw, self._adam.init(raw))

  def penalty(self, state: SoftplusState, cost_values: types.Array, budgets: types.Array) -> types.Array:
    return lagrangian.penalty(self.multipliers(state), cost_values, budgets)

  def update(self, state: SoftplusState, cost_values: types.Array, budgets: types.Array) -> SoftplusState:
    chex.assert_rank([cost_values, budgets], 1)
    chex.assert_equal_shape([cost_values, budgets, state.raw])
    change, optimizer = self._adam.update(budgets - cost_values, state.optimizer)
    proposal = SoftplusState(optax.apply_updates(state.raw, change), optimizer)
    finite = jnp.all(jnp.isfinite(cost_values))
    return jax.tree.map(lambda new, old: jnp.where(finite, new, old), proposal, state)

  def multipliers(self, state: SoftplusState) -> types.Array:
    return jax.nn.softplus(state.raw)
