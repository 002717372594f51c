"""Multipliers set by a PID controller (Stooke, Achiam and Abbeel 2020, algorithm 2)."""

from typing import NamedTuple

import chex
import jax.numpy as jnp

import gin
from lambda_kit import core
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.safety import lagrangian


class PidState(NamedTuple):
  multiplier: types.Array  # [C]
  integral: types.Array  # [C], sum of J - d, kept from falling below 0.
  smoothed: types.Array  # [C], exponential average of J.
  started: types.Array  # [C] bool, whether a finite J was seen.
  updates: types.Array  # [] int32.


@gin.register
@ranges.checked
class PidLagrangian(core.ConstraintSolver[PidState]):
  """Holds each cost value at its budget as a controller would.

    Delta = J - d;  I <- max(0, I + Delta);  D = max(0, J - J_previous)
    lambda = max(0, kp Delta + ki I + kd D)

  The integral alone (kp = kd = 0) is primal-dual ascent. The other terms damp its oscillation: they react to a
  violation before the integral has built up, and to costs that rise, but not to costs that fall. They see J through an
  exponential average, since J is estimated from one batch. The original also divides the objective by 1 + lambda; here
  that is left to the optimiser of the policy.

  Args:
    kp: Proportional gain.
    ki: Integral gain, for each step.
    kd: Derivative gain.
    smoothing: Weight of the past in the average that the proportional and the derivative term see; 0 for none.
    ramp: Updates over which multipliers rise from 0 to what the gains ask for. A multiplier that is ahead of the policy
      teaches it to stand still.
  """

  display_name = 'PID'

  def __init__(
    self,
    kp: ranges.NotNegative = 1e-2,
    ki: ranges.NotNegative = 1e-5,
    kd: ranges.NotNegative = 1e-2,
    smoothing: ranges.ShareBelowOne = 0.95,
    ramp: ranges.Whole = 0,
  ):
    self._kp, self._ki, self._kd, self._smoothing, self._ramp = kp, ki, kd, smoothing, ramp

  def init(self, num_constraints: int) -> PidState:
    zeros = jnp.zeros([num_constraints])
    return PidState(
      multiplier=zeros,
      integral=zeros,
      smoothed=zeros,
      started=jnp.zeros([num_constraints], bool),
      updates=jnp.zeros([], jnp.int32),
    )

  def penalty(self, state: PidState, cost_values: types.Array, budgets: types.Array) -> types.Array:
    return lagrangian.penalty(state.multiplier, cost_values, budgets)

  def update(self, state: PidState, cost_values: types.Array, budgets: types.Array) -> PidState:
    chex.assert_rank([cost_values, budgets], 1)
    chex.assert_equal_shape([cost_values, budgets, state.multiplier])
    # The first cost value is its own average and its own predecessor: a start is not a rise.
    previous = jnp.where(state.started, state.smoothed, cost_values)
    smoothed = self._smoothing * previous + (1.0 - self._smoothing) * cost_values
    integral = jnp.maximum(state.integral + cost_values - budgets, 0.0)
    rise = jnp.maximum(smoothed - previous, 0.0)
    control = self._kp * (smoothed - budgets) + self._ki * integral + self._kd * rise
    updates = state.updates + 1
    control *= jnp.minimum(updates / max(self._ramp, 1), 1.0)
    finite = jnp.isfinite(cost_values) & jnp.isfinite(control)
    keep = lambda new, old: jnp.where(finite, new, old)
    return PidState(
      multiplier=keep(jnp.maximum(control, 0.0), state.multiplier),
      integral=keep(integral, state.integral),
      smoothed=keep(smoothed, state.smoothed),
      started=state.started | finite,
      updates=updates,
    )

  def multipliers(self, state: PidState) -> types.Array:
    return state.multiplier
