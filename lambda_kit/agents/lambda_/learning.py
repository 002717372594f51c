"""LAMBDA's learner: compiles the update, takes it on batches of a dataset, and offers what was learned."""

from collections.abc import Sequence
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lambda_kit import core
from lambda_kit import types
from lambda_kit.agents.lambda_ import devices as devices_lib
from lambda_kit.agents.lambda_ import held_out as held_out_lib
from lambda_kit.agents.lambda_ import networks as networks_lib
from lambda_kit.agents.lambda_ import new_episodes
from lambda_kit.agents.lambda_ import objective as objective_lib
from lambda_kit.agents.lambda_ import policy_gradients
from lambda_kit.agents.lambda_ import update as update_lib
from lambda_kit.models import optimizers as optimizers_lib
from lambda_kit.policies import targets


class LambdaLearner(core.Learner[update_lib.LearnerState]):
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
    optimizers: update_lib.Optimizers,
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
    update = update_lib.make_update(
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
      state: update_lib.LearnerState, batches: Sequence[types.Trajectory]
    ) -> tuple[update_lib.LearnerState, dict[str, types.Array]]:
      state, metrics = jax.lax.scan(update, state, jax.tree.map(lambda *x: jnp.stack(x), *batches))
      return state, jax.tree.map(lambda x: jnp.mean(x, axis=0), metrics)

    self._update = devices.jit(update, donate_argnums=(0,))
    self._update_many = devices.jit(update_many, donate_argnums=(0,))
    filtering = posterior.mean if filter_with_mean else posterior.current
    belief = lambda state: dict(model=filtering(state.posterior), normalizer=state.normalizer, updates=state.updates)
    models = lambda state, key: update_lib.draw_models(
      posterior, state.posterior, key, num_samples, num_reward_samples, width.scale(state.width)
    )
    observe_episode = new_episodes.make_observe_episode(
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
      'cost_factors': devices.jit(update_lib.cost_factors(networks, objective)),
      'samples': devices.jit(lambda state: models(state, jax.random.fold_in(state.key, 1))),
    }
    self._state = devices.jit(update_lib.make_init(networks, posterior, width, objective, optimizers))(key)

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

  def save(self) -> update_lib.LearnerState:
    return self._state

  def restore(self, state: update_lib.LearnerState) -> None:
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
