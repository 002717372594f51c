"""Solvers on a problem with a known saddle point, and what they all must do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gin
from lambda_kit.safety import augmented_lagrangian
from lambda_kit.safety import pid
from lambda_kit.safety import primal_dual
from lambda_kit.safety import unconstrained

# Values sized for a problem of unit scale, which is solved in a few thousand steps.
SOLVERS = {
  'augmented_lagrangian': augmented_lagrangian.AugmentedLagrangian(
    initial_multiplier=0.5, initial_penalty_factor=0.05, growth=1e-3, max_penalty_factor=0.5
  ),
  'primal_dual': primal_dual.PrimalDual(initial_multiplier=0.5, learning_rate=0.05),
  'pid': pid.PidLagrangian(kp=0.3, ki=0.05, kd=0.3, smoothing=0.0),
  'smoothed_pid': pid.PidLagrangian(kp=0.3, ki=0.05, kd=0.3, smoothing=0.8),
}
ALL = SOLVERS | {'unconstrained': unconstrained.Unconstrained()}

# max J(x) = -|x - (3, 1)|^2 / 2  subject to  J^1(x) = x_1 + x_2 <= 2 and J^2(x) = x_1 - x_2 <= 10.
# The optimum is the projection of (3, 1) on the line x_1 + x_2 = 2: with grad J = lambda^1 (1, 1), x = (3 - lambda^1,
# 1 - lambda^1), whose sum is 4 - 2 lambda^1 = 2. So lambda^1 = 1 and x = (2, 0); J^2 = 2 < 10, hence lambda^2 = 0.
_CENTRE = jnp.array([3.0, 1.0])
_COSTS = jnp.array([[1.0, 1.0], [1.0, -1.0]])
_BUDGETS = jnp.array([2.0, 10.0])
_OPTIMUM, _KKT_MULTIPLIERS = [2.0, 0.0], [1.0, 0.0]


def _solve(solver, num_steps=3000, learning_rate=0.1):
  """Gradient ascent on J - penalty, with a step of the multipliers after each."""

  def objective(x, state):
    return -jnp.sum((x - _CENTRE) ** 2) / 2 - solver.penalty(state, _COSTS @ x, _BUDGETS)

  def step(carry, _):
    x, state = carry
    x = x + learning_rate * jax.grad(objective)(x, state)
    return (x, solver.update(state, _COSTS @ x, _BUDGETS)), None

  carry, _ = jax.lax.scan(step, (jnp.zeros(2), solver.init(2)), length=num_steps)
  return carry


@pytest.mark.parametrize('name', SOLVERS)
def test_multipliers_converge_to_those_of_the_saddle_point(name):
  x, state = jax.jit(lambda: _solve(SOLVERS[name]))()
  multipliers = SOLVERS[name].multipliers(state)
  np.testing.assert_allclose(x, _OPTIMUM, atol=1e-3)
  np.testing.assert_allclose(multipliers, _KKT_MULTIPLIERS, atol=1e-3)
  assert float(multipliers[1]) == 0  # Exactly, although the multipliers of some start above 0.


def test_without_a_solver_the_constraint_is_violated():
  x, _ = jax.jit(lambda: _solve(ALL['unconstrained']))()
  np.testing.assert_allclose(x, _CENTRE, atol=1e-3)


@pytest.mark.parametrize('name', ALL)
class TestAllSolvers:
  @pytest.mark.parametrize('num_constraints', [1, 3])
  def test_shapes(self, name, num_constraints):
    solver = ALL[name]
    state = solver.init(num_constraints)
    values, budgets = jnp.ones([num_constraints]), jnp.zeros([num_constraints])
    assert solver.penalty(state, values, budgets).shape == ()
    assert solver.multipliers(state).shape == (num_constraints,)
    updated = jax.jit(solver.update)(state, values, budgets)
    assert jax.tree.structure(updated) == jax.tree.structure(state)
    assert [(x.shape, x.dtype) for x in updated] == [(x.shape, x.dtype) for x in state]

  def test_shapes_that_do_not_fit_are_refused(self, name):
    solver = ALL[name]
    for values, budgets in (((2,), (3,)), ((3,), (3,)), ((), (2,)), ((2, 1), (2, 1))):
      with pytest.raises(AssertionError):
        solver.penalty(solver.init(2), jnp.zeros(values), jnp.zeros(budgets))

  def test_a_violation_is_penalised(self, name):
    solver = ALL[name]
    budgets = jnp.array([1.0, 1.0])
    state = solver.update(solver.init(2), jnp.array([3.0, 0.0]), budgets)
    slope = jax.grad(lambda values: solver.penalty(state, values, budgets))(jnp.array([3.0, 0.0]))
    assert float(slope[0]) > 0 or name == 'unconstrained'
    assert np.all(slope >= 0)

  def test_multipliers_never_become_negative(self, name):
    solver = ALL[name]
    state = solver.init(2)
    for _ in range(3):
      state = solver.update(state, jnp.array([-100.0, 0.0]), jnp.array([1.0, 100.0]))
      assert np.all(np.asarray(solver.multipliers(state)) >= 0)

  @pytest.mark.parametrize('bad', [float('nan'), float('inf'), -float('inf')])
  def test_a_cost_value_that_is_not_finite_is_skipped(self, name, bad):
    """The other constraint goes on, and later values find the state as it was."""
    solver = ALL[name]
    budgets = jnp.array([1.0, 1.0])
    before = solver.update(solver.init(2), jnp.array([2.0, 3.0]), budgets)
    after = solver.update(before, jnp.array([bad, 4.0]), budgets)
    reference = solver.update(before, jnp.array([5.0, 4.0]), budgets)
    for was, is_, other in zip(before, after, reference):
      if was.ndim:  # The penalty factor [] is a schedule, which goes on.
        assert is_[0] == was[0] and is_[1] == other[1]
    assert all(np.all(np.isfinite(x)) for x in after)

  def test_not_finite_from_the_start(self, name):
    solver = ALL[name]
    state = solver.update(solver.init(1), jnp.array([float('nan')]), jnp.array([1.0]))
    recovered = solver.update(state, jnp.array([3.0]), jnp.array([1.0]))
    expected = solver.update(solver.init(1), jnp.array([3.0]), jnp.array([1.0]))
    np.testing.assert_allclose(solver.multipliers(recovered), solver.multipliers(expected), rtol=1e-2)


def test_unconstrained_has_neither_penalty_nor_gradient():
  solver = ALL['unconstrained']
  state, budgets = solver.init(2), jnp.zeros(2)
  value, slope = jax.value_and_grad(lambda v: solver.penalty(state, v, budgets))(jnp.array([1e9, float('nan')]))
  assert value == 0 and slope.tolist() == [0, 0]
  assert solver.multipliers(state).tolist() == [0, 0]


@pytest.mark.parametrize('solver_class', [augmented_lagrangian.AugmentedLagrangian, primal_dual.PrimalDual])
class TestInitialMultipliers:
  def test_one_for_each_constraint(self, solver_class):
    solver = solver_class(initial_multiplier=(0.5, 2.0))
    assert solver.multipliers(solver.init(2)).tolist() == [0.5, 2.0]
    with pytest.raises(ValueError, match='3 constraints, and the solver 2 initial multipliers'):
      solver.init(3)

  @pytest.mark.parametrize('wrong', [-1.0, float('nan'), (1.0, -1.0), [[1.0]]])
  def test_wrong_ones_are_refused(self, solver_class, wrong):
    with pytest.raises(ValueError, match=r'\.initial_multiplier = .* should be a finite number, 0 or more'):
      solver_class(initial_multiplier=wrong)


@pytest.fixture
def clean_gin():
  gin.clear_config()
  yield
  gin.clear_config()


@pytest.mark.usefixtures('clean_gin')
def test_solvers_are_known_to_gin():
  gin.parse_config('PrimalDual.learning_rate = 0.5\nAugmentedLagrangian.initial_multiplier = (1., 2.)')
  solver = gin.get_configurable('PrimalDual')()
  state = solver.update(solver.init(1), jnp.array([3.0]), jnp.array([1.0]))
  np.testing.assert_allclose(solver.multipliers(state), [1.0 + 1e-6])  # 1e-6 + 0.5 * (3 - 1).
  solver = gin.get_configurable('AugmentedLagrangian')()
  assert solver.multipliers(solver.init(2)).tolist() == [1, 2]
  for name in ('PidLagrangian', 'Unconstrained'):
    gin.get_configurable(name)()
