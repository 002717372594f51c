"""Several environments in this process, with the interface of `ParallelEnvironments`."""

from collections.abc import Sequence

from absl import logging
import dm_env
import numpy as np

from lambda_kit import core
from lambda_kit import types


class SerialEnvironments:
  """Steps k environments one after the other.

  For a single environment, and for those that step faster than processes communicate. An environment that raises an
  error begins its next episode: the batched step has a first time step in that row, as when a worker is replaced. Not
  thread-safe.

  Args:
    environments: k of them, with the same specs. They are not closed here.
    max_restarts: Errors, over all environments, before the next one is raised.
  """

  def __init__(self, environments: Sequence[core.Environment], max_restarts: int = 10):
    self._environments = list(environments)
    self._max_restarts = max_restarts
    self._restarts = 0
    self._timesteps: list[dm_env.TimeStep] = []
    self._counts = np.zeros(len(self._environments), int)

  def reset(self) -> dm_env.TimeStep:
    """Begins a new episode in every environment."""
    self._timesteps = [self._begin(index) for index in range(self.num_environments)]
    return self._batched()

  def step(self, actions: np.ndarray) -> dm_env.TimeStep:
    """Steps every environment by its row of `actions` [k, A]; see `ParallelEnvironments.step`."""
    for index, (environment, action) in enumerate(zip(self._environments, actions, strict=True)):
      number = environment.next_episode
      try:
        self._timesteps[index] = environment.step(action)
        self._counts[index] = environment.last_step_count
      except Exception as error:
        self._give_up(index, number, error)
        self._timesteps[index] = self._begin(index)
    return self._batched()

  def reset_done(self) -> dm_env.TimeStep:
    """Begins a new episode where the last one is over. Returns the time step to act on."""
    for index, timestep in enumerate(self._timesteps):
      if timestep.last():
        self._timesteps[index] = self._begin(index)
    return self._batched()

  @property
  def num_environments(self) -> int:
    return len(self._environments)

  @property
  def last_step_counts(self) -> np.ndarray:
    """Simulator steps [k] of the last time step in each environment; 0 where it was a first one."""
    return self._counts.copy()

  @property
  def episode_numbers(self) -> np.ndarray:
    """Numbers [k] of the episodes that the next resets begin."""
    return np.array([environment.next_episode for environment in self._environments])

  @episode_numbers.setter
  def episode_numbers(self, numbers: np.ndarray) -> None:
    for environment, number in zip(self._environments, numbers, strict=True):
      environment.next_episode = int(number)

  @property
  def num_restarts(self) -> int:
    """Episodes dropped so far."""
    return self._restarts

  def _begin(self, index: int) -> dm_env.TimeStep:
    environment = self._environments[index]
    self._counts[index] = 0
    while True:
      number = environment.next_episode
      try:
        return environment.reset()
      except Exception as error:
        self._give_up(index, number + 1, error)

  def _give_up(self, index: int, next_episode: int, error: Exception) -> None:
    if self._restarts >= self._max_restarts:
      raise error
    self._restarts += 1
    self._environments[index].next_episode = next_episode  # Set here, since a reset may have failed halfway.
    logging.warning(
      'Environment %d failed, its episode is dropped (%d of at most %d): %s: %s',
      index,
      self._restarts,
      self._max_restarts,
      type(error).__name__,
      error,
    )

  def _batched(self) -> dm_env.TimeStep:
    timesteps = self._timesteps
    num_costs = len(self._environments[0].constraint_names)
    nothing = types.CmdpReward(np.float32(0.0), np.zeros(num_costs, np.float32))
    rewards = [nothing if timestep.first() else timestep.reward for timestep in timesteps]
    return dm_env.TimeStep(
      step_type=np.array([timestep.step_type for timestep in timesteps]),
      reward=types.CmdpReward(
        np.array([reward.reward for reward in rewards]), np.stack([reward.cost for reward in rewards])
      ),
      discount=np.array([1.0 if timestep.first() else timestep.discount for timestep in timesteps], np.float32),
      observation={
        name: np.stack([timestep.observation[name] for timestep in timesteps]) for name in timesteps[0].observation
      },
    )
