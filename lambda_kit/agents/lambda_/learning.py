"""LAMBDA's learner: a jitted update of model, posterior, policy, critics and multipliers (algorithm 2, lines 4-10)."""

from collections.abc import Callable, Sequence
import dataclasses
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
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
from lambda_kit.models import optimizers as optimizers_lib
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


def make_observe_episode(
  networks: networks_lib.LambdaNetworks,
  posterior: core.Posterior,
  width: core.Width,
  objective: objective_lib.Objective,
  models: Callable[[LearnerState, core.Key], core.Params],
  policy_acts: bool,
  shared_noise: bool,
  belief: Callable[[LearnerState], Any],
) -> Callable[[LearnerState, types.Trajectory, types.Array], tuple[LearnerState, types.Array]]:
  """What is learned from a new episode [T + 1, ...] as a whole, padded behind its T steps, as a pure function.

  Feedback learns what it cost; the width of the posterior and the factors of expected costs, how well samples predicted
  it. Also returns its surprise, [T + 1], 0 as long as nothing was forecast.
  """
  limits = np.asarray(networks.spec.cost_limits, np.float32)
  factors = cost_factors(networks, objective)

  def score(state: LearnerState, episode: types.Trajectory, num_steps: types.Array) -> tuple[LearnerState, types.Array]:
    key = jax.random.fold_in(state.key, 2)
    scores, surprise = held_out_lib.score(
      networks.world_model,
      objective.cost_bound,
      objective.horizon,
      belief(state),
      models(state, key),
      lambda scale: posterior.sample(state.posterior, key, held_out_lib.NUM_SAMPLES, scale),
      width.scales,
      factors(state),
      imagination.policy_sampler(networks.policy.apply, state.policy.params) if policy_acts else None,
      networks.spec.num_actions,
      shared_noise,
      key,
      episode,
      num_steps,
    )
    state = state._replace(
      width=width.observe(state.width, scores.log_likelihood),
      recalibration=objective.recalibration.observe(state.recalibration, scores.raw_forecast, scores.came),
      held_out=held_out_lib.add(state.held_out, scores),
    )
    return state, surprise

  def observe_episode(
    state: LearnerState, episode: types.Trajectory, num_steps: types.Array
  ) -> tuple[LearnerState, types.Array]:
    cost_return = jnp.sum(episode.cost, axis=0)
    state = state._replace(feedback=objective.feedback.observe_episode(state.feedback, cost_return, limits))
    nothing = jnp.zeros(episode.reward.shape)
    if episode.reward.shape[0] <= objective.horizon:
      return state, nothing
    has_learned = (state.updates > 0) & (num_steps >= objective.horizon)
    return jax.lax.cond(has_learned, score, lambda state, *_: (state, nothing), state, episode, num_steps)

  return observe_episode


