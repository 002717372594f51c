"""The learner of the baselines: one jitted update of policy, multipliers and critics on each epoch's rollout."""

from collections.abc import Callable, Sequence
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lambda_kit import core
from lambda_kit import types
from lambda_kit.agents.on_policy import gae
from lambda_kit.agents.on_policy import gaussian
from lambda_kit.agents.on_policy import interfaces
from lambda_kit.agents.on_policy import surrogates
from lambda_kit.models import normalizer
from lambda_kit.models import optimizers


class OnPolicyState(NamedTuple):
  """All state of the learner: a checkpoint is this one pytree."""

  policy: core.Params
  policy_optimizer: Any  # Multipliers included.
  critics: core.Params  # [1 + C, ...]
  critics_optimizer: optax.OptState
  normalizer: normalizer.State
  updates: types.Array  # []
  key: core.Key


class Returns(NamedTuple):
  """How signals are summed over time: first the reward, then the C costs."""

  discounts: np.ndarray  # [1 + C]
  lambdas: np.ndarray  # [1 + C], of GAE.


class CriticTraining(NamedTuple):
  learning_rate: float
  iterations: int
  batch_size: int | None  # Agent steps drawn at random for each iteration; None for all.


class OnPolicyLearner(interfaces.OnPolicyLearner[OnPolicyState]):
  """Learns from one rollout at a time.

  Args:
    networks: Policy and critics.
    policy_optimizer: How the policy is improved.
    limits: d, on an episode's undiscounted costs, [C].
    returns: Discounts and lambdas.
    critic_training: How critics learn.
    normalize: Whether vector observations are normalised. Statistics change at the end of an update, so that a rollout
      is learned from with the statistics that it was collected with.
    key: Seeds everything random.
    max_skips: Non-finite gradients in a row that end training.
  """

  def __init__(
    self,
    networks: gaussian.OnPolicyNetworks,
    policy_optimizer: interfaces.PolicyOptimizer,
    limits: np.ndarray,
    returns: Returns,
    critic_training: CriticTraining,
    normalize: bool,
    key: core.Key,
    max_skips: int,
  ):
    self._max_skips = max_skips
    self._rollout: types.Rollout | None = None
    adam = optimizers.make_adam(critic_training.learning_rate, clip_norm=math.inf, eps=1e-8)

    def init(key: core.Key) -> OnPolicyState:
      policy_key, critics_key, state_key = jax.random.split(key, 3)
      policy, critics = networks.policy.init(policy_key), networks.critics.init(critics_key)
      return OnPolicyState(
        policy=policy,
        policy_optimizer=policy_optimizer.init(policy, networks.num_constraints),
        critics=critics,
        critics_optimizer=adam.init(critics),
        normalizer=normalizer.init(networks.observation_spec),
        updates=jnp.zeros((), jnp.int32),
        key=state_key,
      )

    def update(state: OnPolicyState, rollout: types.Rollout) -> tuple[OnPolicyState, dict[str, types.Array]]:
      key, policy_key, critics_key = jax.random.split(state.key, 3)
      observation = gaussian.normalize(state.normalizer, rollout.observation)
      next_observation = gaussian.normalize(state.normalizer, rollout.next_observation)
      values, next_values = (networks.critics.apply(state.critics, x) for x in (observation, next_observation))
      advantages, targets = estimate(rollout, values, next_values, returns)
      observation, action, advantages, targets, weight = jax.tree.map(
        lambda x: x.reshape((-1,) + x.shape[2:]), (observation, rollout.action, advantages, targets, rollout.weight)
      )

      policy = networks.policy.apply(state.policy, observation)
      batch = surrogates.Batch(
        observation,
        action,
        surrogates.standardise(advantages[:, 0], weight, scale=True),
        # Not scaled: CPO compares them with the violation, and multipliers are prices per unit of cost.
        jax.vmap(lambda x: surrogates.standardise(x, weight, scale=False), 1, 1)(advantages[:, 1:]),
        weight,
        policy,
        policy.log_prob(action),
      )
      costs = surrogates.EpisodeCosts(rollout.cost_return, jnp.asarray(limits, jnp.float32), rollout.episode_length)
      optimizer_state, policy_params, metrics = policy_optimizer.update(
        state.policy_optimizer, state.policy, networks.policy.apply, batch, costs, policy_key
      )
      critics, critics_optimizer, losses = fit_critics(
        networks.critics.apply,
        adam,
        critic_training,
        state.critics,
        state.critics_optimizer,
        _CriticData(observation, targets, weight),
        critics_key,
      )
      metrics.update(critic_loss=losses[0], cost_critic_loss=jnp.sum(losses[1:]))
      statistics = normalizer.update(state.normalizer, rollout.observation) if normalize else state.normalizer
      new_state = OnPolicyState(
        policy_params, optimizer_state, critics, critics_optimizer, statistics, state.updates + 1, key
      )
      return new_state, metrics

    self._update = jax.jit(update, donate_argnums=0)
    # Copies, since actors keep their variables while an update reuses the learner's buffers.
    self._policy_source = jax.jit(
      lambda state: jax.tree.map(jnp.copy, dict(policy=state.policy, normalizer=state.normalizer))
    )
    self._state = jax.jit(init)(key)

  def collect(self, rollout: types.Rollout) -> None:
    self._rollout = rollout

  def step(self, num_updates: int) -> dict[str, float]:
    if self._rollout is None or num_updates != 1:
      raise ValueError(
        'An on-policy agent takes one update for each rollout: bind experiment.loop_factory = '
        '@RolloutLoop and experiment.schedule = None.'
      )
    self._state, metrics = self._update(self._state, self._rollout)
    self._rollout = None
    metrics = {name: float(value) for name, value in jax.device_get(metrics).items()}
    skips = int(optimizers.consecutive_skips(self._state))
    if skips > self._max_skips:
      raise optimizers.TrainingDiverged(
        f'Gradients were not finite {skips} times in a row (after {int(self._state.updates)} updates). Look at the '
        'last rows of learner.jsonl, and lower the learning rate of the part whose loss grew.'
      )
    return metrics

  def get_variables(self, names: Sequence[str]) -> list[Any]:
    """Offers 'policy', which includes the statistics of observations."""
    return [{'policy': self._policy_source}[name](self._state) for name in names]

  def save(self) -> OnPolicyState:
    return self._state

  def restore(self, state: OnPolicyState) -> None:
    self._state = jax.tree.map(jnp.copy, state)


