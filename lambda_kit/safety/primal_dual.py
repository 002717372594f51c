"""Gradient ascent on the multipliers of the plain Lagrangian (eq. 5)."""

from collections.abc import Sequence
from typing import NamedTuple

import gin
from lambda_kit import core
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.safety import lagrangian


class PrimalDualState(NamedTuple):
  multiplier: types.Array  # [C]


@gin.register
@ranges.checked
class PrimalDual(core.ConstraintSolver[PrimalDualState]):
  """Takes gradient steps lambda^i <- max(0, lambda^i + learning_rate (J^i - d^i)).

  Args:
    initial_multiplier: For all constraints or for each.
    learning_rate: With the default and a violation of 20 a multiplier gains 0.2 in 1,000 steps.
  """

  display_name = 'primal-dual'

  def __init__(
    self,
    initial_multiplier: ranges.NotNegative | Sequence[ranges.NotNegative] = 1e-6,
    learning_rate: ranges.Positive = 1e-5,
  ):
    self._initial_multiplier = initial_multiplier
    self._learning_rate = learning_rate

  def init(self, num_constraints: int) -> PrimalDualState:
    return PrimalDualState(lagrangian.initial_multipliers(self._initial_multiplier, num_constraints))

  def penalty(self, state: PrimalDualState, cost_values: types.Array, budgets: types.Array) -> types.Array:
    return lagrangian.penalty(state.multiplier, cost_values, budgets)

  def update(self, state: PrimalDualState, cost_values: types.Array, budgets: types.Array) -> PrimalDualState:
    return PrimalDualState(lagrangian.ascend(state.multiplier, self._learning_rate, cost_values, budgets))

  def multipliers(self, state: PrimalDualState) -> types.Array:
    return state.multiplier
