"""Plans judged by a linear model, for which everything is arithmetic."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.planners import mpc
from lambda_kit.safety import bounds
from tests.fakes import planners as fakes
from tests.fakes import specs

_MODEL = fakes.LinearModel()
_NOISY_MODEL = fakes.LinearModel(noisy=True)
_KEY = jax.random.key(0)
_FREE = specs.make(cost_limits=(np.inf,))  # A limit that rejects nothing.


def _plan(planner, params, x=0.0, model=_MODEL):
  plan = jax.jit(lambda key, params, state: planner.plan(key, params, model, state, planner.initial_plan(1)))
  return plan(_KEY, params, fakes.start_state(x))


def _evaluate(params, plans, x=0.0, discount=1.0, cost_discount=1.0, model=_MODEL, common_noise=True):
  evaluate = jax.jit(functools.partial(mpc.evaluate_plans, model, noise_scale=1.0, common_noise=common_noise))
  return evaluate(params, fakes.start_state(x), jnp.asarray(plans), _KEY, discount, cost_discount)


def test_returns_and_costs_by_hand():
  # Two models from x = 1 towards 0, gains 1 and 2, prices 1 and 3, survival 1/2; discounts 1/2 for rewards, 1/10 for
  # costs. Plans (-1, 1) and (0, 1):
  #   model 1: x = 0, 1 and 1, 2; model 2: x = -1, 1 and 1, 3. Rewards are -x^2, the second weighs 1/2 * 1/2.
  #   returns: 0 - 1/4 and -1 - 4/4;  -1 - 1/4 and -1 - 9/4.
  #   costs, p a, the second one weighing 1/10 * 1/2, over H = 2: (-1 + 1/20) / 2 and (0 + 1/20) / 2; three times that.
  params = fakes.stack_params(2, gain=[1, 2], price=[1, 3], survival=0.5)
  estimates = _evaluate(
    params,
    [[[-1.0], [1.0]], [[0.0], [1.0]]],
    x=1.0,
    discount=0.5,
    cost_discount=0.1,
    model=fakes.LinearModel(num_constraints=2),
  )
  np.testing.assert_allclose(estimates.returns, [[-0.25, -2.0], [-1.25, -3.25]], rtol=1e-6)
  first = np.asarray([[-0.475, 0.025], [-1.425, 0.075]])
  np.testing.assert_allclose(estimates.costs, np.stack([first, 2 * first], axis=-1), rtol=1e-6)


def test_equal_plans_get_equal_scores_under_common_noise():
  # Samples don't share noise: three models, whose four equal plans have one return each, or a return for each plan.
  params, plans = fakes.stack_params(3, noise=1.0), np.zeros((4, 2, 1))
  common, own = (_evaluate(params, plans, model=_NOISY_MODEL, common_noise=common) for common in (True, False))
  np.testing.assert_array_equal(common.returns, np.broadcast_to(common.returns[:, :1], (3, 4)))
  assert len(np.unique(common.returns)) == 3
  assert len(np.unique(own.returns)) == 12


def test_bounds_combine_samples_for_each_entry():
  estimates = jnp.asarray([[1.0, 5.0, 0.0], [3.0, -1.0, 0.0]])  # [N, ...] with N = 2.
  np.testing.assert_allclose(mpc.bound_estimates(estimates, bounds.MeanBound()), [2, 2, 0])
  np.testing.assert_allclose(mpc.bound_estimates(estimates, bounds.UpperBound()), [3, 5, 0])
  assert mpc.bound_estimates(jnp.zeros((2, 4, 0)), bounds.UpperBound()).shape == (4, 0)


def test_finds_the_best_open_loop_plan():
  # With x_t = x_0 + b sum_{s<t} a_s = x_0 + b (L a)_t, the return is -(x_t - g)' W (x_t - g) - rho a' W a with
  # W = diag(discount^(t-1)). Its gradient is 0 where (b^2 L' W L + rho W) a = b L' W (g - x_0). Noise with mean 0
  # doesn't change the solution.
  horizon, discount, gain, goal, effort, x = 4, 0.9, 0.8, 1.0, 0.5, -0.2
  lower, weights = np.tril(np.ones((horizon, horizon))), np.diag(discount ** np.arange(horizon))
  expected = np.linalg.solve(
    gain**2 * lower.T @ weights @ lower + effort * weights, gain * lower.T @ weights @ np.full(horizon, goal - x)
  )
  assert abs(expected).max() < 1

  states = x + gain * lower @ expected
  value = -(np.diag(weights) * ((states - goal) ** 2 + effort * expected**2)).sum()
  planner = mpc.CemPlanner(_FREE, horizon=horizon, discount=discount)
  plan = jax.jit(lambda params: planner.plan(_KEY, params, _NOISY_MODEL, fakes.start_state(x), planner.initial_plan(1)))
  for noise, tolerance in ((0.0, 0.05), (0.02, 0.2)):
    result = plan(fakes.stack_params(4, gain=gain, goal=goal, effort=effort, noise=noise))
    np.testing.assert_allclose(result.actions[:, 0], expected, atol=tolerance)
    np.testing.assert_allclose(result.value, value, atol=tolerance)


def test_plans_can_be_judged_without_luck():
  # Each step's return is a - a^2, largest at a = 0.5, less the square of a random walk that no action changes. Of all
  # plans that meet noise of their own, the luckiest is hardly ever the best one.
  params = fakes.stack_params(1, effort=1.0, value=1.0, noise=3.0)
  by_luck, common, without = (
    _plan(mpc.CemPlanner(_FREE, horizon=3, **settings), params, model=_NOISY_MODEL).actions
    for settings in ({'common_noise': False}, {}, {'noise_scale': 0.0})
  )
  assert abs(by_luck - 0.5).max() > 0.1
  np.testing.assert_allclose(common, 0.5, atol=0.01)
  np.testing.assert_allclose(without, 0.5, atol=0.01)


def test_plans_of_all_iterations_meet_the_same_noise(monkeypatch):
  # The return is minus the square of noise, whatever the plan. The best of all plans is returned: for most of 16 keys
  # it would be one of a later iteration if that had noise of its own.
  # Whole numbers, since two programs round the normal distribution differently.
  monkeypatch.setattr(jax.random, 'normal', lambda key, shape, *dtype: jax.random.randint(key, shape, -999, 1000) * 1.0)

  def values(iterations):
    planner = mpc.CemPlanner(_FREE, horizon=1, iterations=iterations)
    arguments = fakes.stack_params(1, noise=1.0), _NOISY_MODEL, fakes.start_state(0.0), planner.initial_plan(1)
    return jax.jit(jax.vmap(lambda key: planner.plan(key, *arguments).value))(jax.random.split(_KEY, 16))

  np.testing.assert_array_equal(values(1), values(9))


def test_the_mean_return_and_the_costliest_sample_count():
  # Return v sum(a) for values 0, 1, 2; cost p sum(a) / 2 for prices 1, 2, 6; undiscounted. With a limit of 600 in 1,000
  # steps: 6 sum(a) / 2 <= 0.6, so that sum(a) <= 0.2, with a return of 1 * 0.2.
  params = fakes.stack_params(3, value=[0, 1, 2], price=[1, 2, 6])
  settings = dict(spec=specs.make(cost_limits=(600.0,)), horizon=2, discount=1.0, cost_discount=1.0)
  result = _plan(mpc.CemPlanner(**settings), params)
  assert result.feasible and result.actions.sum() <= 0.2 + 1e-6
  np.testing.assert_allclose(result.actions.sum(), 0.2, atol=0.02)
  np.testing.assert_allclose(result.cost, [0.6], atol=0.06)
  np.testing.assert_allclose(result.value, 0.2, atol=0.02)

  # Other bounds are a binding away. With the mean price, 3, sum(a) <= 0.4; the largest return is 2 * 0.4.
  swapped = mpc.CemPlanner(reward_bound=bounds.UpperBound(), cost_bound=bounds.MeanBound(), **settings)
  result = _plan(swapped, params)
  np.testing.assert_allclose(result.actions.sum(), 0.4, atol=0.02)
  np.testing.assert_allclose(result.value, 0.8, atol=0.04)


def test_a_second_constraint_binds():
  # The second cost is twice the first: a <= 0.5 by the first limit, 2 a <= 0.6 by the second.
  planner = mpc.CemPlanner(specs.make(cost_limits=(500.0, 600.0)), horizon=1, iterations=4)
  result = _plan(planner, fakes.stack_params(2, value=1.0, price=1.0), model=fakes.LinearModel(num_constraints=2))
  np.testing.assert_allclose(result.actions, [[0.3]], atol=0.02)
  np.testing.assert_allclose(result.cost, [0.3, 0.6], atol=0.04)


def test_raw_step_budget_is_that_of_an_agent_step():
  for action_repeat in (1, 2):
    spec = specs.make(cost_limits=(25.0, 10.0), action_repeat=action_repeat)
    np.testing.assert_allclose(mpc.raw_step_budget(spec, 0.995, 8), [0.025 * action_repeat, 0.01 * action_repeat])
  np.testing.assert_allclose(mpc.CemPlanner(specs.make()).budgets, [0.025])


@pytest.mark.parametrize('step_budget', [mpc.raw_step_budget, mpc.episodic_step_budget])
@pytest.mark.parametrize('share, feasible', [(0.9, True), (1.1, False)])
def test_feasibility_does_not_depend_on_the_action_repeat(step_budget, share, feasible):
  # Each simulator step costs `share` of 25 / 1,000, each agent step action_repeat times that, whatever the plan.
  class ConstantCost(fakes.LinearModel):
    def predict(self, params, features):
      predictions = super().predict(params, features)
      return predictions._replace(cost=jnp.broadcast_to(params.price, predictions.cost.shape))

  for action_repeat in (1, 2, 5):
    planner = mpc.CemPlanner(
      specs.make(action_repeat=action_repeat), horizon=2, iterations=1, cost_discount=1.0, step_budget=step_budget
    )
    result = _plan(planner, fakes.stack_params(price=share * 25 / 1000 * action_repeat), model=ConstantCost())
    assert result.feasible == feasible


def test_episodic_step_budget_is_what_spending_evenly_costs():
  # Each simulator step costs 25 / 1,000, each agent step action_repeat times that.
  horizon = 6
  for action_repeat, cost_discount in itertools.product((1, 2, 5), (1.0, 0.9)):
    even = fakes.stack_params(price=25.0 / 1000 * action_repeat)
    costs = _evaluate(even, np.ones((1, horizon, 1)), cost_discount=cost_discount).costs
    budget = mpc.episodic_step_budget(specs.make(action_repeat=action_repeat), cost_discount, horizon)
    np.testing.assert_allclose(costs[0, 0], budget, rtol=1e-5)


def test_the_previous_plan_is_where_the_search_begins():
  # Two equal hills, at -0.5 and 0.5: the reward is -(x^2 - 1/4)^2, for a model whose state is its action.
  class TwoHills(fakes.LinearModel):
    def predict(self, params, features):
      predictions = super().predict(params, features)
      return predictions._replace(reward=-jnp.square(jnp.square(features[..., 1]) - 0.25))

  planner = mpc.CemPlanner(_FREE, horizon=1, iterations=3, initial_std=0.1)
  plan = jax.jit(lambda start: planner.plan(_KEY, fakes.stack_params(), TwoHills(), fakes.start_state(0.0), start))
  for hill in (-0.5, 0.5):
    np.testing.assert_allclose(plan(jnp.asarray([[1.2 * hill]])).actions, [[hill]], atol=0.02)


def test_a_shifted_plan_drops_its_first_action():
  plan = jnp.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
  assert mpc.shift_plan(plan).tolist() == [[3, 4], [5, 6], [0, 0]]
  assert mpc.shift_plan(plan[:1]).tolist() == [[0, 0]]