def estimate(
  rollout: types.Rollout, values: types.Array, next_values: types.Array, returns: Returns
) -> tuple[types.Array, types.Array]:
  """Advantages, and targets of the critics, for reward and costs.

  Args:
    rollout: [T, k, ...].
    values: v(o_t) for reward and costs, [T, k, 1 + C].
    next_values: v(o'_t), [T, k, 1 + C].
    returns: Discounts and lambdas.

  Returns:
    Advantages by GAE, and discounted sums to the end of each episode (lambda = 1), both [T, k, 1 + C].
  """
  signals = jnp.concatenate([rollout.reward[..., None], rollout.cost], axis=-1)

  def of_signal(signals, values, next_values, discount, lambda_):  # [T, k]
    one = lambda rewards, ends, is_last, values, next_values, lambda_: gae.advantages(
      rewards, discount * ends, is_last, values, next_values, lambda_
    )
    return jax.vmap(one, in_axes=(1, 1, 1, 1, 1, None), out_axes=1)(
      signals, rollout.discount, rollout.is_last, values, next_values, lambda_
    )

  of_signals = jax.vmap(of_signal, in_axes=(2, 2, 2, 0, 0), out_axes=2)
  discounts, lambdas = (jnp.asarray(x, jnp.float32) for x in (returns.discounts, returns.lambdas))
  advantages = of_signals(signals, values, next_values, discounts, lambdas)
  targets = values + of_signals(signals, values, next_values, discounts, jnp.ones_like(lambdas))
  return advantages, targets


class _CriticData(NamedTuple):
  observation: types.Observation  # [M, ...]
  targets: types.Array  # [M, 1 + C]
  weight: types.Array  # [M]


def fit_critics(
  apply: Callable[[core.Params, types.Observation], types.Array],
  adam: optax.GradientTransformation,
  training: CriticTraining,
  params: core.Params,
  optimizer: optax.OptState,
  data: _CriticData,
  key: core.Key,
) -> tuple[core.Params, optax.OptState, types.Array]:
  """Regresses critics on their targets. Returns parameters, optimiser state and first losses [1 + C]."""

  def loss(params: core.Params, data: _CriticData) -> tuple[types.Array, types.Array]:
    errors = (apply(params, data.observation) - data.targets) ** 2
    losses = jax.vmap(lambda x: surrogates.weighted_mean(x, data.weight), in_axes=1)(errors)
    return jnp.sum(losses), losses

  def body(carry, i):
    params, optimizer = carry
    gradients, losses = jax.grad(loss, has_aux=True)(
      params, surrogates.subset(data, jax.random.fold_in(key, i), training.batch_size)
    )
    changes, optimizer = adam.update(gradients, optimizer, params)
    return (optax.apply_updates(params, changes), optimizer), losses

  (params, optimizer), losses = jax.lax.scan(body, (params, optimizer), jnp.arange(training.iterations))
  return params, optimizer, losses[0]
