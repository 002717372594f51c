"""One update of LAMBDA: model, posterior, policy, critics and multipliers (algorithm 2, lines 4-10)."""

from collections.abc import Callable
import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from lambda_kit import core
from lambda_kit import types
from lambda_kit.agents.lambda_ import devices as devices_lib
from lambda_kit.agents.lambda_ import held_out as held_out_lib
from lambda_kit.agents.lambda_ import imagination
from lambda_kit.agents.lambda_ import networks as networks_lib
from lambda_kit.agents.lambda_ import objective as objective_lib
from lambda_kit.agents.lambda_ import policy_gradients
from lambda_kit.models import batch_loss
from lambda_kit.models import normalizer
from lambda_kit.policies import targets


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
  target_critic: core.Params
  cost_critics: Module  # Leaves of params [C, ...].
  target_cost_critics: core.Params
  solver: Any
  feedback: Any
  recalibration: Any
  width: Any
  held_out: held_out_lib.HeldOut
  updates: types.Array  # []
  key: core.Key


class Optimizers(NamedTuple):
  """Of what is learned in imagination. They skip non-finite gradients."""

  policy: optax.GradientTransformation
  critic: optax.GradientTransformation
  cost_critics: optax.GradientTransformation


Update = Callable[[LearnerState, types.Trajectory], tuple[LearnerState, dict[str, types.Array]]]


def make_init(
  networks: networks_lib.LambdaNetworks,
  posterior: core.Posterior,
  width: core.Width,
  objective: objective_lib.Objective,
  optimizers: Optimizers,
) -> Callable[[core.Key], LearnerState]:
  """The first state, as a function of a key."""

  def init(key: core.Key) -> LearnerState:
    model_key, policy_key, critic_key, cost_key, state_key = jax.random.split(key, 5)
    size, example = networks.feature_size, networks_lib.example_batch(networks.spec)
    critic, cost_critics = networks.critic.init(critic_key, size), networks.cost_critics.init(cost_key, size)
    policy = networks.policy.init(policy_key, size)
    return LearnerState(
      posterior=posterior.init(model_key, lambda key: networks.world_model.init(key, example)),
      normalizer=normalizer.init(networks.spec.observations),
      policy=Module(policy, optimizers.policy.init(policy)),
      critic=Module(critic, optimizers.critic.init(critic)),
      target_critic=jax.tree.map(jnp.copy, critic),
      cost_critics=Module(cost_critics, optimizers.cost_critics.init(cost_critics)),
      target_cost_critics=jax.tree.map(jnp.copy, cost_critics),
      solver=objective.solver.init(networks.spec.num_constraints),
      feedback=objective.feedback.init(networks.spec.num_constraints),
      recalibration=objective.recalibration.init(objective.horizon, networks.spec.num_constraints),
      width=width.init(),
      held_out=held_out_lib.init(
        held_out_lib.scored_parts(networks.spec.observations),
        len(width.scales),
        objective.horizon,
        networks.spec.num_constraints,
      ),
      updates=jnp.zeros((), jnp.int32),
      key=state_key,
    )

  return init


