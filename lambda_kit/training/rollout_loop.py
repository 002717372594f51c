"""The loop of on-policy agents: an epoch of steps in k environments, then one update."""

import os
import time

import dm_env
import numpy as np

import gin
from lambda_kit import core
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.agents.on_policy import interfaces
from lambda_kit.agents.on_policy import rollouts
from lambda_kit.analysis.metrics import scores
from lambda_kit.environments.processes import parallel
from lambda_kit.environments.processes import serial
from lambda_kit.training import environment_loop
from lambda_kit.training import made_up


class NoEpisodeEndedError(errors.UserError):
  """An epoch was shorter than an episode."""


@gin.register
@ranges.checked
class RolloutLoop(environment_loop.Loop):
  """Acts in k environments at once, and learns from the steps of each epoch.

  An epoch starts new episodes in all environments, with the same episode number and different seeds. Episodes under way
  at its end are cut: the learner gets their steps, and they have no row. An epoch depends on the learned variables and
  on the number of its first episodes only, so a run that stopped is resumed at the end of its last epoch, to the bit.

  Args:
    parts: With one environment, `parts.environment` is stepped; otherwise it only keeps the number of the next episode.
    steps_per_epoch: T k, agent steps. Best a multiple of k times the length of episodes.
    num_environments: k. Batching their actions saves most of the time of acting.
    num_processes: Worker processes among which environments are divided; with 1 they take turns in this process.
  """

  def __init__(
    self,
    parts: environment_loop.LoopParts,
    steps_per_epoch: ranges.Count = 30_000,
    num_environments: ranges.Count = 30,
    num_processes: ranges.Count = 1,
  ):
    if not isinstance(parts.learner, interfaces.OnPolicyLearner):
      raise ValueError(
        f'RolloutLoop needs an on-policy agent, and {type(parts.learner).__name__} is not one: bind '
        'experiment.agent = @OnPolicyAgent(), or leave experiment.loop_factory as it is.'
      )
    if parts.schedule is not None:
      raise ValueError('RolloutLoop takes one update for each epoch: bind experiment.schedule = None.')
    cores = len(os.sched_getaffinity(0))
    if num_processes > cores:
      raise ValueError(
        f'RolloutLoop.num_processes = {num_processes} must be between 1 and the {cores} cores that this '
        'machine offers: more processes would wait for each other.'
      )
    if steps_per_epoch % num_environments:
      raise ValueError(
        f'RolloutLoop.steps_per_epoch = {steps_per_epoch} must be a multiple of RolloutLoop.num_environments = '
        f'{num_environments}.'
      )
    if num_processes > num_environments:
      raise ValueError(
        f'RolloutLoop.num_processes = {num_processes} is more than num_environments = '
        f'{num_environments}: raise the latter, best to a multiple.'
      )
    super().__init__(parts)
    self._collect = parts.learner.collect
    self._factory, self._seed = parts.environment_factory, parts.seed
    self.num_environments, self.num_processes = num_environments, num_processes
    self._num_steps = steps_per_epoch // num_environments
    self._writer = rollouts.RolloutWriter(parts.spec, self._num_steps, num_environments)
    # Made when the first epoch starts: an experiment may be built only to evaluate its agent.
    self._environments: serial.SerialEnvironments | parallel.ParallelEnvironments | None = None

  def advance(self) -> None:
    """Runs one epoch, logs the episodes that ended, and takes the update."""
    if self._environments is None:
      self._environments = self._make_environments()
    environments, writer = self._environments, self._writer
    number, restarts = self._environment.next_episode, environments.num_restarts
    environments.episode_numbers = np.full(self.num_environments, number)
    self._actor.reseed(number)
    tally = _Tally(self.num_environments, self._spec.num_constraints)
    timestep = environments.reset()
    for _ in range(self._num_steps):
      actions = self._actor.select_actions(timestep.observation, timestep.step_type == dm_env.StepType.FIRST)
      next_timestep = environments.step(actions)
      writer.add(timestep, actions, next_timestep)
      counts = environments.last_step_counts
      self.state = self.state._replace(
        environment_steps=self.state.environment_steps + int(counts.sum()),
        total_cost=self.state.total_cost + next_timestep.reward.cost.sum(axis=0, dtype=np.float64),
        failed_episodes=self.state.failed_episodes + environments.num_restarts - restarts,
      )
      restarts = environments.num_restarts
      ended = tally.add(next_timestep, counts)
      for summary, seconds in ended:
        self._log_episode(summary, seconds)
      timestep = environments.reset_done() if ended else next_timestep
      self._on_step(self.state.environment_steps)
    # Past all episodes that any environment began, including those that were cut.
    self._environment.next_episode = int(environments.episode_numbers.max())
    self._learn_from(tally)

  def close(self) -> None:
    if isinstance(self._environments, parallel.ParallelEnvironments):
      self._environments.close()

  def updates_of_run(self, environment_steps: int) -> int:
    return -(-environment_steps // (self._num_steps * self.num_environments * self._spec.action_repeat))

  def make_up_data(self, adder: core.Adder | None, environment_steps: int, rng: np.random.Generator) -> None:
    """Gives the learner an epoch of random numbers."""
    episode_steps = -(-(self._spec.episode_length or 1) // self._spec.action_repeat)
    if episode_steps > self._num_steps:
      raise self._no_episode_ended()
    self._collect(made_up.rollout(self._spec, self._num_steps, self.num_environments, episode_steps, rng))

  def _learn_from(self, tally: '_Tally') -> None:
    if not tally.summaries:
      raise self._no_episode_ended()
    self._collect(
      self._writer.finish(
        scores.average_cost_return(tally.summaries), float(np.mean([summary.length for summary in tally.summaries]))
      )
    )
    self._update(1)

  def _no_episode_ended(self) -> NoEpisodeEndedError:
    return NoEpisodeEndedError(
      f'No episode ended within {self._num_steps} agent steps, so the cost of an episode is unknown. Raise '
      f'RolloutLoop.steps_per_epoch = {self._num_steps * self.num_environments}.'
    )

  def _make_environments(self) -> serial.SerialEnvironments | parallel.ParallelEnvironments:
    failures = max(self._max_failed_episodes - self.state.failed_episodes, 0)
    if self.num_environments == 1:
      return serial.SerialEnvironments([self._environment], failures)
    if self.num_processes > 1:
      return parallel.ParallelEnvironments(
        self._factory, self.num_environments, self._seed, self.num_processes, max_restarts=failures
      )
    seeds = (parallel.environment_seed(self._seed, index) for index in range(self.num_environments))
    return serial.SerialEnvironments([self._factory(seed=seed) for seed in seeds], failures)


class _Tally:
  """Sums of rewards and costs over the episodes of k environments."""

  def __init__(self, num_environments: int, num_constraints: int):
    self._returns = np.zeros(num_environments)
    self._costs = np.zeros((num_environments, num_constraints))
    self._lengths = np.zeros(num_environments, int)
    self._steps = np.zeros(num_environments, int)
    self._started = np.full(num_environments, time.perf_counter())
    self.summaries: list[types.EpisodeSummary] = []  # Of all episodes that ended.

  def add(self, timestep: dm_env.TimeStep, counts: np.ndarray) -> list[tuple[types.EpisodeSummary, float]]:
    """Adds a batched time step. Returns summaries of the episodes that it ended, and their durations in seconds."""
    self._returns += timestep.reward.reward
    self._costs += timestep.reward.cost
    self._lengths += 1
    self._steps += counts
    now, ended = time.perf_counter(), []
    for index in np.flatnonzero(timestep.step_type != dm_env.StepType.MID):
      if timestep.step_type[index] == dm_env.StepType.LAST:
        summary = types.EpisodeSummary(
          float(self._returns[index]), self._costs[index].copy(), int(self._lengths[index]), int(self._steps[index])
        )
        ended.append((summary, now - self._started[index]))
      self._returns[index], self._costs[index] = 0.0, 0.0
      self._lengths[index], self._steps[index], self._started[index] = 0, 0, now
    self.summaries.extend(summary for summary, _ in ended)
    return ended
