"""What LAMBDA's policy maximises and its critics learn, as pure functions (eqs. 8 to 12, algorithm 1)."""

from collections.abc import Callable
import dataclasses
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from lambda_kit import core
from lambda_kit import types
from lambda_kit.agents.lambda_ import devices as devices_lib
from lambda_kit.policies import returns
from lambda_kit.safety import bounds


@dataclasses.dataclass(frozen=True)
class Objective:
  """What the policy maximises, and subject to what."""

  reward_bound: core.Bound
  cost_bound: core.Bound
  solver: core.ConstraintSolver
  budgets: Any  # [C]
  feedback: core.Feedback  # Corrects the budgets.
  recalibration: core.Recalibration  # Corrects the costs that models expect.
  discount: float
  cost_discount: float
  lambda_: float
  horizon: int
  entropy_scale: float  # Weight of the policy's entropy before squashing; the paper has none.
  bounded_critics: bool = True  # Whether critics learn the trajectories that bounds select, or those of any sample.


@dataclasses.dataclass(frozen=True)
class PolicyProblem:
  """What is given while the policy takes one step."""

  objective: Objective
  num_actions: int  # A
  policy: Callable[[core.Params, types.Array], Any]  # Maps (xi, features [..., F]) to a distribution over actions.
  world_model: core.WorldModel
  samples: core.Params  # theta_1, ..., theta_N, leaves [N, ...].
  start: types.Nest  # States [S, ...] from which to imagine.
  value: Callable[[types.Array], types.Array]  # The critic, features [..., F] to values [...].
  cost_values: Callable[[types.Array], types.Array]  # Safety critics, features [..., F] to values [..., C].
  target_value: Callable[[types.Array], types.Array]  # The target critic, from which the critic's loss bootstraps.
  target_cost_values: Callable[[types.Array], types.Array]  # Likewise of the safety critics.
  solver_state: Any  # Multipliers lambda_k and penalty mu_k.
  cost_factors: types.Array  # [H, C], of the costs that models expect at each step ahead.
  constrained: types.Array  # [S], weight of each start state in the J_i that are compared with budgets.
  devices: devices_lib.Devices  # On which start states are in parts.
  num_reward_models: int | None = None  # Rewards are bounded over the first so many of the N samples; None is all.


class Estimates(NamedTuple):
  """What imagined trajectories are worth. Behind an axis N, if there are several models."""

  values: types.Array  # [S, H], V_lambda(s_0), ..., V_lambda(s_{H-1}).
  cost_values: types.Array  # [S, H, C], likewise.
  entropy: types.Array  # [S, H], of the policy in these states.
  weights: types.Array  # [S, H], probability that they are reached: constants.
  rewards: types.Array  # [S, H], predicted in s_1, ..., s_H.
  costs: types.Array  # [S, H, C], likewise.
  continuations: types.Array  # [S, H], probabilities that the episode has not ended there.


class CriticData(NamedTuple):
  """Selected trajectories on which one kind of critic is trained."""

  features: types.Array  # [S, H, F], of s_0, ..., s_{H-1}.
  targets: types.Array  # [S, H], V_lambda of these states.
  weights: types.Array  # [S, H], probability that the episode still goes on.


class Outcome(NamedTuple):
  """What came out while the policy's gradient was computed."""

  features: types.Array  # [N, H + 1, S, F], of all imagined states.
  estimates: Estimates  # [N, ...]
  cost_values: types.Array  # [C], the J_i that the solver compares with its budgets.
  metrics: dict[str, types.Array]


