"""A planner as the action selection of an actor: replan at every step, take the first action, keep the rest."""

import chex
import jax
import jax.numpy as jnp

from lambda_kit import core
from lambda_kit import types
from lambda_kit.planners import mpc


def make_planning_policy(planner: core.Planner, world_model: core.WorldModel, num_actions: int,
                         evaluation: bool = False, exploration_noise: float = 0.0,
                         warm_start: bool = True) -> core.ActionSelection:
  """Makes the action selection of model predictive control.

  Its variables are N posterior samples of the imagination parameters, stacked; its carry is where the next search
  begins, [k, H, A].

  Args:
    planner: Finds a plan for one state.
    world_model: What the planner imagines with.
    num_actions: A.
    evaluation: Whether actions go without exploration noise.
    exploration_noise: Standard deviation of Gaussian noise that is added to the actions of training, before they are
      clipped to [-1, 1].
    warm_start: Whether a search begins at what is left of the plan before, or anew each time, as in the authors'
      experiment.

  Returns:
    `init_carry` and `step`.
  """
  noise_std = 0.0 if evaluation else exploration_noise

  def init_carry(batch_size: int) -> types.Array:
    plan = planner.initial_plan(num_actions)
    return jnp.broadcast_to(plan[None], (batch_size, *plan.shape))

  def select(variables: core.Params, previous_plan: types.Array, belief: types.Nest,
             key: core.Key) -> tuple[types.Array, types.Array]:
    plan_key, noise_key = jax.random.split(key)
    plan = planner.plan(plan_key, variables, world_model, belief, previous_plan).actions
    action = plan[0]
    if noise_std > 0.0:
      action = jnp.clip(action + noise_std * jax.random.normal(noise_key, action.shape, action.dtype), -1.0, 1.0)
    return action, mpc.shift_plan(plan) if warm_start else previous_plan

  def step(variables: core.Params, carry: types.Array, belief: types.Nest,
           key: core.Key) -> tuple[types.Array, types.Array]:
    chex.assert_shape(carry, (None, planner.horizon, num_actions))
    keys = jax.random.split(key, carry.shape[0])
    return jax.vmap(select, in_axes=(None, 0, 0, 0))(variables, carry, belief, keys)

  return core.ActionSelection(init_carry, step)
