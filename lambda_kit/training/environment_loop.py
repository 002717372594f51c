"""Acting and learning, an episode at a time."""

import abc
from collections.abc import Callable
import functools
import time
from typing import Any, NamedTuple

from absl import logging
import dm_env
import numpy as np

import gin
from lambda_kit import core
from lambda_kit import types
from lambda_kit.analysis.metrics import scores
from lambda_kit.training import made_up
from lambda_kit.training import schedules


class LoopParts(NamedTuple):
  """What loops are made of. No loop needs all of it."""

  spec: core.EnvironmentSpec
  environment: core.Environment  # Where the actor acts. Some loops only keep the number of the next episode in it.
  actor: core.Actor
  learner: core.Learner
  schedule: schedules.UpdateSchedule | None  # None for loops with one update per epoch.
  max_failed_episodes: int  # Episodes that may be given up before the error of the next one is raised.
  environment_factory: core.EnvironmentFactory  # For loops with several environments.
  seed: int = 0  # Of those environments.


class LoopState(NamedTuple):
  """What a loop itself has to remember between episodes."""

  episodes: int
  environment_steps: int
  updates: int
  total_cost: np.ndarray  # [C], summed over all of training.
  failed_episodes: int

  def to_json(self) -> dict[str, Any]:
    return {**self._asdict(), 'total_cost': self.total_cost.tolist()}

  @classmethod
  def from_json(cls, values: dict[str, Any]) -> 'LoopState':
    return cls(**{**values, 'total_cost': np.asarray(values['total_cost'], np.float64)})


class Loop(abc.ABC):
  """Acts, learns, counts and logs."""

  num_environments = 1  # For which actions are chosen at once.
  num_processes = 1  # Among which environments are divided.

  def __init__(self, parts: LoopParts):
    self._spec = parts.spec
    self._environment = parts.environment
    self._actor = parts.actor
    self._learner = parts.learner
    self._max_failed_episodes = parts.max_failed_episodes
    self.state = LoopState(0, 0, 0, np.zeros(parts.spec.num_constraints), 0)

  def connect(
    self,
    logger: core.Logger,
    on_step: Callable[[int], None] = lambda steps: None,
    on_first_update: Callable[[], None] = lambda: None,
  ) -> None:
    """Attaches the logger and callbacks.

    Args:
      logger: Gets a row for each episode, and one for each call of the learner.
      on_step: Called with the number of environment steps after each agent step, for progress bars.
      on_first_update: Called once, after the first call of the learner.
    """
    self._logger = logger
    self._on_step = on_step
    self._on_first_update = on_first_update

  @abc.abstractmethod
  def advance(self) -> None:
    """Acts and learns until the next point at which the run can be resumed."""

  @abc.abstractmethod
  def updates_of_run(self, environment_steps: int) -> int:
    """Returns the number of updates in a run of this length."""

  @abc.abstractmethod
  def make_up_data(self, adder: core.Adder | None, environment_steps: int, rng: np.random.Generator) -> None:
    """Gives the learner random numbers to learn from in a dry run, if a real run would have data by its first update.

    Args:
      adder: Adds to the replay; None if the agent keeps no data.
      environment_steps: Length of the whole run.
      rng: Source of the numbers.
    """

  def close(self) -> None:  # noqa: B027 (most loops have nothing to close)
    """Closes what the loop itself has opened."""

  @property
  def cost_regret(self) -> np.ndarray:
    """The paper's rho_c so far, [C]."""
    return scores.cost_regret(self.state.total_cost, self.state.environment_steps)

  def _log_episode(self, summary: types.EpisodeSummary, seconds: float) -> None:
    """Counts an episode that has ended, passes its cost to the learner, and writes its row."""
    self.state = self.state._replace(episodes=self.state.episodes + 1)
    self._logger.write(
      'episode',
      dict(
        environment_steps=self.state.environment_steps,
        episode=self.state.episodes,
        episode_return=summary.episode_return,
        cost_return=summary.cost_return.tolist(),
        cost_regret=self.cost_regret.tolist(),
        length=summary.length,
        steps_per_second=summary.environment_steps / seconds,
      ),
    )

  def _update(self, num_updates: int) -> None:
    is_first = self.state.updates == 0
    metrics = self._learner.step(num_updates)
    self.state = self.state._replace(updates=self.state.updates + num_updates)
    self._actor.update()
    if metrics:
      self._logger.write(
        'learner', dict(environment_steps=self.state.environment_steps, updates=self.state.updates, **metrics)
      )
    if is_first:
      self._on_first_update()