def estimate(problem: PolicyProblem, params: core.Params, features: types.Array, entropy: types.Array) -> Estimates:
  """Values trajectories that one model imagined.

  Args:
    problem: Critics and discounts.
    params: theta.
    features: Of s_0, ..., s_H, [H + 1, S, F].
    entropy: Of the policy, [H, S].
  """
  # Outside of imagination's loop: a few large products instead of H small ones each.
  predictions = problem.world_model.predict(params, features[1:])
  time_last = lambda x: jnp.swapaxes(x, 0, 1)
  continuations = time_last(predictions.continuation)
  lambda_values = lambda rewards, next_values, discount: _lambda_values(
    problem, rewards, continuations, next_values, discount
  )
  rewards, costs = time_last(predictions.reward), time_last(predictions.cost) * problem.cost_factors[None]
  return Estimates(
    values=lambda_values(rewards, time_last(problem.value(features[1:])), problem.objective.discount),
    cost_values=jax.vmap(lambda r, v: lambda_values(r, v, problem.objective.cost_discount), -1, -1)(
      costs, time_last(problem.cost_values(features[1:]))
    ),
    entropy=time_last(entropy),
    weights=jax.vmap(discounted_weights)(continuations),
    rewards=rewards,
    costs=costs,
    continuations=continuations,
  )


def _lambda_values(
  problem: PolicyProblem, rewards: types.Array, continuations: types.Array, next_values: types.Array, discount: float
) -> types.Array:
  """V_lambda of trajectories, all arrays [S, H]."""
  each = lambda r, c, v: returns.lambda_values(r, c, v, discount, problem.objective.lambda_)
  return jax.vmap(each)(rewards, continuations, next_values)


def discounted_weights(continuations: types.Array) -> types.Array:
  """Probabilities [H] that s_0, ..., s_{H-1} are reached, from continuations [H] of s_1, ..., s_H."""
  chex.assert_rank(continuations, 1)
  return jax.lax.stop_gradient(jnp.concatenate([jnp.ones_like(continuations[:1]), jnp.cumprod(continuations[:-1])]))


def lagrangian(
  problem: PolicyProblem, estimates: Estimates
) -> tuple[types.Array, tuple[types.Array, dict[str, types.Array]]]:
  """-J(pi) + sum_i Psi_i(pi) (eq. 10), with J and J_i bounded over N posterior samples (algorithm 1).

  All start states teach the policy; the J_i are those of the start states that are constrained.

  Args:
    problem: Bounds, solver and its state.
    estimates: Of N models, [N, ...].

  Returns:
    The loss [], differentiable in `estimates`; and the J_i [C] with metrics.
  """
  objective = problem.objective
  weights = jax.lax.stop_gradient(jnp.mean(estimates.weights, axis=0))
  weights /= jnp.sum(weights)
  bounded = jnp.sum(
    weights * bounds.apply_bound(objective.reward_bound, estimates.values[: problem.num_reward_models])[0]
  )
  constrained = weights * problem.constrained[:, None]
  constrained /= jnp.maximum(jnp.sum(constrained), 1e-20)

  def bound_cost(values):
    bounded = bounds.apply_bound(objective.cost_bound, values)[0]  # [S, H]
    everywhere = jnp.sum(weights * bounded)
    return everywhere + jax.lax.stop_gradient(jnp.sum(constrained * bounded) - everywhere)

  bounded_costs = jax.vmap(bound_cost, -1)(estimates.cost_values)
  penalty = objective.solver.penalty(problem.solver_state, bounded_costs, objective.budgets)
  loss = -bounded + penalty
  entropy = jnp.mean(estimates.entropy)
  if objective.entropy_scale:
    loss -= objective.entropy_scale * entropy
  metrics = {
    'policy_loss': loss,
    'objective': bounded,
    'penalty': penalty,
    'entropy': entropy,
    'imagined_reward': jnp.mean(estimates.rewards),
    'value_spread': _spread(estimates.values[: problem.num_reward_models]),
  }
  for i in range(bounded_costs.shape[0]):
    metrics[f'cost_value/{i}'] = bounded_costs[i]
    metrics[f'imagined_cost/{i}'] = jnp.mean(estimates.costs[..., i])
    metrics[f'cost_value_spread/{i}'] = _spread(estimates.cost_values[..., i])
  return loss, (bounded_costs, metrics)