class LambdaLearner(core.Learner[LearnerState]):
  """Learns from batches of a dataset.

  Args:
    networks: World model, policy and critics.
    posterior: How the model's weights are learned and sampled.
    width: How wide it is.
    objective: What the policy maximises.
    policy_gradient: How its gradient is computed, see `policy_gradients`.
    optimizers: Of the policy and the critics. The model's is the posterior's.
    target_update: Maps (online, target, updates) to new parameters of a target critic.
    num_samples: N.
    num_reward_samples: The first so many of the samples are at the posterior's own width, and rewards are bounded over
      these alone; None to treat all samples alike.
    policy_acts: Whether the policy plays the episodes, and no planner.
    shared_noise: Whether all N models imagine with the same noise.
    filter_with_mean: Whether actors infer states with the posterior's mean, not with the weights in training.
    num_start_states: Start states drawn from the B L inferred ones; None takes all.
    num_constrained: The first so many sequences of a batch are those whose imagined costs are compared with budgets;
      None compares all.
    model_only_updates: During the first so many updates only the model learns.
    updates_per_call: Updates that one call of the compiled program takes. Small networks learn faster with more of
      them: each call costs as much as some updates.
    max_skips: Non-finite gradients in a row before training is stopped.
    dataset: Where batches come from.
    devices: Where to compute.
    key: Everything random follows from it.
  """

  def __init__(
    self,
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
    policy_acts: bool,
    shared_noise: bool,
    filter_with_mean: bool,
    num_start_states: int | None,
    num_constrained: int | None,
    model_only_updates: int,
    updates_per_call: int,
    max_skips: int,
    dataset: core.Dataset,
    devices: devices_lib.Devices,
    key: core.Key,
  ):
    self._dataset = dataset
    self._updates_per_call = updates_per_call
    self._max_skips = max_skips
    self._devices = devices
    update = make_update(
      networks=networks,
      posterior=posterior,
      width=width,
      objective=objective,
      policy_gradient=policy_gradient,
      optimizers=optimizers,
      target_update=target_update,
      num_samples=num_samples,
      num_reward_samples=num_reward_samples,
      shared_noise=shared_noise,
      num_start_states=num_start_states,
      num_constrained=num_constrained,
      model_only_updates=model_only_updates,
      devices=devices,
    )

    def update_many(
      state: LearnerState, batches: Sequence[types.Trajectory]
    ) -> tuple[LearnerState, dict[str, types.Array]]:
      state, metrics = jax.lax.scan(update, state, jax.tree.map(lambda *x: jnp.stack(x), *batches))
      return state, jax.tree.map(lambda x: jnp.mean(x, axis=0), metrics)

    self._update = devices.jit(update, donate_argnums=(0,))
    self._update_many = devices.jit(update_many, donate_argnums=(0,))
    filtering = posterior.mean if filter_with_mean else posterior.current
    belief = lambda state: dict(model=filtering(state.posterior), normalizer=state.normalizer, updates=state.updates)
    models = lambda state, key: draw_models(
      posterior, state.posterior, key, num_samples, num_reward_samples, width.scale(state.width)
    )
    observe_episode = make_observe_episode(
      networks, posterior, width, objective, models, policy_acts, shared_noise, belief
    )
    self._observe_episode = devices.jit(observe_episode, donate_argnums=(0,))
    length = networks.spec.episode_length or 0
    self._episode_steps = -(-length // networks.spec.action_repeat)
    self._width = width
    # Copies: actors keep their variables while the learner's buffers are reused.
    self._sources = {
      'belief': devices.jit(lambda state: jax.tree.map(jnp.copy, belief(state))),
      'policy': devices.jit(lambda state: jax.tree.map(jnp.copy, state.policy.params)),
      'cost_factors': devices.jit(cost_factors(networks, objective)),
      'samples': devices.jit(lambda state: models(state, jax.random.fold_in(state.key, 1))),
    }
    self._state = devices.jit(make_init(networks, posterior, width, objective, optimizers))(key)

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
    means = {name: float(np.average([row[name] for row in rows], weights=weights)) for name in rows[0]}
    return means | self._held_out_metrics()

  def observe_episode(self, episode: types.Trajectory) -> types.Array:
    num_steps = len(episode.reward) - 1
    # Each length is a program of its own: most episodes are as long as the time limit allows, or padded to that.
    length = self._episode_steps if num_steps <= self._episode_steps else 1 << (num_steps - 1).bit_length()
    padding = length - num_steps
    episode = jax.tree.map(lambda x: np.pad(x, [(0, padding)] + [(0, 0)] * (x.ndim - 1)), episode)
    self._state, surprise = self._observe_episode(self._state, episode, num_steps)
    surprise = self._devices.local(surprise)
    return surprise[: num_steps + 1] if padding else surprise

  def get_variables(self, names: Sequence[str]) -> list[Any]:
    """Offers 'belief' (what states are filtered with), 'policy', 'samples' (models for planners), 'cost_factors'."""
    return [self._devices.local(self._sources[name](self._state)) for name in names]

  def save(self) -> LearnerState:
    return self._state

  def restore(self, state: LearnerState) -> None:
    self._state = self._devices.replicate(state)

  def _held_out_metrics(self) -> dict[str, float]:
    """Nothing until an episode has been scored."""
    state = self._devices.local(self._state)
    held_out, scale = jax.device_get((state.held_out, self._width.scale(state.width)))
    if not held_out.weight:
      return {}
    return {
      'posterior_scale': 1.0 if scale is None else float(scale),
      **{name: float(value) for name, value in held_out_lib.metrics(held_out, self._width.scales).items()},
    }

  def _check_skips(self) -> None:
    state = self._devices.local(self._state)
    modules = {
      'model': state.posterior,
      'policy': state.policy,
      'critic': state.critic,
      'cost critics': state.cost_critics,
    }
    for name, module in modules.items():
      skips = int(optimizers_lib.consecutive_skips(module))
      if skips > self._max_skips:
        raise optimizers_lib.TrainingDiverged(
          f'The gradient of the {name} was not finite in {skips} updates in a row (after {int(state.updates)} '
          'updates). Look at the last rows of learner.jsonl: a growing loss or gradient norm says which part blew up '
          'first. Remedies: a smaller learning rate or gradient clip of that part, a smaller initial penalty.'
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
