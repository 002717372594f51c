"""How LAMBDA acts: it filters a belief, and chooses by policy or planner (algorithm 2, lines 13 and 14)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lambda_kit import core
from lambda_kit import types
from lambda_kit.agents.lambda_ import networks as networks_lib
from lambda_kit.models import normalizer
from lambda_kit.planners import planning_policy
from lambda_kit.policies import warm_up as warm_up_lib


class ActorCarry(NamedTuple):
  """The memory between steps, for k environments."""

  belief: types.Nest  # [k, ...]
  action: types.Array  # [k, A], the last action.
  plan: Any  # [k, H, A], the rest of the last plan; () for a policy.
  key: core.Key


def make_actor_core(
  networks: networks_lib.LambdaNetworks,
  evaluation: bool,
  planner: core.Planner | None = None,
  warm_up: core.WarmUp = warm_up_lib.uniform_actions,
) -> core.ActorCore:
  """Samples from the policy in training and takes its mode in evaluation; or uses the planner if there is one.

  In training, actions are those of `warm_up` until the first update (algorithm 2, line 1).
  """
  world_model, num_actions = networks.world_model, networks.spec.num_actions

  def init(key: core.Key, count: int) -> ActorCarry:
    plan = () if planner is None else planning_policy.initial_plans(planner, count, num_actions)
    return ActorCarry(world_model.initial_state(count), jnp.zeros((count, num_actions), jnp.float32), plan, key)

  def choose(variables, plan, belief, key):
    if planner is not None:
      return planning_policy.plan_actions(planner, world_model, variables, plan, belief, key)
    distribution = networks.policy.apply(variables, world_model.features(belief))
    return (distribution.mode() if evaluation else distribution.sample(key)), plan

  def act(variables, carry, observation, is_first):
    filtering, choosing = variables
    key, belief_key, action_key = jax.random.split(carry.key, 3)
    count = is_first.shape[0]
    forget = lambda new, old: jnp.where(is_first.reshape((count,) + (1,) * (old.ndim - 1)), new, old)
    before, last_action, plan = jax.tree.map(forget, tuple(init(key, count)[:3]), tuple(carry[:3]))
    observation = normalizer.normalize(filtering['normalizer'], observation)
    belief = world_model.filter(filtering['model'], before, last_action, observation, belief_key)
    action, plan = choose(choosing, plan, belief, action_key)
    return action, ActorCarry(belief, action, plan, key)

  def explore(variables, carry, observation, is_first):
    del variables, observation
    key, action_key = jax.random.split(carry.key)
    action = warm_up(action_key, carry.action, is_first)
    return action, carry._replace(key=key, action=action)

  def explore_first(variables, *inputs):
    return jax.lax.cond(variables[0]['updates'] > 0, act, explore, variables, *inputs)

  return core.ActorCore(
    init, act if evaluation else explore_first, variable_names=('belief', 'policy' if planner is None else 'samples')
  )
