"""The controller's three terms, one at a time."""

import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.safety import pid
from lambda_kit.safety import primal_dual


def _multipliers(solver, cost_values, budget=1.0):
  """The multiplier after each of the cost values of one constraint."""
  state, trace = solver.init(1), []
  for value in cost_values:
    state = solver.update(state, jnp.array([value]), jnp.array([budget]))
    trace.append(float(solver.multipliers(state)[0]))
  return trace


def test_proportional_term():
  solver = pid.PidLagrangian(kp=2.0, ki=0.0, kd=0.0, smoothing=0.0)
  assert _multipliers(solver, [2.0, 0.5, 4.0]) == [2, 0, 6]  # 2 (J - 1), not below 0.


def test_integral_does_not_fall_below_zero():
  solver = pid.PidLagrangian(kp=0.0, ki=1.0, kd=0.0, smoothing=0.0)
  # Sum of J - 1: 2, then 2 - 5 -> 0, then 0 + 1 (it would be -2 if it had been let fall).
  assert _multipliers(solver, [3.0, -4.0, 2.0]) == [2, 0, 1]


def test_integral_alone_is_primal_dual_ascent():
  values = np.random.default_rng(0).normal(1.0, 1.0, size=30)
  controlled = _multipliers(pid.PidLagrangian(kp=0.0, ki=0.1, kd=0.0, smoothing=0.0), values)
  ascended = _multipliers(primal_dual.PrimalDual(initial_multiplier=0.0, learning_rate=0.1), values)
  np.testing.assert_allclose(controlled, ascended, atol=1e-6)


def test_derivative_sees_rises_only_and_no_start():
  solver = pid.PidLagrangian(kp=0.0, ki=0.0, kd=1.0, smoothing=0.0)
  # No predecessor; rise of 3; fall; rise of 1.
  assert _multipliers(solver, [5.0, 8.0, 2.0, 3.0]) == [0, 3, 0, 1]


def test_smoothing():
  solver = pid.PidLagrangian(kp=1.0, ki=0.0, kd=10.0, smoothing=0.5)
  # Averages: 3, (3 + 7) / 2 = 5, (5 + 1) / 2 = 3. Proportional: 2, 4, 2. Derivative: 0, 10 * 2, 0.
  assert _multipliers(solver, [3.0, 7.0, 1.0]) == [2, 24, 2]


def test_all_terms():
  solver = pid.PidLagrangian(kp=1.0, ki=0.5, kd=2.0, smoothing=0.0)
  # J = 2: 1 + 0.5 * 1 + 0 = 1.5;  J = 4: 3 + 0.5 * 4 + 2 * 2 = 9;  J = 1: 0 + 0.5 * 4 + 0 = 2.
  assert _multipliers(solver, [2.0, 4.0, 1.0]) == [1.5, 9, 2]


def test_multipliers_rise_over_the_ramp():
  solver = pid.PidLagrangian(kp=2.0, ki=1.0, kd=0.0, smoothing=0.0, ramp=4)
  # Without a ramp 2 + n: at n = 1, ..., 4 a quarter more of it each, then all.
  assert _multipliers(solver, [2.0] * 5) == [3 / 4, 4 * 2 / 4, 5 * 3 / 4, 6, 7]


@pytest.mark.parametrize(
  'wrong', [{'kp': -1.0}, {'ki': -1.0}, {'kd': -1.0}, {'smoothing': 1.0}, {'smoothing': -0.1}, {'ramp': -1}]
)
def test_wrong_settings_are_refused(wrong):
  with pytest.raises(ValueError, match=next(iter(wrong))):
    pid.PidLagrangian(**wrong)


def test_a_learning_rate_must_be_positive():
  with pytest.raises(ValueError, match=r'PrimalDual\.learning_rate = 0 should be a finite number, more than 0\.'):
    primal_dual.PrimalDual(learning_rate=0)
