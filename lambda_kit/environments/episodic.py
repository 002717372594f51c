"""The base of all simulators' adapters: numbered and seeded episodes, following dm_env's rules."""

import abc
from typing import NamedTuple

import dm_env
from dm_env import specs
import numpy as np

from lambda_kit import core
from lambda_kit import types


class Outcome(NamedTuple):
  """The result of an action."""

  observation: types.Observation
  reward: float
  cost: np.ndarray  # [C]
  terminated: bool
  truncated: bool
  step_count: int = 1  # Simulator steps taken.


class EpisodicEnvironment(core.Environment):
  """Turns a simulator's `begin` and `advance` into a `core.Environment`."""

  def __init__(self, seed: int, task_name: str, constraint_names: tuple[str, ...]):
    self._seed = seed
    self._task_name = task_name
    self._constraint_names = constraint_names
    self._next_episode = 0
    self._step_count = 0
    self._needs_reset = True

  @abc.abstractmethod
  def begin(self, seed: int) -> types.Observation:
    """Begins the episode that `seed` determines."""

  @abc.abstractmethod
  def advance(self, action: np.ndarray, count: int) -> Outcome:
    """Repeats an action for up to `count` simulator steps, until the episode ends."""

  def reset(self) -> dm_env.TimeStep:
    observation = self.begin(episode_seed(self._seed, self._next_episode))
    self._next_episode += 1
    self._step_count = 0
    self._needs_reset = False
    return dm_env.restart(observation)

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    return self.step_many(action, 1)

  def step_many(self, action: np.ndarray, count: int) -> dm_env.TimeStep:
    """Repeats `action` for up to `count` simulator steps, sums rewards and costs, and observes once."""
    if self._needs_reset:
      return self.reset()
    outcome = self.advance(action, count)
    self._step_count = outcome.step_count
    self._needs_reset = outcome.terminated or outcome.truncated
    reward = types.CmdpReward(outcome.reward, outcome.cost)
    if outcome.terminated:
      return dm_env.termination(reward, outcome.observation)
    if outcome.truncated:
      return dm_env.truncation(reward, outcome.observation)
    return dm_env.transition(reward, outcome.observation)

  def reward_spec(self) -> types.CmdpReward:
    return types.CmdpReward(
      specs.Array((), np.float64, name='reward'), specs.Array((len(self._constraint_names),), np.float64, name='cost')
    )

  @property
  def task_name(self) -> str:
    return self._task_name

  @property
  def constraint_names(self) -> tuple[str, ...]:
    return self._constraint_names

  @property
  def next_episode(self) -> int:
    return self._next_episode

  @next_episode.setter
  def next_episode(self, number: int) -> None:
    self._next_episode = number
    self._needs_reset = True

  @property
  def last_step_count(self) -> int:
    return self._step_count


def episode_seed(seed: int, episode: int) -> int:
  """A 32-bit seed for each (seed, episode)."""
  return int(np.random.SeedSequence((seed, episode)).generate_state(1)[0])
