"""The losses of LAMBDA's policy and critics, as pure functions (eqs. 8 to 12, algorithm 1)."""

import dataclasses
from typing import Any, Callable, NamedTuple

import chex
import jax
import jax.numpy as jnp

from lambda_kit import core
from lambda_kit import types
from lambda_kit.agents.lambda_agent import imagination
from lambda_kit.bounds import bounds
from lambda_kit.policies import returns


@dataclasses.dataclass(frozen=True)
class Objective:
  """What the policy maximises, and subject to what."""
  reward_bound: core.Bound
  cost_bound: core.Bound
  solver: core.ConstraintSolver
  budgets: Any  # [C]
  discount: float
  cost_discount: float
  lambda_: float
  horizon: int
  entropy_scale: float  # Weight of the policy's entropy before squashing; the paper has none.


class CriticData(NamedTuple):
  """Selected trajectories on which one kind of critic is trained."""
  features: types.Array  # [S, H, F], of s_0, ..., s_{H-1}.
  targets: types.Array  # [S, H], V_lambda of these states.
  weights: types.Array  # [S, H], probability that the episode still goes on.


class PolicyOutput(NamedTuple):
  """What came out while the policy's loss was computed."""
  critic: CriticData
  cost_critics: CriticData  # [C, ...]
  cost_values: types.Array  # [C], the J_i that the solver compares with its budgets.
  metrics: dict[str, types.Array]


def discounted_weights(continuations: types.Array) -> types.Array:
  """Probabilities [H] that s_0, ..., s_{H-1} are reached, from continuations [H] of s_1, ..., s_H."""
  chex.assert_rank(continuations, 1)
  return jax.lax.stop_gradient(jnp.concatenate([jnp.ones_like(continuations[:1]), jnp.cumprod(continuations[:-1])]))


def policy_loss(policy_params: core.Params, policy: Any, world_model: core.WorldModel, samples: core.Params,
                start: types.Nest, value: Callable[[types.Array], types.Array],
                cost_values: Callable[[types.Array], types.Array], solver_state: Any, objective: Objective,
                key: core.Key) -> tuple[types.Array, PolicyOutput]:
  """-J(pi) + sum_i Psi_i(pi) (eq. 10), with J and J_i bounded over N posterior samples (algorithm 1).

  Args:
    policy_params: xi, what the loss is differentiated by.
    policy: Maps (xi, features) to a distribution over actions.
    world_model, samples: theta_1, ..., theta_N, leaves [N, ...].
    start: States [S, ...] from which to imagine.
    value: Shadow critic, features [..., F] to values [...].
    cost_values: Shadow safety critics, features [..., F] to values [..., C].
    solver_state: Multipliers lambda_k and penalty mu_k.
    objective: Everything else.
    key: Noise.
  """
  imagine_key, select_key = jax.random.split(key)

  def sample_action(features, action_key):
    distribution = policy(policy_params, features)
    return distribution.sample(action_key), distribution.gaussian_entropy()

  imagined = imagination.imagine(world_model, samples, sample_action, start, imagine_key, objective.horizon)
  predictions = imagined.predictions
  next_features = imagined.features[:, 1:]  # [N, H, S, F]
  # [N, S, H]: time last, as the estimators have it.
  time_last = lambda x: jnp.swapaxes(x, 1, 2)
  continuations = time_last(predictions.continuation)
  weights = jax.vmap(jax.vmap(discounted_weights))(continuations)

  def lambda_values(rewards, next_values, discount):
    estimate = lambda r, c, v: returns.lambda_values(r, c, v, discount, objective.lambda_)
    return jax.vmap(jax.vmap(estimate))(time_last(rewards), continuations, time_last(next_values))

  values = lambda_values(predictions.reward, value(next_features), objective.discount)
  # One row for each constraint, [C, N, S, H].
  expected_costs = jnp.moveaxis(predictions.cost, -1, 0)
  next_cost_values = jnp.moveaxis(cost_values(next_features), -1, 0)
  all_cost_values = jax.vmap(lambda r, v: lambda_values(r, v, objective.cost_discount))(expected_costs,
                                                                                       next_cost_values)

  bounded, critic = _bound(objective.reward_bound, values, weights, imagined.features, select_key)
  bounded_costs, cost_critics = jax.vmap(
      lambda v: _bound(objective.cost_bound, v, weights, imagined.features, select_key))(all_cost_values)
  penalty = objective.solver.penalty(solver_state, bounded_costs, objective.budgets)
  loss = -bounded + penalty
  entropy = jnp.mean(imagined.entropy)
  if objective.entropy_scale:
    loss -= objective.entropy_scale * entropy
  metrics = {
      'policy_loss': loss,
      'objective': bounded,
      'penalty': penalty,
      'entropy': entropy,
      'imagined_reward': jnp.mean(predictions.reward),
      'value_spread': jnp.mean(jnp.std(jnp.mean(values, axis=-1), axis=0)),
  }
  for i in range(bounded_costs.shape[0]):
    metrics[f'cost_value/{i}'] = bounded_costs[i]
    metrics[f'imagined_cost/{i}'] = jnp.mean(expected_costs[i])
    metrics[f'cost_value_spread/{i}'] = jnp.mean(jnp.std(jnp.mean(all_cost_values[i], axis=-1), axis=0))
  return loss, PolicyOutput(critic, cost_critics, bounded_costs, metrics)


def _bound(bound: core.Bound, values: types.Array, weights: types.Array, features: types.Array,
           key: core.Key) -> tuple[types.Array, CriticData]:
  """Bounds values [N, S, H] over N; returns their mean [], and the trajectories on which to train the critic.

  Where a bound gives weight to several samples, one of them is drawn by its weight for each start state: critics then
  cost the same whatever N is.
  """
  bounded, sample_weights = bounds.apply_bound(bound, values)  # [S, H], [N, S]
  chosen = jax.random.categorical(key, jnp.log(bounds.critic_weights(sample_weights) + 1e-20), axis=0)  # [S]
  starts = jnp.arange(values.shape[1])
  mean_weights = jnp.mean(weights, axis=0)
  average = jnp.sum(bounded * mean_weights) / jnp.sum(mean_weights)
  data = CriticData(
      features=jnp.swapaxes(features[:, :-1], 1, 2)[chosen, starts],
      targets=values[chosen, starts],
      weights=weights[chosen, starts])
  return average, jax.lax.stop_gradient(data)


def critic_loss(params: core.Params, apply: Callable[[core.Params, types.Array], types.Array],
                data: CriticData) -> types.Array:
  """Eq. 9, [], on trajectories [S, H, F]."""
  return returns.value_loss(apply(params, data.features), data.targets, data.weights)