def critic_data(problem: PolicyProblem, outcome: Outcome, key: core.Key) -> tuple[CriticData, CriticData]:
  """The trajectories that the bounds selected, for the critic and, [C, ...], for the safety critics. Constants.

  The policy's values bootstrap from the critics as they are, these from target critics (eq. 9). Where a bound gives
  weight to several samples, one of them is drawn by its weight for each start state: critics then cost the same
  whatever N is. Without `bounded_critics` all samples weigh the same.
  """
  objective = problem.objective

  def select(bound, num_models, values, rewards, target_value, discount):  # [N, S, H], [N, S, H]
    of_models = lambda x: x[:num_models]
    features, continuations, weights = map(
      of_models, (outcome.features, outcome.estimates.continuations, outcome.estimates.weights)
    )
    values, rewards = of_models(values), of_models(rewards)
    sample_weights = bounds.critic_weights(bounds.apply_bound(bound, values)[1])  # [N, S]
    if not objective.bounded_critics:
      sample_weights = jnp.ones_like(sample_weights)
    chosen = jax.random.categorical(key, jnp.log(sample_weights + 1e-20), axis=0)  # [S]

    def take(chosen, features, rewards, continuations, weights):
      starts = jnp.arange(rewards.shape[1])
      features = features[chosen, :, starts]  # [S, H + 1, F]
      targets = _lambda_values(
        problem, rewards[chosen, starts], continuations[chosen, starts], target_value(features[:, 1:]), discount
      )
      return CriticData(features=features[:, :-1], targets=targets, weights=weights[chosen, starts])

    return problem.devices.map(take, in_axes=(0, 2, 1, 1, 1), out_axes=0)(
      chosen, features, rewards, continuations, weights
    )

  def select_cost(values, costs, index):
    target_value = lambda features: problem.target_cost_values(features)[..., index]
    return select(objective.cost_bound, None, values, costs, target_value, objective.cost_discount)

  estimates = outcome.estimates
  return jax.lax.stop_gradient(
    (
      select(
        objective.reward_bound,
        problem.num_reward_models,
        estimates.values,
        estimates.rewards,
        problem.target_value,
        objective.discount,
      ),
      jax.vmap(select_cost, (-1, -1, 0))(estimates.cost_values, estimates.costs, jnp.arange(estimates.costs.shape[-1])),
    )
  )


def critic_loss(
  params: core.Params, apply: Callable[[core.Params, types.Array], types.Array], data: CriticData
) -> types.Array:
  """Eq. 9, [], on trajectories [S, H, F]."""
  return returns.value_loss(apply(params, data.features), data.targets, data.weights)


def critic_gradient(
  params: core.Params,
  apply: Callable[[core.Params, types.Array], types.Array],
  data: CriticData,
  chunk_size: int | None,
) -> tuple[types.Array, core.Params]:
  """`critic_loss` and its gradient, `chunk_size` start states at a time: caches are faster than memory."""
  num_starts = data.targets.shape[0]
  if chunk_size is None or num_starts <= chunk_size:
    return jax.value_and_grad(critic_loss)(params, apply, data)
  total = jnp.sum(data.weights)
  padding = -num_starts % chunk_size  # Trajectories of weight 0.
  pad = lambda x: jnp.pad(x, [(0, padding)] + [(0, 0)] * (x.ndim - 1))
  chunks = jax.tree.map(lambda x: pad(x).reshape((-1, chunk_size) + x.shape[1:]), data)

  def add_chunk(sums, chunk):
    loss = lambda params: critic_loss(params, apply, chunk) * jnp.sum(chunk.weights) / total
    return jax.tree.map(jnp.add, sums, jax.value_and_grad(loss)(params)), None

  zeros = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, params))
  return jax.lax.scan(add_chunk, zeros, chunks)[0]


def _spread(values: types.Array) -> types.Array:
  """How far N models disagree about a start state's value, [N, S, H] to []."""
  return jnp.mean(jnp.std(jnp.mean(values, axis=-1), axis=0))
