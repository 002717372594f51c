"""Model predictive control with posterior samples of a world model: CEM-MPC, the ablation of section 5.2.

Plans are evaluated by imagining them under each of N models, theta_n ~ p(theta | D). From a start state s_0, a plan
a_0, ..., a_{H-1} leads model n to s_1, ..., s_H, where it predicts rewards r_{t,n}, costs c^i_{t,n} and the probability
u_{t,n} that the episode continues after s_t. With w_{t,n} = prod_{0<k<t} u_{k,n}, the probability of reaching step t,

  return        R   = mean_n  sum_{t=1..H} discount^(t-1)      w_{t,n} r_{t,n}
  cost i        K^i = max_n   sum_{t=1..H} cost_discount^(t-1) w_{t,n} c^i_{t,n} / H
  feasible            K^i <= step budget of d^i, the limit of an episode's cost return, for each i.

The mean and the maximum are bindings. In addition to the legend in `lambda_kit/types.py`, P is the number of plans
evaluated at once.
"""

from collections.abc import Callable
import functools
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

import gin
from lambda_kit import core
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.environments import spec as spec_lib
from lambda_kit.planners import cem
from lambda_kit.safety import bounds

# Converts the limits on episodes' costs into limits on a plan's discounted cost per agent step, [C]. Called with the
# environment's spec, the discount of costs and the horizon H.
StepBudget = Callable[[core.EnvironmentSpec, float, int], np.ndarray]


@gin.register
def raw_step_budget(spec: core.EnvironmentSpec, cost_discount: float, horizon: int) -> np.ndarray:
  """The paper's rule, d / T for a simulator step, so d action_repeat / T for an agent step, whatever the discount.

  The cost of an agent step is the sum over its simulator steps. (The authors' code leaves out the action repeat, and so
  admits half of the limit at a repeat of 2.)
  """
  del cost_discount, horizon
  return _even_spending(spec, 'raw_step_budget')


@gin.register
def episodic_step_budget(spec: core.EnvironmentSpec, cost_discount: float, horizon: int) -> np.ndarray:
  """The cost of a plan if d is spread evenly over all T / action_repeat agent steps of an episode.

  An agent step may cost d action_repeat / T. The discounted sum over the plan, divided by H, is that times
  (1 - g^H) / ((1 - g) H), where g is the discount.
  """
  per_agent_step = _even_spending(spec, 'episodic_step_budget')
  return (per_agent_step * np.mean(cost_discount ** np.arange(horizon))).astype(np.float32)


def _even_spending(spec: core.EnvironmentSpec, user: str) -> np.ndarray:
  """The undiscounted cost that each agent step may have if all have the same, [C]."""
  return np.asarray(spec.cost_limits, np.float32) * spec.action_repeat / spec_lib.known_episode_length(spec, user)


class PlanEstimates(NamedTuple):
  """Each posterior sample's estimates for each plan."""

  returns: types.Array  # [N, P], discounted sums of rewards.
  costs: types.Array  # [N, P, C], discounted sums of costs divided by H.


def imagine_plans(
  world_model: core.WorldModel,
  params: core.Params,
  state: types.Nest,
  plans: types.Array,
  key: core.Key,
  noise_scale: float,
  common_noise: bool,
) -> types.Predictions:
  """Imagines plans from one start state under one set of parameters.

  Args:
    world_model: The functions that imagine and predict.
    params: One set of imagination parameters.
    state: The start state, [...] without a batch axis.
    plans: Action sequences, [P, H, A].
    key: For the noise of the transitions.
    noise_scale: Factor of that noise.
    common_noise: Whether all plans share the same noise, or each has its own.

  Returns:
    Predictions for s_1, ..., s_H: rewards and continuations [H, P], costs [H, P, C].
  """
  chex.assert_rank(plans, 3)
  num_plans, horizon, _ = plans.shape
  states = jax.tree.map(lambda x: jnp.broadcast_to(x[None], (num_plans, *x.shape)), state)
  noise = jax.random.normal(key, (horizon, 1 if common_noise else num_plans, world_model.noise_size))
  noise = noise_scale * jnp.broadcast_to(noise, (horizon, num_plans, world_model.noise_size))

  def step(states, inputs):
    states = world_model.imagine_step(params, states, *inputs)
    return states, world_model.features(states)

  _, features = jax.lax.scan(step, states, (jnp.swapaxes(plans, 0, 1), noise))
  return world_model.predict(params, features)


