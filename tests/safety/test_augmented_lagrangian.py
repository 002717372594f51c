"""Equations 6 and 8 against numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.safety import augmented_lagrangian

# Two constraints, one in each branch, with mu = 0.5:
#   i = 1: lambda = 2, J = 7, d = 4:    lambda + mu (J - d) = 2 + 0.5 * 3 = 3.5 >= 0.
#   i = 2: lambda = 1, J = 4, d = 10:   lambda + mu (J - d) = 1 + 0.5 * (-6) = -2 < 0.
_STATE = augmented_lagrangian.AugmentedLagrangianState(jnp.array([2.0, 1.0]), jnp.float32(0.5))
_VALUES, _BUDGETS = jnp.array([7.0, 4.0]), jnp.array([4.0, 10.0])
_SOLVER = augmented_lagrangian.AugmentedLagrangian()


def _naive_penalty(multiplier, penalty_factor, violation):
  """Eq. 8 as it is printed, for one constraint."""
  if multiplier + penalty_factor * violation >= 0:
    return multiplier * violation + penalty_factor / 2 * violation**2
  return -(multiplier**2) / (2 * penalty_factor)


def test_penalty_by_hand():
  # Psi^1 = 2 * 3 + 0.5 / 2 * 3^2 = 8.25;  Psi^2 = -1^2 / (2 * 0.5) = -1.
  assert float(_SOLVER.penalty(_STATE, _VALUES, _BUDGETS)) == 8.25 - 1


def test_multiplier_step_by_hand():
  solver = augmented_lagrangian.AugmentedLagrangian(growth=0.25)
  state = solver.update(_STATE, _VALUES, _BUDGETS)
  assert state.multiplier.tolist() == [3.5, 0]
  assert float(state.penalty_factor) == 0.625  # 0.5 * 1.25.


def test_slope_is_the_next_multiplier():
  """d Psi / d J = max(0, lambda + mu (J - d)), which is the multiplier after a step."""
  slope = jax.grad(lambda values: _SOLVER.penalty(_STATE, values, _BUDGETS))(_VALUES)
  assert slope.tolist() == [3.5, 0]
  assert _SOLVER.update(_STATE, _VALUES, _BUDGETS).multiplier.tolist() == [3.5, 0]


@pytest.mark.parametrize('multiplier', [0.0, 1e-6, 0.3, 5.0])
@pytest.mark.parametrize('penalty_factor', [5e-9, 1e-3, 2.0])
def test_penalty_on_both_sides_of_the_switch(multiplier, penalty_factor):
  switch = -multiplier / penalty_factor
  state = augmented_lagrangian.AugmentedLagrangianState(jnp.array([multiplier]), jnp.float32(penalty_factor))
  penalise = jax.jit(jax.value_and_grad(lambda v: _SOLVER.penalty(state, v, jnp.zeros(1))))
  for violation in (-30.0, -1.0, 0.0, 2.0, 25.0, switch, 0.99 * switch, 1.01 * switch):
    penalty, slope = penalise(jnp.array([violation]))
    scale = multiplier**2 / penalty_factor + 1e-12  # Of the terms that cancel at the switch.
    assert float(penalty) == pytest.approx(
      _naive_penalty(multiplier, penalty_factor, violation), rel=1e-5, abs=1e-5 * scale
    )
    assert float(slope[0]) == pytest.approx(
      max(0, multiplier + penalty_factor * violation), rel=1e-4, abs=1e-6 * multiplier + 1e-12
    )


def test_penalty_is_continuous_at_the_switch():
  # lambda = 2, mu = 0.5: the switch is at J - d = -4, where both branches are -2^2 / (2 * 0.5) = -4.
  state = augmented_lagrangian.AugmentedLagrangianState(jnp.array([2.0]), jnp.float32(0.5))
  penalties = [float(_SOLVER.penalty(state, jnp.array([v]), jnp.zeros(1))) for v in (-4.001, -4.0, -3.999)]
  np.testing.assert_allclose(penalties, -4, atol=1e-5)


def test_a_value_that_is_not_a_number_shows_in_the_penalty():
  assert np.isnan(_SOLVER.penalty(_STATE, jnp.array([float('nan'), 1.0]), _BUDGETS))


def test_time_scales_of_the_paper():
  # One step at a violation of 20: 1e-6 + 5e-9 * 20 = 1.1e-6.
  state = _SOLVER.update(_SOLVER.init(1), jnp.array([45.0]), jnp.array([25.0]))
  assert float(state.multiplier[0]) == pytest.approx(1.1e-6)
  # 100,000 steps: mu = 5e-9 * (1 + 1e-5)^100000 = 5e-9 e, within what float32 can tell.
  # lambda = 1e-6 + 20 * sum_k mu_k = 1e-6 + 20 * 5e-9 * (e - 1) / 1e-5 = 0.01718.
  step = lambda _, state: _SOLVER.update(state, jnp.array([45.0]), jnp.array([25.0]))
  state = jax.jit(lambda: jax.lax.fori_loop(0, 100_000, step, _SOLVER.init(1)))()
  assert float(state.penalty_factor) == pytest.approx(5e-9 * np.e, rel=1e-2)
  assert float(state.multiplier[0]) == pytest.approx(0.01718, rel=1e-2)


def test_the_penalty_factor_grows_up_to_its_cap():
  solver = augmented_lagrangian.AugmentedLagrangian(initial_penalty_factor=1.0, growth=1.0, max_penalty_factor=3.0)
  state, factors = solver.init(1), []
  for _ in range(4):
    factors.append(float(state.penalty_factor))
    state = solver.update(state, jnp.zeros(1), jnp.zeros(1))
  assert factors == [1, 2, 3, 3]


@pytest.mark.parametrize(
  'wrong',
  [
    {'initial_penalty_factor': 0.0},
    {'initial_penalty_factor': -1.0},
    {'growth': -0.1},
    {'initial_penalty_factor': 1.0, 'max_penalty_factor': 0.5},
  ],
)
def test_wrong_settings_are_refused(wrong):
  with pytest.raises(ValueError, match=next(iter(wrong))):
    augmented_lagrangian.AugmentedLagrangian(**wrong)
