"""Several environments, each in a process of its own, behind one batched step.

  with ParallelEnvironments(make_environment, num_environments=4, seed=0) as environments:
    timestep = environments.reset()
    while True:
      actions = policy(timestep.observation)  # [k, A]
      next_timestep = environments.step(actions)
      learn(timestep, actions, next_timestep)
      timestep = environments.reset_done()

Ends of episodes. `step` follows dm_env's rule in each row: it returns the true last observation with `StepType.LAST`,
and the step after that ignores its action and returns `StepType.FIRST`. `reset_done` begins the new episodes at once,
so that no row of a batched step is spent on it: with it, every row of (timestep, actions, next_timestep) is a true
transition, on-policy rollouts stay rectangular [T, k], and a value is bootstrapped from `next_timestep.observation`,
time-outs included. The one exception is a row of `next_timestep` that is first: its worker was replaced, so there is
no transition and the episode that `timestep` belonged to has no end. Off-policy agents look at each row in the same
way: a first row begins an episode, any other goes on with it (`select` gives the time step of one row).
"""

import mmap
import os
import time
from typing import Sequence
import weakref

from absl import logging
import dm_env
from dm_env import specs as dm_specs
import gin
import numpy as np

from lambda_kit import core
from lambda_kit import types
from lambda_kit.environments import parallel_factory
from lambda_kit.environments import parallel_process
from lambda_kit.environments import parallel_worker


class WorkerError(RuntimeError):
  """A worker could not be started, or failed too often."""


def environment_seed(seed: int, index: int) -> int:
  """The seed of environment `index`: the first word of the `index`-th child of `np.random.SeedSequence(seed)`.

  It doesn't depend on the number of environments.
  """
  return int(np.random.SeedSequence(seed, spawn_key=(index,)).generate_state(1)[0])


def select(timestep: dm_env.TimeStep, index: int) -> dm_env.TimeStep:
  """The time step of one environment out of a batched one, by dm_env's rules (no reward in a first step)."""
  step_type = dm_env.StepType(timestep.step_type[index])
  observation = {name: values[index] for name, values in timestep.observation.items()}
  if step_type.first():
    return dm_env.TimeStep(step_type, None, None, observation)
  reward = types.CmdpReward(timestep.reward.reward[index], timestep.reward.cost[index])
  return dm_env.TimeStep(step_type, reward, timestep.discount[index], observation)


