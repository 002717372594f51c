"""Wrappers over `core.Environment`: action repeat, action rescaling, single precision."""

from collections.abc import Sequence
from typing import Any

import dm_env
from dm_env import specs
import numpy as np
import tree

from lambda_kit import core
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.environments import episodic
from lambda_kit.environments import spec as spec_lib


class EnvironmentWrapper(core.Environment):
  """Forwards everything to the wrapped environment; subclasses override what they change."""

  def __init__(self, environment: core.Environment):
    self._environment = environment

  def reset(self) -> dm_env.TimeStep:
    return self._environment.reset()

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    return self._environment.step(action)

  def observation_spec(self):
    return self._environment.observation_spec()

  def action_spec(self):
    return self._environment.action_spec()

  def reward_spec(self):
    return self._environment.reward_spec()

  def discount_spec(self):
    return self._environment.discount_spec()

  @property
  def task_name(self) -> str:
    return self._environment.task_name

  @property
  def mujoco_version(self) -> str | None:
    return self._environment.mujoco_version

  @property
  def constraint_names(self) -> tuple[str, ...]:
    return self._environment.constraint_names

  @property
  def action_repeat(self) -> int:
    return self._environment.action_repeat

  @property
  def episode_length(self) -> int | None:
    return self._environment.episode_length

  def optimum(self, cost_limits: Sequence[float]) -> tuple[float, Sequence[float]] | None:
    return self._environment.optimum(cost_limits)

  @property
  def next_episode(self) -> int:
    return self._environment.next_episode

  @next_episode.setter
  def next_episode(self, number: int) -> None:
    self._environment.next_episode = number

  @property
  def last_step_count(self) -> int:
    return self._environment.last_step_count

  def render(self, height: int = 256, width: int = 256) -> np.ndarray:
    return self._environment.render(height, width)

  def close(self) -> None:
    self._environment.close()


@ranges.checked
class ActionRepeat(EnvironmentWrapper):
  """Repeats each action, sums rewards and costs, and stops early at the end of an episode.

  An `EpisodicEnvironment` repeats actions itself, and saves the observations in between.
  """

  def __init__(self, environment: core.Environment, action_repeat: ranges.Count):
    super().__init__(environment)
    self._count = action_repeat
    self._step_count = 0

  def reset(self) -> dm_env.TimeStep:
    self._step_count = 0
    return self._environment.reset()

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    if isinstance(self._environment, episodic.EpisodicEnvironment):
      timestep = self._environment.step_many(action, self._count)
      self._step_count = self._environment.last_step_count
      return timestep
    self._step_count = 0
    reward, cost, discount = 0.0, 0.0, 1.0
    for _ in range(self._count):
      timestep = self._environment.step(action)
      self._step_count += self._environment.last_step_count
      if timestep.first():  # After the end of an episode, dm_env's `step` resets.
        return timestep
      reward = reward + timestep.reward.reward
      cost = cost + timestep.reward.cost
      discount = discount * timestep.discount
      if timestep.last():
        break
    return timestep._replace(reward=types.CmdpReward(reward, cost), discount=discount)

  def optimum(self, cost_limits: Sequence[float]) -> tuple[float, Sequence[float]] | None:
    return super().optimum(cost_limits) if self._count == 1 else None  # Repeating actions changes the problem.

  def reward_spec(self):
    return tree.map_structure(self._sum_spec, self._environment.reward_spec())

  def _sum_spec(self, spec: specs.Array) -> specs.Array:
    """Bounds of a sum over 1 to `count` steps."""
    if not isinstance(spec, specs.BoundedArray):
      return spec
    return spec.replace(
      minimum=np.minimum(spec.minimum, self._count * spec.minimum),
      maximum=np.maximum(spec.maximum, self._count * spec.maximum),
    )

  @property
  def action_repeat(self) -> int:
    return self._count * self._environment.action_repeat

  @property
  def last_step_count(self) -> int:
    return self._step_count


class RescaleActions(EnvironmentWrapper):
  """Rescales a bounded action space to [-1, 1]; actions outside are clipped."""

  def __init__(self, environment: core.Environment):
    super().__init__(environment)
    spec = environment.action_spec()
    spec_lib.check_actions(environment.task_name, spec)
    self._low = np.broadcast_to(spec.minimum, spec.shape).astype(np.float64)
    self._high = np.broadcast_to(spec.maximum, spec.shape).astype(np.float64)
    self._spec = specs.BoundedArray(spec.shape, np.float32, -1.0, 1.0, name=spec.name)
    self._inner_dtype = spec.dtype

  def action_spec(self) -> specs.BoundedArray:
    return self._spec

  def _rescale(self, action: np.ndarray) -> np.ndarray:
    unit = (np.clip(np.asarray(action, np.float64), -1.0, 1.0) + 1.0) / 2.0
    return (self._low + unit * (self._high - self._low)).astype(self._inner_dtype)

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    return self._environment.step(self._rescale(action))


class SinglePrecision(EnvironmentWrapper):
  """Converts all floating-point numbers of a time step to float32, and refuses non-finite ones."""

  def __init__(self, environment: core.Environment):
    super().__init__(environment)
    self._observation_spec = _single_spec(environment.observation_spec())
    self._reward_spec = _single_spec(environment.reward_spec())
    self._discount_spec = _single_spec(environment.discount_spec())

  def reset(self) -> dm_env.TimeStep:
    return self._convert(self._environment.reset())

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    return self._convert(self._environment.step(action))

  def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
    observation = {name: _single(value) for name, value in timestep.observation.items()}
    for name, value in observation.items():
      _check_finite(f'observation[{name!r}]', value)
    if timestep.first():
      return timestep._replace(observation=observation)
    reward = types.CmdpReward(_single(timestep.reward.reward), _single(timestep.reward.cost))
    _check_finite('reward', reward.reward)
    _check_finite('cost', reward.cost)
    return timestep._replace(observation=observation, reward=reward, discount=np.float32(timestep.discount))

  def observation_spec(self):
    return self._observation_spec

  def reward_spec(self):
    return self._reward_spec

  def discount_spec(self):
    return self._discount_spec


class NonFiniteError(errors.UserError, ValueError):
  """An environment returned NaN or an infinity."""


def _check_finite(what: str, value: np.ndarray) -> None:
  if value.dtype == np.float32 and not np.isfinite(value).all():
    raise NonFiniteError(
      f'The environment returned {what} with entries that are not finite: {value}. The simulation is probably '
      "unstable: check the actions and the task, or reduce the simulator's time step."
    )


def _single(value: Any) -> np.ndarray:
  value = np.asarray(value)
  return value.astype(np.float32) if np.issubdtype(value.dtype, np.floating) else value


def _single_spec(nested: types.Nest) -> types.Nest:
  return tree.map_structure(
    lambda spec: spec.replace(dtype=np.float32) if np.issubdtype(spec.dtype, np.floating) else spec, nested
  )
