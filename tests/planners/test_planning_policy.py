"""Planning at each step, in several environments."""

import jax
import jax.numpy as jnp
import numpy as np

import gin
from lambda_kit.planners import cem
from lambda_kit.planners import mpc
from lambda_kit.planners import planning_policy
from tests.fakes import planners as fakes
from tests.fakes import specs

_MODEL = fakes.LinearModel()
_KEY = jax.random.key(0)


class _AddingPlanner:
  """Adds params[0] + state to the previous plan, [H, A] with H = 3 and A = 2."""

  horizon = 3

  def initial_plan(self, num_actions):
    return jnp.asarray([[0.1], [0.2], [0.3]]) * jnp.ones((1, num_actions))

  def plan(self, key, params, world_model, state, previous_plan):
    assert state.shape == ()
    nothing = jnp.zeros(())
    return cem.CemResult(previous_plan + params[0] + state, previous_plan, previous_plan, nothing, nothing, nothing)


def _beliefs(*xs):
  return {'x': jnp.asarray(xs), 'action': jnp.zeros((len(xs),))}


def test_acts_with_the_first_action_and_keeps_the_rest():
  planner = _AddingPlanner()
  plans = planning_policy.initial_plans(planner, 2, num_actions=2)
  first = [[0.1] * 2, [0.2] * 2, [0.3] * 2]
  np.testing.assert_allclose(plans, [first, first])
  # Plans of two environments, whose states are 0 and 5: (1.1, 1.2, 1.3) and (6.1, 6.2, 6.3) for both actions.
  actions, plans = planning_policy.plan_actions(
    planner, _MODEL, jnp.asarray([1.0]), plans, jnp.asarray([0.0, 5.0]), _KEY
  )
  np.testing.assert_allclose(actions, [[1.1] * 2, [6.1] * 2])
  np.testing.assert_allclose(plans, [[[1.2] * 2, [1.3] * 2, [0] * 2], [[6.2] * 2, [6.3] * 2, [0] * 2]])


def test_control_of_a_linear_system():
  # Without effort the best plan jumps to the goal if an action of 1 gets there, and goes at full speed if not:
  # from 0 with gain 0.5 to 0.8 by actions 1 and 0.6, from 0.8 by 0 and 0. The models are right, so that x moves as
  # planned.
  planner = mpc.CemPlanner(specs.make(cost_limits=(np.inf,)), horizon=3, population=60, elites=10)
  first = planning_policy.initial_plans(planner, 2, num_actions=1)
  step = jax.jit(
    lambda params, plans, beliefs, key: planning_policy.plan_actions(planner, _MODEL, params, plans, beliefs, key)
  )
  params = fakes.stack_params(2, gain=0.5, goal=0.8)
  plans, x = first, jnp.asarray([0.0, 0.8])
  actions = []
  for key in jax.random.split(_KEY, 3):
    action, plans = step(params, plans, _beliefs(*x), key)
    x = x + 0.5 * action[:, 0]
    actions.append(action[:, 0])
  np.testing.assert_allclose(np.stack(actions), [[1, 0], [0.6, 0], [0, 0]], atol=0.1)
  np.testing.assert_allclose(x, 0.8, atol=0.05)

  again = [step(params, first, _beliefs(0.0, 0.8), _KEY) for _ in range(2)]
  jax.tree.map(np.testing.assert_array_equal, *again)
  other, _ = step(params, first, _beliefs(0.5, 0.5), _KEY)
  assert other[0] != other[1]  # Each environment has a key of its own.


def test_gin_binds_the_planner():
  with gin.unlock_config():
    gin.parse_config("""
      CemPlanner.horizon = 5
      CemPlanner.step_budget = @episodic_step_budget
      CemPlanner.cost_discount = 1.0
    """)
  try:
    spec = specs.make(cost_limits=(25.0, 5.0), action_repeat=2, episode_length=500)
    planner = gin.get_configurable('CemPlanner')(spec=spec)
    assert planning_policy.initial_plans(planner, 4, num_actions=2).shape == (4, 5, 2)
    np.testing.assert_allclose(planner.budgets, [0.1, 0.02])  # 25 * 2 / 500, 5 * 2 / 500.
  finally:
    gin.clear_config()
