"""LAMBDA's learner: a jitted update of model, posterior, policy, critics and multipliers (algorithm 2, lines 4-10)."""

import itertools
from typing import Any, Callable, NamedTuple, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lambda_kit import core
from lambda_kit.models import optimizers
from lambda_kit import types
from lambda_kit.agents.lambda_ import devices as devices_lib
from lambda_kit.agents.lambda_ import losses
from lambda_kit.agents.lambda_ import networks as networks_lib
from lambda_kit.agents.lambda_ import policy_gradients
from lambda_kit.models import normalizer


class Module(NamedTuple):
  """Parameters that one optimiser trains."""
  params: core.Params
  optimizer: optax.OptState


class LearnerState(NamedTuple):
  """All that changes while learning; a checkpoint is this one pytree."""
  posterior: Any
  normalizer: normalizer.State
  policy: Module
  critic: Module
  critic_shadow: core.Params
  cost_critics: Module  # Leaves of params [C, ...].
  cost_critics_shadow: core.Params
  solver: Any
  updates: types.Array  # []
  key: core.Key


class LambdaLearner(core.Learner[LearnerState]):
  """Learns from batches of a dataset.

  Args:
    networks: World model, policy and critics.
    posterior: How the model's weights are learned and sampled.
    objective: What the policy maximises.
    policy_gradient: How its gradient is computed, see `policy_gradients`.
    dataset: Has `batches(n)`, an iterator over n batches.
    example: A batch with the shapes of those of the dataset.
    policy_optimizer, critic_optimizer, cost_critic_optimizer: Optimisers with skipping of non-finite gradients.
    target_update: Maps (online, shadow, updates) to new shadow parameters.
    num_samples: N.
    num_start_states: Start states drawn from the B L inferred ones; None takes all.
    num_constraints: C.
    model_only_updates: During the first so many updates only the model learns.
    updates_per_call: Updates that one call of the compiled program takes. Small networks learn faster with more of
      them: each call costs as much as some updates.
    key: Everything random follows from it.
    max_skips: Non-finite gradients in a row before training is stopped.
    devices: Where to compute.
  """

  def __init__(self, networks: networks_lib.LambdaNetworks, posterior: core.Posterior, objective: losses.Objective,
               policy_gradient: policy_gradients.PolicyGradient, dataset: Any, example: types.Trajectory,
               policy_optimizer: optax.GradientTransformation, critic_optimizer: optax.GradientTransformation,
               cost_critic_optimizer: optax.GradientTransformation,
               target_update: Callable[[core.Params, core.Params, types.Array], core.Params], num_samples: int,
               num_start_states: int | None, num_constraints: int, model_only_updates: int, updates_per_call: int,
               key: core.Key, max_skips: int, devices: devices_lib.Devices):
    self._networks = networks
    self._posterior = posterior
    self._dataset = dataset
    self._updates_per_call = updates_per_call
    self._max_skips = max_skips
    self._devices = devices

    def init(key: core.Key) -> LearnerState:
      model_key, policy_key, critic_key, cost_key, state_key = jax.random.split(key, 5)
      size = networks.feature_size
      critic, cost_critics = networks.critic.init(critic_key, size), networks.cost_critics.init(cost_key, size)
      policy = networks.policy.init(policy_key, size)
      return LearnerState(
          posterior=posterior.init(model_key, lambda key: networks.world_model.init(key, example)),
          normalizer=normalizer.init(networks.observation_spec),
          policy=Module(policy, policy_optimizer.init(policy)),
          critic=Module(critic, critic_optimizer.init(critic)),
          critic_shadow=jax.tree.map(jnp.copy, critic),
          cost_critics=Module(cost_critics, cost_critic_optimizer.init(cost_critics)),
          cost_critics_shadow=jax.tree.map(jnp.copy, cost_critics),
          solver=objective.solver.init(num_constraints),
          updates=jnp.zeros((), jnp.int32),
          key=state_key)

    def critic_gradient(params: core.Params, apply: Callable[[core.Params, types.Array], types.Array],
                        data: losses.CriticData) -> tuple[types.Array, core.Params]:
      gradient = lambda params, data: losses.critic_gradient(params, apply, data, policy_gradient.chunk_size)
      return devices.mean(gradient, params, data, data.weights)

    def update(state: LearnerState, batch: types.Trajectory) -> tuple[LearnerState, dict[str, types.Array]]:
      key, model_key, sample_key, start_key, policy_key = jax.random.split(state.key, 5)
      statistics = normalizer.update(state.normalizer, batch.observation)
      batch = batch._replace(observation=normalizer.normalize(statistics, batch.observation))

      # The model, and with it the posterior over its weights (lines 5 and 6).
      posterior_state, output, metrics = posterior.update(
          state.posterior, lambda params, key: networks.world_model.loss(params, batch, key, devices.over_batch),
          model_key)
      metrics = {**metrics, **output.metrics}
      samples = posterior.sample(posterior_state, sample_key, num_samples)
      start = devices.split(_start_states(output.states, num_start_states, start_key))

      # The policy, on bounds over the samples (lines 7 and 9).
      setting = losses.Setting(
          objective, networks.action_spec.shape[0], networks.policy.apply, networks.world_model, samples, start,
          value=lambda features: networks.critic.apply(state.critic_shadow, features),
          cost_values=lambda features: networks.cost_critics.apply(state.cost_critics_shadow, features),
          solver_state=state.solver, devices=devices)
      gradients, policy_output = policy_gradient(setting, state.policy.params, policy_key)
      metrics['policy_gradient_norm'] = optax.tree.norm(gradients)
      policy = _apply(policy_optimizer, state.policy, gradients)

      # The critics, on the trajectories that the bounds selected (line 8).
      critic_loss, gradients = critic_gradient(state.critic.params, networks.critic.apply, policy_output.critic)
      critic = _apply(critic_optimizer, state.critic, gradients)
      metrics['critic_gradient_norm'] = optax.tree.norm(gradients)

      cost_critic_losses, gradients = jax.vmap(
          lambda params, data: critic_gradient(params, networks.single_cost_critic, data))(
              state.cost_critics.params, policy_output.cost_critics)
      cost_critics = _apply(cost_critic_optimizer, state.cost_critics, gradients)
      metrics['cost_critic_gradient_norm'] = optax.tree.norm(gradients)

      # The multipliers (line 10).
      solver = objective.solver.update(state.solver, policy_output.cost_values, objective.budgets)
      metrics.update(policy_output.metrics, critic_loss=critic_loss, cost_critic_loss=jnp.sum(cost_critic_losses))
      updates = state.updates + 1
      new_state = LearnerState(
          posterior=posterior_state, normalizer=statistics, policy=policy, critic=critic,
          critic_shadow=target_update(critic.params, state.critic_shadow, updates),
          cost_critics=cost_critics,
          cost_critics_shadow=target_update(cost_critics.params, state.cost_critics_shadow, updates),
          solver=solver, updates=updates, key=key)
      new_state = _hold(new_state, state, state.updates < model_only_updates)
      for i, multiplier in enumerate(objective.solver.multipliers(new_state.solver)):
        metrics[f'multiplier/{i}'] = multiplier
      return new_state, metrics

    def update_many(state: LearnerState, batches: Sequence[types.Trajectory]
                    ) -> tuple[LearnerState, dict[str, types.Array]]:
      state, metrics = jax.lax.scan(update, state, jax.tree.map(lambda *x: jnp.stack(x), *batches))
      return state, jax.tree.map(lambda x: jnp.mean(x, axis=0), metrics)

    self._update = devices.jit(update, donate_argnums=(0,))
    self._update_many = devices.jit(update_many, donate_argnums=(0,))
    # Copies: actors keep their variables while the learner's buffers are reused.
    self._sources = {
        'belief': devices.jit(lambda state: jax.tree.map(jnp.copy, dict(
            model=posterior.mean(state.posterior), normalizer=state.normalizer, updates=state.updates))),
        'policy': devices.jit(lambda state: jax.tree.map(jnp.copy, state.policy.params)),
        'samples': devices.jit(lambda state: posterior.sample(state.posterior, jax.random.fold_in(state.key, 1),
                                                          num_samples)),
    }
    self._state = devices.jit(init)(key)

  def step(self, num_updates: int) -> dict[str, float]:
    """Takes `num_updates` updates; returns the means of their metrics."""
    rows, weights = [], []  # Still on the device: nothing waits until all updates are under way.
    batches = self._dataset.batches(num_updates)
    while group := tuple(itertools.islice(batches, self._updates_per_call)):
      if len(group) == self._updates_per_call > 1:
        self._state, metrics = self._update_many(self._state, group)
        rows.append(metrics)
        weights.append(len(group))
      else:
        for batch in group:
          self._state, metrics = self._update(self._state, batch)
          rows.append(metrics)
          weights.append(1)
    rows = jax.device_get(rows)
    self._check_skips()
    return {name: float(np.average([row[name] for row in rows], weights=weights)) for name in rows[0]}

  def get_variables(self, names: Sequence[str]) -> list[Any]:
    """Offers 'belief' (what states are filtered with), 'policy' and 'samples' (models for a planner)."""
    return [self._devices.local(self._sources[name](self._state)) for name in names]

  def save(self) -> LearnerState:
    return self._state

  def restore(self, state: LearnerState) -> None:
    self._state = self._devices.replicate(state)

  def share_updates(self, share: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> None:
    """Lets updates be computed together with those of other learners.

    Args:
      share: Maps the name of a jitted update and the update itself to a function that does the same for this learner.
    """
    if self._devices.count > 1:
      raise ValueError(f'LambdaAgent.num_devices = {self._devices.count}: updates of several seeds need one device.')
    self._update = share('update', self._update)
    self._update_many = share('update_many', self._update_many)

  def _check_skips(self) -> None:
    state = self._devices.local(self._state)
    modules = {'model': state.posterior, 'policy': state.policy, 'critic': state.critic,
               'cost critics': state.cost_critics}
    for name, module in modules.items():
      skips = int(optimizers.consecutive_skips(module))
      if skips > self._max_skips:
        raise optimizers.TrainingDiverged(
            f'The gradient of the {name} was not finite in {skips} updates in a row (after {int(state.updates)} '
            'updates). Look at the last rows of learner.jsonl: a growing loss or gradient norm says which part blew up '
            'first. Remedies: a smaller learning rate or gradient clip of that part, a smaller initial penalty.')


def _hold(new: LearnerState, old: LearnerState, holds: types.Array) -> LearnerState:
  """The new state, but for all that is learned in imagination: where it `holds` [], it stays as it is."""
  names = ('policy', 'critic', 'critic_shadow', 'cost_critics', 'cost_critics_shadow', 'solver')
  stay = lambda name: jax.tree.map(lambda new, old: jnp.where(holds, old, new), getattr(new, name), getattr(old, name))
  return new._replace(**{name: stay(name) for name in names})


def _apply(optimizer: optax.GradientTransformation, module: Module, gradients: core.Params) -> Module:
  changes, optimizer_state = optimizer.update(gradients, module.optimizer, module.params)
  return Module(optax.apply_updates(module.params, changes), optimizer_state)


def _start_states(states: types.Nest, count: int | None, key: core.Key) -> types.Nest:
  """Flattens inferred states [B, L, ...] to [S, ...], all of them or `count` without repetition. Gradients stop."""
  flat = jax.tree.map(lambda x: jax.lax.stop_gradient(x).reshape((-1,) + x.shape[2:]), states)
  if count is None:
    return flat
  available = jax.tree.leaves(flat)[0].shape[0]
  if count > available:
    raise ValueError(f'num_start_states = {count} is more than the {available} states of a batch (B L).')
  chosen = jax.random.choice(key, available, (count,), replace=False)
  return jax.tree.map(lambda x: x[chosen], flat)