LoopFactory = Callable[[LoopParts], Loop]


@gin.register
class EnvironmentLoop(Loop):
  """The loop of agents that act in one environment and learn from replay.

  If the environment raises an error, the episode is given up with a warning. Its costs are counted; it has no row.
  """

  def __init__(self, parts: LoopParts):
    super().__init__(parts)
    if parts.schedule is None:
      raise ValueError(
        f'{type(self).__name__} needs a schedule of updates: bind experiment.schedule = @PeriodicUpdates().'
      )
    self._schedule = parts.schedule

  def advance(self) -> None:
    """Acts for one episode, learns whenever updates are due, and logs the episode."""
    started, steps_before = time.perf_counter(), self.state.environment_steps
    rewards, costs = [], []
    number = self._environment.next_episode
    self._learn()  # Updates that are due before the first step, from an offline dataset.
    self._actor.reseed(number)
    timestep = self._attempt(number, self._environment.reset)
    if timestep is None:
      return
    self._actor.observe_first(timestep)
    while not timestep.last():
      action = self._actor.select_action(timestep.observation)
      timestep = self._attempt(number, functools.partial(self._environment.step, action))
      if timestep is None:
        return
      self._actor.observe(action, timestep)
      rewards.append(timestep.reward.reward)
      costs.append(timestep.reward.cost)
      self.state = self.state._replace(
        environment_steps=self.state.environment_steps + self._environment.last_step_count,
        total_cost=self.state.total_cost + timestep.reward.cost,
      )
      self._learn()
      self._on_step(self.state.environment_steps)
    summary = scores.summarize_episode(rewards, costs, self.state.environment_steps - steps_before)
    self._log_episode(summary, time.perf_counter() - started)

  def updates_of_run(self, environment_steps: int) -> int:
    return self._schedule(environment_steps)

  def make_up_data(self, adder: core.Adder | None, environment_steps: int, rng: np.random.Generator) -> None:
    """Adds an episode of random numbers, if one would have ended before the first update."""
    repeat = self._spec.action_repeat
    steps = next((steps for steps in range(repeat, environment_steps + repeat, repeat) if self._schedule(steps)), 0)
    length = self._spec.episode_length or steps
    if adder is not None and steps >= length > 0:
      made_up.add_episode(adder, self._spec, -(-length // repeat), rng)

  def _attempt(self, number: int, call: Callable[[], dm_env.TimeStep]) -> dm_env.TimeStep | None:
    """Resets or steps the environment. Returns None if it failed and the run goes on with the next episode."""
    try:
      return call()
    except Exception as error:
      failed = self.state.failed_episodes + 1
      if failed > self._max_failed_episodes:
        raise
      self.state = self.state._replace(failed_episodes=failed)
      self._environment.next_episode = number + 1
      self._actor.give_up()
      logging.warning(
        'The environment failed in episode %d, which is given up (%d of at most '
        'experiment.max_failed_episodes = %d): %s: %s',
        number,
        failed,
        self._max_failed_episodes,
        type(error).__name__,
        error,
      )
      return None

  def _learn(self) -> None:
    due = self._schedule(self.state.environment_steps) - self.state.updates
    if due > 0:
      self._update(due)
