"""Acting and learning, an episode at a time."""

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
  """What loops are made of. None needs all of it."""

  spec: core.EnvironmentSpec
  environment: core.Environment  # Where the actor acts; or only keeps the number of the next episode.
  actor: core.Actor
  learner: core.Learner
  schedule: schedules.UpdateSchedule | None  # How many updates are due; None where each epoch has one.
  max_failed_episodes: int  # Episodes that may be given up before the error of the next one is raised.
  environment_factory: core.EnvironmentFactory | None = None  # For loops with several environments.
  seed: int = 0  # Theirs.


class LoopState(NamedTuple):
  """All that the loop itself has to remember between episodes."""

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


@gin.register
class EnvironmentLoop:
  """The loop of agents that act in one environment and learn from replay: acts, learns, and keeps count.

  An episode whose environment raises an error is given up with a warning. What it cost is counted; it has no row.
  """

  num_environments = 1  # For which actions are chosen at once.
  num_processes = 1  # Among which environments are divided.

  def __init__(self, parts: LoopParts):
    self._spec = parts.spec
    self._environment = parts.environment
    self._actor = parts.actor
    self._learner = parts.learner
    self._schedule = parts.schedule
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

  def advance(self) -> None:
    """Goes on to where the run can be taken up again: acts for one episode, learns on the way, and logs it."""
    started, steps_before = time.perf_counter(), self.state.environment_steps
    rewards, costs = [], []
    number = self._environment.next_episode
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

  def _log_episode(self, summary: types.EpisodeSummary, seconds: float) -> None:
    """Counts an episode that has ended, tells the learner what it cost, and writes its row."""
    self._learner.observe_episode(summary.cost_return)
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

  def close(self) -> None:
    """Ends what the loop itself began: nothing."""

  def updates_of_run(self, environment_steps: int) -> int:
    """Updates that a run of this length takes."""
    return self._schedule(environment_steps)

  def make_up_data(self, adder: core.Adder | None, environment_steps: int, rng: np.random.Generator) -> None:
    """Gives the learner, in a dry run, an episode of random numbers if one has ended before its first update.

    Args:
      adder: Of the replay; None if the agent keeps no data.
      environment_steps: Of the whole run.
      rng: Source of the numbers.
    """
    repeat = self._spec.action_repeat
    steps = next((steps for steps in range(repeat, environment_steps + repeat, repeat) if self._schedule(steps)), 0)
    length = self._spec.episode_length or steps
    if adder is not None and steps and self._has_episode(steps, length):
      made_up.add_episode(adder, self._spec, -(-length // repeat), rng)

  def _has_episode(self, environment_steps: int, episode_length: int) -> bool:
    """Whether an episode has ended when the loop takes the updates that are due after so many steps."""
    return environment_steps >= episode_length

  def _attempt(self, number: int, call: Callable[[], dm_env.TimeStep]) -> dm_env.TimeStep | None:
    """Resets or steps the environment. None if that failed and the run can go on with the next episode."""
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

  @property
  def cost_regret(self) -> np.ndarray:
    """The paper's rho_c so far, [C]."""
    return scores.cost_regret(self.state.total_cost, self.state.environment_steps)

  def _learn(self) -> None:
    due = self._schedule(self.state.environment_steps) - self.state.updates
    if due > 0:
      self._update(due)

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


LoopFactory = Callable[[LoopParts], EnvironmentLoop]