def make_update(
  *,
  networks: networks_lib.LambdaNetworks,
  posterior: core.Posterior,
  width: core.Width,
  objective: objective_lib.Objective,
  policy_gradient: policy_gradients.PolicyGradient,
  optimizers: Optimizers,
  target_update: targets.TargetUpdate,
  num_samples: int,
  num_reward_samples: int | None,
  shared_noise: bool,
  num_start_states: int | None,
  num_constrained: int | None,
  model_only_updates: int,
  devices: devices_lib.Devices,
) -> Update:
  """One update from one batch, as a pure function; the arguments are those of `LambdaLearner`."""
  world_model = networks.world_model
  factors = cost_factors(networks, objective)

  def critic_gradient(
    params: core.Params, apply: Callable[[core.Params, types.Array], types.Array], data: objective_lib.CriticData
  ) -> tuple[types.Array, core.Params]:
    gradient = lambda params, data: objective_lib.critic_gradient(params, apply, data, policy_gradient.chunk_size)
    return devices.mean(gradient, params, data, data.weights)

  def update(state: LearnerState, batch: types.Trajectory) -> tuple[LearnerState, dict[str, types.Array]]:
    key, model_key, sample_key, start_key, policy_key = jax.random.split(state.key, 5)
    statistics = normalizer.update(state.normalizer, batch.observation)
    raw = {name: batch.observation[name] for name in statistics.mean}
    batch = batch._replace(observation=normalizer.normalize(statistics, batch.observation), raw=raw)

    # The model, and with it the posterior over its weights (lines 5 and 6).
    posterior_state, output, metrics = posterior.update(
      state.posterior, batch_loss.BatchLoss(world_model, batch, devices.over_batch), model_key
    )
    metrics = {**metrics, **output.metrics}

    # The policy (lines 7 and 9). N models imagine from the S start states, their trajectories are valued, the values
    # are bounded over the models, and the Lagrangian of the bounds is differentiated.
    start, rows = _start_states(output.states, num_start_states, start_key)
    start = devices.split(start)
    constrained = jnp.ones(rows.shape) if num_constrained is None else (rows < num_constrained).astype(jnp.float32)
    shares = objective.feedback.shares(state.feedback, networks.spec.num_constraints)
    budgets = shares * objective.budgets
    samples = draw_models(
      posterior, posterior_state, sample_key, num_samples, num_reward_samples, width.scale(state.width)
    )
    problem = objective_lib.PolicyProblem(
      objective=dataclasses.replace(objective, budgets=budgets),
      num_actions=networks.spec.num_actions,
      policy=networks.policy.apply,
      world_model=world_model,
      samples=samples,
      num_reward_models=num_reward_samples,
      start=start,
      value=lambda features: networks.critic.apply(state.critic.params, features),
      cost_values=lambda features: networks.cost_critics.apply(state.cost_critics.params, features),
      target_value=lambda features: networks.critic.apply(state.target_critic, features),
      target_cost_values=lambda features: networks.cost_critics.apply(state.target_cost_critics, features),
      solver_state=state.solver,
      cost_factors=factors(state),
      constrained=constrained,
      devices=devices,
    )
    noise_key, select_key = jax.random.split(policy_key)
    noise = imagination.draw_noise(
      noise_key,
      1 if shared_noise else num_samples,
      objective.horizon,
      jax.tree.leaves(start)[0].shape[0],
      networks.spec.num_actions,
      world_model.noise_size,
    )
    gradients, outcome = policy_gradient(problem, state.policy.params, noise)
    policy = _apply(optimizers.policy, state.policy, gradients)
    metrics.update(outcome.metrics, policy_gradient_norm=optax.tree.norm(gradients))

    # The critics, on the trajectories that the bounds selected (line 8).
    critic_data, cost_critic_data = objective_lib.critic_data(problem, outcome, select_key)
    critic_loss, gradients = critic_gradient(state.critic.params, networks.critic.apply, critic_data)
    critic = _apply(optimizers.critic, state.critic, gradients)
    metrics.update(critic_loss=critic_loss, critic_gradient_norm=optax.tree.norm(gradients))

    cost_critic_losses, gradients = jax.vmap(
      lambda params, data: critic_gradient(params, networks.single_cost_critic, data)
    )(state.cost_critics.params, cost_critic_data)
    cost_critics = _apply(optimizers.cost_critics, state.cost_critics, gradients)
    metrics.update(cost_critic_loss=jnp.sum(cost_critic_losses), cost_critic_gradient_norm=optax.tree.norm(gradients))

    # The multipliers (line 10), and whether real costs may correct their budgets.
    solver = objective.solver.update(state.solver, outcome.cost_values, budgets)
    multipliers = objective.solver.multipliers(solver)
    feedback = objective.feedback.observe_update(state.feedback, outcome.cost_values, budgets, multipliers)

    updates = state.updates + 1
    new_state = LearnerState(
      posterior=posterior_state,
      normalizer=statistics,
      policy=policy,
      critic=critic,
      target_critic=target_update(critic.params, state.target_critic, updates),
      cost_critics=cost_critics,
      target_cost_critics=target_update(cost_critics.params, state.target_cost_critics, updates),
      solver=solver,
      feedback=feedback,
      recalibration=state.recalibration,
      width=state.width,
      held_out=state.held_out,
      updates=updates,
      key=key,
    )
    new_state = _hold(new_state, state, state.updates < model_only_updates)
    for i, multiplier in enumerate(objective.solver.multipliers(new_state.solver)):
      metrics[f'multiplier/{i}'] = multiplier
      metrics[f'budget_share/{i}'] = shares[i]
    return new_state, metrics

  return update


def draw_models(
  posterior: core.Posterior,
  state: Any,
  key: core.Key,
  num_samples: int,
  num_reward_samples: int | None,
  scale: types.Array | None,
) -> core.Params:
  """N samples of theta, [N, ...]. The first `num_reward_samples` are drawn at the posterior's own width."""
  if num_reward_samples is None or scale is None:
    return posterior.sample(state, key, num_samples, scale)
  parts = [posterior.sample(state, jax.random.fold_in(key, 1), num_reward_samples, 1.0)]
  if num_samples > num_reward_samples:
    parts.append(posterior.sample(state, key, num_samples - num_reward_samples, scale))
  return jax.tree.map(lambda *x: jnp.concatenate(x), *parts)


def cost_factors(
  networks: networks_lib.LambdaNetworks, objective: objective_lib.Objective
) -> Callable[[LearnerState], types.Array]:
  """How the costs that models expect are corrected, [H, C]."""
  return lambda state: objective.recalibration.factors(
    state.recalibration, objective.horizon, networks.spec.num_constraints
  )


def _hold(new: LearnerState, old: LearnerState, holds: types.Array) -> LearnerState:
  """The new state, but for all that is learned in imagination: where it `holds` [], it stays as it is."""
  names = ('policy', 'critic', 'target_critic', 'cost_critics', 'target_cost_critics', 'solver', 'feedback')
  stay = lambda name: jax.tree.map(lambda new, old: jnp.where(holds, old, new), getattr(new, name), getattr(old, name))
  return new._replace(**{name: stay(name) for name in names})


def _apply(optimizer: optax.GradientTransformation, module: Module, gradients: core.Params) -> Module:
  changes, optimizer_state = optimizer.update(gradients, module.optimizer, module.params)
  return Module(optax.apply_updates(module.params, changes), optimizer_state)


def _start_states(states: types.Nest, count: int | None, key: core.Key) -> tuple[types.Nest, types.Array]:
  """Flattens inferred states [B, L, ...] to [S, ...], all of them or `count` without repetition. Gradients stop.

  Also returns which of the B sequences each is from, [S].
  """
  batch_size, length = jax.tree.leaves(states)[0].shape[:2]
  flat = jax.tree.map(lambda x: jax.lax.stop_gradient(x).reshape((-1,) + x.shape[2:]), states)
  available = batch_size * length
  if count is None:
    return flat, jnp.arange(available) // length
  chosen = jax.random.choice(key, available, (count,), replace=False)
  return jax.tree.map(lambda x: x[chosen], flat), chosen // length
