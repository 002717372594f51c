"""The augmented Lagrangian with proximal relaxation (section 4.1; Nocedal and Wright 2006, chapter 17)."""

from collections.abc import Sequence
from typing import NamedTuple

import chex
import jax.numpy as jnp

import gin
from lambda_kit import core
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.safety import lagrangian


class AugmentedLagrangianState(NamedTuple):
  multiplier: types.Array  # [C], lambda_k^i.
  penalty_factor: types.Array  # [], mu_k.


@gin.register
@ranges.checked
class AugmentedLagrangian(core.ConstraintSolver[AugmentedLagrangianState]):
  """The paper's solver.

  The multipliers minimise -lambda (J^i - d^i) + (lambda - lambda_k)^2 / (2 mu_k) over lambda >= 0. This is the proximal
  term that eqs. 6 and 8 follow from; the paper prints it without the 2.

  With the defaults lambda gains 1e-7 in a step at a violation of 20, and mu grows by e in 100,000 steps: a schedule for
  runs of that length. Shorter runs need larger values.

  Args:
    initial_multiplier: lambda_0, for all constraints or for each.
    initial_penalty_factor: mu_0.
    growth: The penalty factor grows by the factor 1 + growth at each step.
    max_penalty_factor: The penalty factor stops growing here.
  """

  def __init__(
    self,
    initial_multiplier: ranges.NotNegative | Sequence[ranges.NotNegative] = 1e-6,
    initial_penalty_factor: ranges.Positive = 5e-9,
    growth: ranges.NotNegative = 1e-5,
    max_penalty_factor: ranges.PositiveOrInfinite = float('inf'),
  ):
    if initial_penalty_factor > max_penalty_factor:
      raise errors.SetupError(
        f'AugmentedLagrangian.initial_penalty_factor = {initial_penalty_factor} must be at most '
        f'AugmentedLagrangian.max_penalty_factor = {max_penalty_factor}.'
      )
    self._initial_multiplier = initial_multiplier
    self._initial_penalty_factor = initial_penalty_factor
    self._growth = growth
    self._max_penalty_factor = max_penalty_factor

  def init(self, num_constraints: int) -> AugmentedLagrangianState:
    return AugmentedLagrangianState(
      lagrangian.initial_multipliers(self._initial_multiplier, num_constraints),
      jnp.float32(self._initial_penalty_factor),
    )

  def penalty(self, state: AugmentedLagrangianState, cost_values: types.Array, budgets: types.Array) -> types.Array:
    """Eq. 8, summed over constraints: sum_i Psi^i. Its derivative is max(0, lambda^i + mu (J^i - d^i))."""
    chex.assert_rank([cost_values, budgets], 1)
    chex.assert_equal_shape([cost_values, budgets, state.multiplier])
    multiplier, penalty_factor = state
    # Both branches of eq. 8 at once: it switches where J - d = -lambda / mu, and is constant below.
    violation = jnp.maximum(cost_values - budgets, -multiplier / penalty_factor)
    return jnp.sum(multiplier * violation + penalty_factor / 2.0 * violation**2)

  def update(
    self, state: AugmentedLagrangianState, cost_values: types.Array, budgets: types.Array
  ) -> AugmentedLagrangianState:
    """Eq. 6, and the growth of mu."""
    return AugmentedLagrangianState(
      lagrangian.ascend(state.multiplier, state.penalty_factor, cost_values, budgets),
      jnp.minimum(state.penalty_factor * (1.0 + self._growth), self._max_penalty_factor),
    )

  def multipliers(self, state: AugmentedLagrangianState) -> types.Array:
    return state.multiplier