def evaluate_plans(
  world_model: core.WorldModel,
  params: core.Params,
  state: types.Nest,
  plans: types.Array,
  key: core.Key,
  discount: float,
  cost_discount: float,
  noise_scale: float,
  common_noise: bool,
) -> PlanEstimates:
  """Estimates the return and the costs of plans under each posterior sample; see the docstring of this file.

  Args:
    world_model: The functions that imagine and predict.
    params: N sets of imagination parameters, stacked: leaves [N, ...].
    state: The start state, [...] without a batch axis.
    plans: Action sequences, [P, H, A].
    key: For the noise of the transitions, which differs between samples.
    discount: The discount of rewards.
    cost_discount: The discount of costs.
    noise_scale: Factor of the noise.
    common_noise: Whether all plans share the same noise, or each has its own.

  Returns:
    Estimates for N samples and P plans.
  """
  num_samples = jax.tree.leaves(params)[0].shape[0]
  chex.assert_tree_shape_prefix(params, (num_samples,))
  horizon = plans.shape[1]

  def evaluate_sample(params: core.Params, key: core.Key) -> PlanEstimates:
    predictions = imagine_plans(world_model, params, state, plans, key, noise_scale, common_noise)
    chex.assert_rank([predictions.reward, predictions.cost, predictions.continuation], [2, 3, 2])
    alive = jnp.cumprod(predictions.continuation[:-1], axis=0)  # [H - 1, P]: w_2, ..., w_H; w_1 is 1.
    alive = jnp.concatenate([jnp.ones_like(predictions.continuation[:1]), alive])
    steps = jnp.arange(horizon)[:, None]
    returns = (discount**steps * alive * predictions.reward).sum(axis=0)
    costs = ((cost_discount**steps * alive)[..., None] * predictions.cost).sum(axis=0) / horizon
    return PlanEstimates(returns, costs)

  return jax.vmap(evaluate_sample)(params, jax.random.split(key, num_samples))


def bound_estimates(estimates: types.Array, bound: core.Bound) -> types.Array:
  """Applies a bound over posterior samples to each entry: [N, ...] -> [...]."""
  flat = estimates.reshape(estimates.shape[0], -1)
  weights = jax.vmap(bound, in_axes=1, out_axes=1)(flat)
  return (weights * flat).sum(axis=0).reshape(estimates.shape[1:])


def shift_plan(plan: types.Array) -> types.Array:
  """The rest of a plan [H, A] after its first action, with 0 as its new last action, as in an initial plan."""
  return jnp.concatenate([plan[1:], jnp.zeros_like(plan[:1])])