@gin.register
class ParallelEnvironments:
  """Steps k environments at once, each in its own process.

  A worker whose environment raises, whose process dies or that takes longer than `step_timeout` is replaced, with a
  warning that holds its traceback. Its episode is dropped: the replacement begins the next one, and the batched step
  has a first time step in that row.

  Arrays that are returned belong to the caller. Not for use by several threads at once.
  """

  def __init__(self, environment_factory: core.EnvironmentFactory, num_environments: int, seed: int,
               step_timeout: float = 60.0, start_timeout: float = 300.0, max_restarts: int = 10):
    """Starts the workers and waits until their environments are built.

    Args:
      environment_factory: Called in each worker with `seed=environment_seed(seed, index)`. May be a function, a
        partial, a closure or what gin gives for a reference: workers take over the gin bindings of this process.
        They don't import its main module.
      num_environments: k.
      seed: Not negative.
      step_timeout: Seconds that a step or a reset may take.
      start_timeout: Seconds that starting a process and building its environment may take.
      max_restarts: Replacements, of all workers together, before `WorkerError` is raised.

    Raises:
      WorkerError: An environment could not be built; the message has the traceback of its worker.
    """
    if num_environments < 1:
      raise ValueError(f'num_environments must be at least 1, got {num_environments}.')
    if seed < 0 or max_restarts < 0:
      raise ValueError(f'seed and max_restarts must not be negative, got {seed} and {max_restarts}.')
    if not (step_timeout > 0 and start_timeout > 0):
      raise ValueError(f'Time-outs must be positive, got {step_timeout} and {start_timeout}.')
    self._num_environments = num_environments
    self._step_timeout = step_timeout
    self._start_timeout = start_timeout
    self._max_restarts = max_restarts
    self._restarts = 0
    package = parallel_factory.pack(environment_factory)
    self._starts = [
        parallel_worker.Start(package, environment_seed(seed, index), index, num_environments)
        for index in range(num_environments)]
    self._memory_fd = parallel_process.anonymous_file('lambda_kit_environments')
    self._workers: list[parallel_process.WorkerProcess] = []
    # Also runs when this object is forgotten, and at the exit of the interpreter.
    self._finalizer = weakref.finalize(self, parallel_process.stop, self._workers, self._memory_fd, os.getpid())
    try:
      self._start()
    except BaseException:
      self.close()
      raise

  def _start(self) -> None:
    for start in self._starts:
      self._workers.append(parallel_process.WorkerProcess(start, self._memory_fd, self._start_timeout))
    started = []
    for index, worker in enumerate(self._workers):
      try:
        started.append(worker.wait_until_started())
      except parallel_process.WorkerFailure as failure:
        raise WorkerError(f'Environment {index} could not be built.\n{failure}') from None
    self._specs = started[0].specs
    for index, other in enumerate(started):
      if other.specs != self._specs:
        raise WorkerError(f'Environments 0 and {index} have different specs: {self._specs} and {other.specs}.')
    parallel_factory.add_to_operative_config(started[0].used)
    size = parallel_worker.memory_size(self._specs, self._num_environments)
    os.ftruncate(self._memory_fd, size)
    self._arrays = parallel_worker.map_arrays(mmap.mmap(self._memory_fd, size), self._specs, self._num_environments)
    self._arrays.step_type[...] = dm_env.StepType.LAST  # Nothing has begun: `reset_done` has all to do.
    self._run(parallel_worker.ATTACH, range(self._num_environments))

  def reset(self) -> dm_env.TimeStep:
    """Begins a new episode in every environment."""
    self._run(parallel_worker.RESET, range(self._num_environments))
    return self._timestep()

  def step(self, actions: np.ndarray) -> dm_env.TimeStep:
    """Steps every environment; begins a new episode in those whose last one is over.

    Args:
      actions: [k, A], all finite.

    Returns:
      A time step with arrays: step_type [k], reward and discount [k], cost [k, C], observation [k, ...]. Where it is
      first, reward and cost are 0 and the discount is 1.
    """
    actions = np.asarray(actions)
    expected = self._arrays.action
    if actions.shape != expected.shape:
      raise ValueError(f'actions must have shape {expected.shape}, got {actions.shape}.')
    if not np.can_cast(actions.dtype, expected.dtype, 'same_kind'):
      raise ValueError(f'actions must be of type {expected.dtype}, got {actions.dtype}.')
    with np.errstate(over='ignore'):
      actions = actions.astype(expected.dtype)
    if not np.isfinite(actions).all():
      raise ValueError(f'actions must be finite, got {actions}.')
    self._arrays.action[...] = actions
    self._run(parallel_worker.STEP, range(self._num_environments))
    return self._timestep()

  def reset_done(self) -> dm_env.TimeStep:
    """Begins a new episode where the last time step was the last of an episode.

    Returns:
      The time step to act on: first where an episode was over, and elsewhere what the last `step` returned.
    """
    self._run(parallel_worker.RESET, np.flatnonzero(self._arrays.step_type == dm_env.StepType.LAST).tolist())
    return self._timestep()

  def observation_spec(self) -> dict[str, dm_specs.Array]:
    """Of one environment, as all specs here."""
    return self._specs.observation

  def action_spec(self) -> dm_specs.Array:
    return self._specs.action

  def reward_spec(self) -> types.CmdpReward:
    return self._specs.reward

  def discount_spec(self) -> dm_specs.Array:
    return self._specs.discount

  @property
  def constraint_names(self) -> tuple[str, ...]:
    return self._specs.constraint_names

  @property
  def num_environments(self) -> int:
    return self._num_environments

  @property
  def last_step_counts(self) -> np.ndarray:
    """Simulator steps [k] that the last time step took in each environment; 0 where it was a first one."""
    return self._arrays.last_step_count.copy()

  @property
  def episode_numbers(self) -> np.ndarray:
    """Numbers [k] of the episodes that the next resets begin. To be read even when closed."""
    return self._arrays.next_episode.copy()

  @episode_numbers.setter
  def episode_numbers(self, numbers: np.ndarray) -> None:
    numbers = np.asarray(numbers)
    is_integer = np.issubdtype(numbers.dtype, np.integer)
    if numbers.shape != (self._num_environments,) or not is_integer or (numbers < 0).any():
      raise ValueError(f'episode_numbers must be {self._num_environments} integers from 0 on, got {numbers}.')
    waiting = list(range(self._num_environments))
    while waiting:  # A replacement has begun an episode, and must be told again.
      self._arrays.next_episode[waiting] = numbers[waiting]
      waiting = self._run(parallel_worker.SET_EPISODE, waiting)

  @property
  def num_restarts(self) -> int:
    """Replacements so far."""
    return self._restarts

  @property
  def process_ids(self) -> list[int]:
    return [worker.process_id for worker in self._workers]

  def close(self) -> None:
    """Closes the environments and ends their processes. May be called twice."""
    self._finalizer()

  def __enter__(self) -> 'ParallelEnvironments':
    return self

  def __exit__(self, *unused_exception) -> None:
    self.close()

  def _timestep(self) -> dm_env.TimeStep:
    arrays = self._arrays
    return dm_env.TimeStep(
        step_type=arrays.step_type.copy(),
        reward=types.CmdpReward(arrays.reward.copy(), arrays.cost.copy()),
        discount=arrays.discount.copy(),
        observation={name: values.copy() for name, values in arrays.observation.items()})

  def _run(self, command: bytes, indices: Sequence[int]) -> list[int]:
    """Has workers carry out a command, replaces those that fail, and returns the indices of the replaced."""
    if not self._finalizer.alive:
      raise RuntimeError('The environments are closed.')
    try:
      failures = self._exchange(command, indices)
      for index, failure in failures.items():
        self._replace(index, failure)
      return list(failures)
    except BaseException:
      # Interrupted half-way: some workers have stepped and others have not, which nobody could tell from outside.
      self.close()
      raise

  def _exchange(self, command: bytes, indices: Sequence[int]) -> dict[int, str]:
    """Has workers carry out a command side by side, and returns what went wrong, by index."""
    deadline = time.monotonic() + self._step_timeout
    failures = {}
    for index in indices:
      try:
        self._workers[index].send(command)
      except parallel_process.WorkerFailure as failure:
        failures[index] = str(failure)
    for index in indices:
      if index not in failures:
        try:
          self._workers[index].receive(deadline)
        except parallel_process.WorkerFailure as failure:
          failures[index] = str(failure)
    for index in failures:
      self._workers[index].kill()
    return failures

  def _replace(self, index: int, failure: str) -> None:
    """Starts another worker for an environment, until one begins an episode."""
    while True:
      if self._restarts >= self._max_restarts:
        raise WorkerError(f'Environment {index} failed, after max_restarts={self._max_restarts} workers had been '
                          f'replaced.\n{failure}')
      self._restarts += 1
      logging.warning('Environment %d failed, its episode is dropped. Replacing its worker (%d of at most %d).\n%s',
                      index, self._restarts, self._max_restarts, failure)
      # The episode after the failed one: the same would likely fail again.
      number = self._arrays.next_episode[index]
      worker = parallel_process.WorkerProcess(self._starts[index], self._memory_fd, self._start_timeout)
      self._workers[index] = worker
      try:
        worker.wait_until_started()
        worker.call(parallel_worker.ATTACH, self._step_timeout)
        self._arrays.next_episode[index] = number
        worker.call(parallel_worker.SET_EPISODE, self._step_timeout)
        worker.call(parallel_worker.RESET, self._step_timeout)
        return
      except parallel_process.WorkerFailure as another:
        failure = str(another)
        worker.kill()
