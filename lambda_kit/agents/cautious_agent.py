"""A scripted driver for Point that keeps away from hazards: it makes data to start from, and learns nothing.

It reads the lidars of a Safety-Gymnasium goal task from the vector, so its data fit agents that observe the vector.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import gin
from lambda_kit import core
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.agents import random_agent
from lambda_kit.replay import adder as adder_lib
from lambda_kit.replay import buffer as buffer_lib
from lambda_kit.replay import episodes


@gin.register
@ranges.checked
@dataclasses.dataclass(frozen=True)
class CautiousAgent:
  """Drives Point to the goal, around hazards, with noise that lasts for some steps. Each episode is kept.

  Lidar readings are 1 at an object and fall linearly to 0, so they are raised to high powers: only what is near counts.
  """

  replay_factory: Callable[..., Any] = buffer_lib.EpisodeBuffer  # Makes the store of episodes.
  velocimeter: ranges.Whole = 3  # Entry of the vector with the speed ahead.
  goal_lidar: ranges.Whole = 12  # Entry of the vector with the first reading of the goal's lidar.
  hazard_lidar: ranges.Whole = 28  # Likewise, of the hazards'.
  num_bins: ranges.Count = 16  # Readings of a lidar.
  speed: ranges.Finite = 0.5  # Forward action where nothing is in the way.
  caution: ranges.NotNegative = 60.0  # Weight of hazards beside the goal.
  brake: ranges.NotNegative = 2.0  # Against the speed ahead, where a hazard is in the way.
  noise: ranges.NotNegative = 0.3  # Standard deviation of what is added to actions.
  persistence: ranges.ShareBelowOne = 0.9  # Share of the noise that the next step keeps.

  display_name = 'Cautious'

  def build(self, spec: core.EnvironmentSpec) -> 'CautiousBuilder':
    return CautiousBuilder(self, spec)


class CautiousBuilder(core.AgentBuilder):
  """Makes the parts of the cautious agent, among them a replay that nothing learns from."""

  def __init__(self, config: CautiousAgent, spec: core.EnvironmentSpec):
    vector = spec.observations.get('vector')
    lidars_end = max(config.goal_lidar, config.hazard_lidar) + config.num_bins
    if vector is None or vector.shape[0] < lidars_end or spec.num_actions != 2:
      raise ValueError(
        'CautiousAgent drives Point by the lidars of goal and hazards, so it needs two actions and a vector of at '
        f'least {lidars_end} numbers, and the environment has {spec.num_actions} actions and the observations '
        f'{ {name: list(field.shape) for name, field in spec.observations.items()} }. Choose a task such as '
        'pointgoal1 with a size for vectors.'
      )
    self._config = config
    self._spec = spec

  def make_replay(self, environment_steps: int, seed: int) -> buffer_lib.EpisodeBuffer:
    replay = self._config.replay_factory(header=episodes.Header.of(self._spec), seed=seed)
    replay.check_episodes(self._spec.episode_length)
    return replay

  def make_adder(self, replay: buffer_lib.EpisodeBuffer, learner: core.Learner | None = None) -> adder_lib.EpisodeAdder:
    return adder_lib.EpisodeAdder(replay)

  def make_learner(self, dataset: core.Dataset | None, seed: int) -> random_agent.RandomLearner:
    return random_agent.RandomLearner()

  def make_actor_core(self, evaluation: bool) -> core.ActorCore:
    return make_actor_core(self._config, noise=0.0 if evaluation else self._config.noise)


class Carry(NamedTuple):
  noise: types.Array  # [k, 2]
  key: core.Key


def make_actor_core(config: CautiousAgent, noise: float) -> core.ActorCore:
  """Drives with Gaussian noise of this standard deviation."""

  def init(key: core.Key, count: int) -> Carry:
    return Carry(jnp.zeros((count, 2), jnp.float32), key)

  def step(variables, carry, observation, is_first):
    del variables
    key, noise_key = jax.random.split(carry.key)
    fresh = noise * jax.random.normal(noise_key, carry.noise.shape)
    kept = config.persistence * carry.noise + np.sqrt(1.0 - config.persistence**2) * fresh
    lasting = jnp.where(is_first[:, None], fresh, kept)
    lidar = lambda first: observation['vector'][:, first : first + config.num_bins]
    speed = observation['vector'][:, config.velocimeter]
    sensed = speed, lidar(config.goal_lidar), lidar(config.hazard_lidar)
    action = jax.vmap(functools.partial(drive, config))(*sensed)
    return jnp.clip(action + lasting, -1.0, 1.0), Carry(lasting, key)

  return core.ActorCore(init, step, variable_names=())


def drive(config: CautiousAgent, speed: types.Array, goal: types.Array, hazards: types.Array) -> types.Array:
  """Maps readings [bins] of the goal and of hazards to a forward action and a turn, [2]."""
  angles = 2.0 * np.pi * (np.arange(config.num_bins) + 0.5) / config.num_bins  # From straight ahead to the left.
  directions = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=-1)
  towards = goal**8 @ directions
  towards /= jnp.maximum(jnp.linalg.norm(towards), 1e-6)
  nearness = config.caution * hazards**24
  away = -nearness @ directions
  # Beside pushing back, a hazard lets the driver pass on the side where the goal is.
  aside = jnp.array([-away[1], away[0]])
  aside *= jnp.sign(jnp.dot(aside, towards))
  wanted = towards + away + aside
  angle = jnp.arctan2(wanted[1], wanted[0])
  ahead = jnp.sum(nearness * jnp.maximum(directions[:, 0], 0.0) ** 2)
  forward = (config.speed * jnp.cos(angle) - config.brake * ahead * speed) / (1.0 + ahead)
  return jnp.stack([forward, jnp.clip(2.0 * angle, -1.0, 1.0)])
