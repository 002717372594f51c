"""Model predictive control in k environments: replan at every step, take the first action, keep the rest."""

import chex
import jax
import jax.numpy as jnp

from lambda_kit import core
from lambda_kit import types
from lambda_kit.planners import mpc


def initial_plans(planner: core.Planner, count: int, num_actions: int) -> types.Array:
  """Where the searches of an episode's first step start, [k, H, A]."""
  plan = planner.initial_plan(num_actions)
  return jnp.broadcast_to(plan[None], (count, *plan.shape))


def plan_actions(
  planner: core.Planner,
  world_model: core.WorldModel,
  samples: core.Params,
  plans: types.Array,
  beliefs: types.Nest,
  key: core.Key,
) -> tuple[types.Array, types.Array]:
  """Plans in k environments. Pure.

  Args:
    planner: Finds a plan for one state.
    world_model: The functions that imagine and predict.
    samples: N posterior samples of the imagination parameters, stacked.
    plans: Where the searches start, [k, H, A].
    beliefs: States to plan from, [k, ...].
    key: Split into one key per environment.

  Returns:
    Actions [k, A], and where the next searches start, [k, H, A].
  """
  chex.assert_shape(plans, (None, planner.horizon, None))

  def plan_one(plan, belief, key):
    actions = planner.plan(key, samples, world_model, belief, plan).actions
    return actions[0], mpc.shift_plan(actions)

  return jax.vmap(plan_one)(plans, beliefs, jax.random.split(key, plans.shape[0]))
