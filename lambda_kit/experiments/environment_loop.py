"""Acting and learning, an episode at a time."""

import time
from typing import Callable, NamedTuple

import numpy as np

from lambda_kit import core
from lambda_kit import types
from lambda_kit.metrics import scores


class LoopState(NamedTuple):
  """All that the loop itself has to remember between episodes."""
  episodes: int
  environment_steps: int
  updates: int
  total_cost: np.ndarray  # [C], summed over all of training.


class EnvironmentLoop:
  """Lets an actor act, a learner learn, and keeps count.

  Args:
    environment: Where the actor acts.
    actor: Chooses actions.
    learner: Takes the updates that are due after each step.
    schedule: How many updates are due.
    logger: Gets a row for each episode, and one for each call of the learner.
    on_step: Called with the number of environment steps after each agent step, for progress bars.
    on_first_update: Called once, after the first call of the learner.
  """

  def __init__(self, environment: core.Environment, actor: core.Actor, learner: core.Learner,
               schedule: core.UpdateSchedule, logger: core.Logger,
               on_step: Callable[[int], None] = lambda steps: None,
               on_first_update: Callable[[], None] = lambda: None):
    self._environment = environment
    self._actor = actor
    self._learner = learner
    self._schedule = schedule
    self._logger = logger
    self._on_step = on_step
    self._on_first_update = on_first_update
    self.state = LoopState(0, 0, 0, np.zeros(len(environment.constraint_names)))

  def run_episode(self) -> types.EpisodeSummary:
    """Runs one episode of training and logs it."""
    started, steps_before = time.perf_counter(), self.state.environment_steps
    rewards, costs = [], []
    self._actor.reseed(self._environment.next_episode)
    timestep = self._environment.reset()
    self._actor.observe_first(timestep)
    while not timestep.last():
      action = self._actor.select_action(timestep.observation)
      timestep = self._environment.step(action)
      self._actor.observe(action, timestep)
      rewards.append(timestep.reward.reward)
      costs.append(timestep.reward.cost)
      self.state = self.state._replace(
          environment_steps=self.state.environment_steps + self._environment.last_step_count,
          total_cost=self.state.total_cost + timestep.reward.cost)
      self._learn()
      self._on_step(self.state.environment_steps)
    self.state = self.state._replace(episodes=self.state.episodes + 1)
    steps = self.state.environment_steps - steps_before
    summary = scores.summarize_episode(rewards, costs, steps)
    self._logger.write('episode', dict(
        environment_steps=self.state.environment_steps,
        episode=self.state.episodes,
        episode_return=summary.episode_return,
        cost_return=summary.cost_return.tolist(),
        cost_regret=self.cost_regret.tolist(),
        length=summary.length,
        steps_per_second=steps / (time.perf_counter() - started)))
    return summary

  @property
  def cost_regret(self) -> np.ndarray:
    """The paper's rho_c so far, [C]."""
    return scores.cost_regret(self.state.total_cost, self.state.environment_steps)

  def _learn(self) -> None:
    due = self._schedule(self.state.environment_steps) - self.state.updates
    if due <= 0:
      return
    is_first = self.state.updates == 0
    metrics = self._learner.step(due)
    self.state = self.state._replace(updates=self.state.updates + due)
    self._actor.update(wait=True)
    if metrics:
      self._logger.write('learner', dict(
          environment_steps=self.state.environment_steps, updates=self.state.updates, **metrics))
    if is_first:
      self._on_first_update()
