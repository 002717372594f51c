"""Acting and learning apart: actors in other processes play episodes while the learner learns.

An actor gets an episode's number and the newest variables, and sends the episode back. Two limits hold:

  * Samples per insert: the learner takes the updates that its schedule has for the steps that are in the replay, and no
    episode begins while some of them are due. So actors are ahead by an episode each, at most.
  * Staleness: the learner takes no update that would make the variables of an episode under way older than
    `max_staleness` updates. It waits for such episodes, and takes what is due then.

Which episode ends first depends on the machines, so that such runs are not exact; `EnvironmentLoop` is.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from absl import logging
import dm_env
import jax
import numpy as np

import gin
from lambda_kit import errors
from lambda_kit.analysis.metrics import physics
from lambda_kit.analysis.metrics import scores
from lambda_kit.training import environment_loop


class Played(NamedTuple):
  """An episode as an actor saw it."""

  first: dm_env.TimeStep
  actions: Sequence[np.ndarray]  # T of them, [A].
  timesteps: Sequence[dm_env.TimeStep]  # T, which followed them.
  step_counts: Sequence[int]  # T, simulator steps.
  seconds: float
  mujoco_version: str | None  # Where it was simulated.


class ActorPool(Protocol):
  """Processes that play episodes, one at a time each."""

  size: int

  def publish(self, variables: Sequence[Any]) -> None:
    """Sets the variables, arrays of NumPy, that episodes from now on are played with."""

  def play(self, actor: int, number: int) -> None:
    """Begins an episode. The actor has none under way."""

  def wait(self) -> tuple[int, Played | Exception]:
    """The next actor that has ended its episode, and the episode, or why there is none."""

  def close(self) -> None: ...


class PoolFactory(Protocol):
  def __call__(self, num_actors: int) -> ActorPool: ...


class DistributedLoop(environment_loop.EnvironmentLoop):
  """A loop whose episodes are played by a pool.

  Args:
    parts: The environment isn't stepped: it keeps the number of the next episode. The actor puts episodes into the
      replay.
    pool: Plays episodes.
    max_staleness: Updates, at most, between the variables of an episode and those of the learner at its end.
  """

  def __init__(self, parts: environment_loop.LoopParts, pool: ActorPool, max_staleness: int):
    super().__init__(parts)
    if max_staleness < 0:
      raise ValueError(f'max_staleness = {max_staleness} must not be negative.')
    self._pool = pool
    self.num_processes = pool.size
    self._max_staleness = max_staleness
    self._under_way: dict[int, tuple[int, int]] = {}  # By actor: number of the episode, updates of its variables.
    self._published: int | None = None  # Updates of the variables that the pool has.
    self.largest_staleness = 0

  def advance(self) -> None:
    """Waits for the next episode of any actor, stores it, and learns."""
    self._begin_episodes()
    index, played = self._pool.wait()
    number, updates = self._under_way.pop(index)
    if isinstance(played, Exception):
      self._count_failure(number, played)
      return
    self._check_physics(played)
    self.largest_staleness = max(self.largest_staleness, self.state.updates - updates)
    self._actor.observe_first(played.first)
    for action, timestep in zip(played.actions, played.timesteps):
      self._actor.observe(action, timestep)
    rewards, costs = ([getattr(timestep.reward, name) for timestep in played.timesteps] for name in ('reward', 'cost'))
    steps = sum(played.step_counts)
    self.state = self.state._replace(
      environment_steps=self.state.environment_steps + steps, total_cost=self.state.total_cost + np.sum(costs, axis=0)
    )
    self._learn()
    self._on_step(self.state.environment_steps)
    self._log_episode(scores.summarize_episode(rewards, costs, steps), played.seconds)

  def close(self) -> None:
    self._pool.close()

  def _has_episode(self, environment_steps: int, episode_length: int) -> bool:
    return True  # Episodes come as a whole.

  def _check_physics(self, played: Played) -> None:
    """Refuses episodes of a machine with another MuJoCo: the run's record would tell half of the truth."""
    theirs, ours = played.mujoco_version, self._environment.mujoco_version
    if physics.of_version(theirs) != physics.of_version(ours):
      raise errors.SetupError(
        f'An actor simulates with MuJoCo {theirs}, and the machine of the learner has {ours}: '
        'install the same version on all machines.'
      )

  def _begin_episodes(self) -> None:
    if self._due() and self._under_way:
      return  # What is under way keeps the learner waiting: see `_learn`.
    if self._published != self.state.updates:
      self._pool.publish(jax.tree.map(np.asarray, self._learner.get_variables(self._actor.variable_names)))
      self._published = self.state.updates
    for index in range(self._pool.size):
      if index not in self._under_way:
        number = self._environment.next_episode
        self._environment.next_episode = number + 1
        self._under_way[index] = (number, self.state.updates)
        self._pool.play(index, number)

  def _due(self) -> int:
    return self._schedule(self.state.environment_steps) - self.state.updates

  def _learn(self) -> None:
    oldest = min((updates for _, updates in self._under_way.values()), default=None)
    allowed = self._due() if oldest is None else oldest + self._max_staleness - self.state.updates
    count = min(self._due(), allowed)
    if count > 0:
      self._update(count)

  def _count_failure(self, number: int, error: Exception) -> None:
    failed = self.state.failed_episodes + 1
    if failed > self._max_failed_episodes:
      raise error
    self.state = self.state._replace(failed_episodes=failed)
    logging.warning(
      'Episode %d is lost (%d of at most experiment.max_failed_episodes = %d): %s: %s',
      number,
      failed,
      self._max_failed_episodes,
      type(error).__name__,
      error,
    )
    self._learn()


@gin.register
def distributed_loop(
  parts: environment_loop.LoopParts,
  pool_factory: PoolFactory = gin.REQUIRED,
  num_actors: int = 4,
  max_staleness: int = 200,
) -> DistributedLoop:
  """The loop of agents whose actors are other processes, which make environments of their own from the configuration.

  Args:
    parts: As in `DistributedLoop`.
    pool_factory: Makes the pool.
    num_actors: Processes.
    max_staleness: As in `DistributedLoop`.
  """
  return DistributedLoop(parts, pool_factory(num_actors), max_staleness)