@gin.register
@ranges.checked
class CemPlanner(core.Planner):
  """CEM-MPC: the constrained cross entropy method on plans imagined by posterior samples.

  Population, elites, iterations, horizon and initial deviation are those of the authors' experiment. Actions are in
  [-1, 1], and standard deviations in the same unit. Discounts are per agent step.

  Args:
    spec: Provides limits, action repeat and episode length for the step budget.
    horizon: H, agent steps of a plan.
    iterations: How often to draw plans and fit the distribution in each agent step.
    population: P, plans per iteration.
    elites: The maximum number of plans to fit the distribution to: only feasible ones, if there are any.
    initial_std: Standard deviation of the first plans' actions.
    min_std: Lower bound of the standard deviation.
    smoothing: Weight of the old distribution in the new one, in [0, 1).
    discount: Discount of rewards, in [0, 1].
    cost_discount: Discount of costs, in [0, 1].
    reward_bound: Weights the N estimates of a plan's return.
    cost_bound: Weights the N estimates of each of a plan's costs.
    step_budget: Limit on a plan's cost per agent step: `@raw_step_budget` or `@episodic_step_budget`.
    noise_scale: Factor of the noise of imagined transitions: 1 for the model's own, 0 for none.
    common_noise: Whether all plans of a search share the same noise, drawn once per posterior sample (common random
      numbers). A plan is evaluated by a single draw of each model, so with separate noise the luckiest of `iterations`
      times `population` plans wins. The paper does not say; the authors' code draws noise for each plan. Since all
      iterations share the noise, too, their best plans are comparable.
  """

  display_name = 'CEM-MPC'

  def __init__(
    self,
    spec: core.EnvironmentSpec,
    horizon: ranges.Count = 8,
    iterations: ranges.Count = 10,
    population: ranges.Count = 150,
    elites: ranges.Count = 15,
    initial_std: ranges.NotNegative = 1.0,
    min_std: ranges.NotNegative = 0.05,
    smoothing: ranges.ShareBelowOne = 0.0,
    discount: ranges.Discount = 0.99,
    cost_discount: ranges.Discount = 0.995,
    reward_bound: core.Bound = bounds.MeanBound(),
    cost_bound: core.Bound = bounds.UpperBound(),
    step_budget: StepBudget = raw_step_budget,
    noise_scale: ranges.NotNegative = 1.0,
    common_noise: bool = True,
  ):
    if elites > population or min_std > initial_std:
      raise errors.SetupError(
        f'CemPlanner.elites = {elites} must be at most CemPlanner.population = {population}, and CemPlanner.min_std = '
        f'{min_std} at most CemPlanner.initial_std = {initial_std}.'
      )
    self.horizon = horizon
    self.budgets = step_budget(spec, cost_discount, horizon)  # [C]
    self._discount, self._cost_discount = discount, cost_discount
    self._reward_bound, self._cost_bound = reward_bound, cost_bound
    self._noise_scale, self._common_noise = noise_scale, common_noise
    self._search = functools.partial(
      cem.constrained_cem,
      iterations=iterations,
      population=population,
      elites=elites,
      initial_std=initial_std,
      min_std=min_std,
      smoothing=smoothing,
    )

  def initial_plan(self, num_actions: int) -> types.Array:
    """The previous plan for the first step of an episode, [H, A]."""
    return jnp.zeros((self.horizon, num_actions), jnp.float32)

  def plan(
    self,
    key: core.Key,
    params: core.Params,
    world_model: core.WorldModel,
    state: types.Nest,
    previous_plan: types.Array,
  ) -> cem.CemResult:
    """Plans from one state. Pure: jit it as a closure over `world_model`, vmap it over keys, states and plans.

    Args:
      key: For the candidates and the noise of the transitions.
      params: N posterior samples of the imagination parameters, stacked: leaves [N, ...].
      world_model: The functions that imagine and predict.
      state: The agent's belief, [...] without a batch axis.
      previous_plan: Where the search starts, [H, A]: `shift_plan` of the previous plan, or `initial_plan`.

    Returns:
      The best plan found, with R as its value and K^i as its costs, and the final distribution.
    """
    chex.assert_shape(previous_plan, (self.horizon, None))
    search_key, common_key = jax.random.split(key)

    def evaluate(plans: types.Array, iteration_key: core.Key) -> tuple[types.Array, types.Array]:
      estimates = evaluate_plans(
        world_model,
        params,
        state,
        plans,
        common_key if self._common_noise else iteration_key,
        self._discount,
        self._cost_discount,
        self._noise_scale,
        self._common_noise,
      )
      return (
        bound_estimates(estimates.returns, self._reward_bound),
        bound_estimates(estimates.costs, self._cost_bound),
      )

    return self._search(search_key, evaluate, previous_plan, jnp.asarray(self.budgets))
