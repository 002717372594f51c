"""Several environments in processes of their own, behind one batched step.

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
way: a first row begins an episode, any other goes on with it.
"""

from collections.abc import Sequence
import mmap
import os
import time
import weakref

from absl import logging
import dm_env
from dm_env import specs as dm_specs
import numpy as np

import gin
from lambda_kit import core
from lambda_kit import errors
from lambda_kit import types
from lambda_kit.environments.processes import factories
from lambda_kit.environments.processes import process as process_lib
from lambda_kit.environments.processes import worker as worker_lib


class WorkerError(errors.UserError):
  """A worker could not be started, or failed too often."""


def environment_seed(seed: int, index: int) -> int:
  """The seed of environment `index`: the first word of the `index`-th child of `np.random.SeedSequence(seed)`.

  It doesn't depend on the number of environments.
  """
  return int(np.random.SeedSequence(seed, spawn_key=(index,)).generate_state(1)[0])


@gin.register
class ParallelEnvironments:
  """Steps k environments at once in worker processes, each its own or several in one.

  A worker one of whose environments raises, whose process dies or that takes longer than `step_timeout` is replaced,
  with a warning that holds its traceback. Its episodes are dropped: the replacement begins the next ones, and the
  batched step has first time steps in these rows.

  Arrays that are returned belong to the caller. Not for use by several threads at once.
  """

  def __init__(
    self,
    environment_factory: core.EnvironmentFactory,
    num_environments: int,
    seed: int,
    num_workers: int | None = None,
    step_timeout: float = 60.0,
    start_timeout: float = 300.0,
    max_restarts: int = 10,
  ):
    """Starts the workers and waits until their environments are built.

    Args:
      environment_factory: Called in workers with `seed=environment_seed(seed, index)`. May be a function, a partial, a
        closure or what gin gives for a reference: workers take over the gin bindings of this process. They don't import
        its main module.
      num_environments: k.
      seed: Not negative.
      num_workers: Processes, among which environments are divided; None for k. Several environments in a process save
        much of the way between processes.
      step_timeout: Seconds that a step or a reset of all environments of a process may take.
      start_timeout: Seconds that starting a process and building its environments may take.
      max_restarts: Replacements, of all workers together, before `WorkerError` is raised.

    Raises:
      WorkerError: An environment could not be built; the message has the traceback of its worker.
    """
    if num_environments < 1:
      raise ValueError(f'num_environments must be at least 1, got {num_environments}.')
    num_workers = num_environments if num_workers is None else num_workers
    if not 1 <= num_workers <= num_environments:
      raise ValueError(f'num_workers must be between 1 and num_environments = {num_environments}, got {num_workers}.')
    if seed < 0 or max_restarts < 0:
      raise ValueError(f'seed and max_restarts must not be negative, got {seed} and {max_restarts}.')
    if not (step_timeout > 0 and start_timeout > 0):
      raise ValueError(f'Time-outs must be positive, got {step_timeout} and {start_timeout}.')
    self._num_environments = num_environments
    self._step_timeout = step_timeout
    self._start_timeout = start_timeout
    self._max_restarts = max_restarts
    self._restarts = 0
    package = factories.pack(environment_factory)
    self._rows = np.array_split(np.arange(num_environments), num_workers)  # Environments of each worker.
    self._starts = [
      worker_lib.Start(
        package, tuple(environment_seed(seed, int(index)) for index in rows), int(rows[0]), num_environments
      )
      for rows in self._rows
    ]
    self._memory_fd = process_lib.anonymous_file('lambda_kit_environments')
    self._workers: list[process_lib.WorkerProcess] = []
    # Also runs when this object is forgotten, and at the exit of the interpreter.
    self._finalizer = weakref.finalize(self, process_lib.stop, self._workers, self._memory_fd, os.getpid())
    try:
      self._start()
    except BaseException:
      self.close()
      raise

  def _start(self) -> None:
    for start in self._starts:
      self._workers.append(process_lib.WorkerProcess(start, self._memory_fd, self._start_timeout))
    started = []
    for worker, rows in zip(self._workers, self._rows):
      try:
        started.append(worker.wait_until_started())
      except process_lib.WorkerFailure as failure:
        raise WorkerError(f'{_name(rows)} could not be built.\n{failure}') from None
    self._specs = started[0].specs[0]
    for index, other in enumerate(specs for one in started for specs in one.specs):
      if other != self._specs:
        raise WorkerError(f'Environments 0 and {index} have different specs: {self._specs} and {other}.')
    factories.add_to_operative_config(started[0].used)
    size = worker_lib.memory_size(self._specs, self._num_environments)
    os.ftruncate(self._memory_fd, size)
    self._arrays = worker_lib.map_arrays(mmap.mmap(self._memory_fd, size), self._specs, self._num_environments)
    self._arrays.step_type[...] = dm_env.StepType.LAST  # Nothing has begun: `reset_done` has all to do.
    self._run(worker_lib.ATTACH, range(len(self._workers)))

  def reset(self) -> dm_env.TimeStep:
    """Begins a new episode in every environment."""
    self._run(worker_lib.RESET, range(len(self._workers)))
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
    self._run(worker_lib.STEP, range(len(self._workers)))
    return self._timestep()

  def reset_done(self) -> dm_env.TimeStep:
    """Begins a new episode where the last time step was the last of an episode.

    Returns:
      The time step to act on: first where an episode was over, and elsewhere what the last `step` returned.
    """
    is_over = self._arrays.step_type == dm_env.StepType.LAST
    self._run(worker_lib.RESET_DONE, [worker for worker, rows in enumerate(self._rows) if is_over[rows].any()])
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
  def action_repeat(self) -> int:
    return self._specs.action_repeat

  @property
  def episode_length(self) -> int | None:
    return self._specs.episode_length

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
    waiting = list(range(len(self._workers)))
    while waiting:  # A replacement has begun episodes, and must be told again.
      for worker in waiting:
        self._arrays.next_episode[self._rows[worker]] = numbers[self._rows[worker]]
      waiting = self._run(worker_lib.SET_EPISODE, waiting)

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
      observation={name: values.copy() for name, values in arrays.observation.items()},
    )

  def _run(self, command: bytes, workers: Sequence[int]) -> list[int]:
    """Has workers carry out a command, replaces those that fail, and returns which these were."""
    if not self._finalizer.alive:
      raise RuntimeError('The environments are closed.')
    try:
      failures = self._exchange(command, workers)
      for worker, failure in failures.items():
        self._replace(worker, failure)
      return list(failures)
    except BaseException:
      # Interrupted half-way: some workers have stepped and others have not, which nobody could tell from outside.
      self.close()
      raise

  def _exchange(self, command: bytes, workers: Sequence[int]) -> dict[int, str]:
    """Has workers carry out a command side by side, and returns what went wrong, by worker."""
    deadline = time.monotonic() + self._step_timeout
    failures = {}
    for worker in workers:
      try:
        self._workers[worker].send(command)
      except process_lib.WorkerFailure as failure:
        failures[worker] = str(failure)
    for worker in workers:
      if worker not in failures:
        try:
          self._workers[worker].receive(deadline)
        except process_lib.WorkerFailure as failure:
          failures[worker] = str(failure)
    for worker in failures:
      self._workers[worker].kill()
    return failures

  def _replace(self, index: int, failure: str) -> None:
    """Starts another worker for some environments, until one begins episodes."""
    rows = self._rows[index]
    while True:
      if self._restarts >= self._max_restarts:
        raise WorkerError(
          f'{_name(rows)} failed, after max_restarts={self._max_restarts} workers had been replaced.\n{failure}'
        )
      self._restarts += 1
      logging.warning(
        '%s failed, what was under way is dropped. Replacing the worker (%d of at most %d).\n%s',
        _name(rows),
        self._restarts,
        self._max_restarts,
        failure,
      )
      # The episodes after the failed ones: the same would likely fail again.
      numbers = self._arrays.next_episode[rows]
      worker = process_lib.WorkerProcess(self._starts[index], self._memory_fd, self._start_timeout)
      self._workers[index] = worker
      try:
        worker.wait_until_started()
        worker.call(worker_lib.ATTACH, self._step_timeout)
        self._arrays.next_episode[rows] = numbers
        worker.call(worker_lib.SET_EPISODE, self._step_timeout)
        worker.call(worker_lib.RESET, self._step_timeout)
        return
      except process_lib.WorkerFailure as another:
        failure = str(another)
        worker.kill()


def _name(rows: np.ndarray) -> str:
  return f'Environment {rows[0]}' if len(rows) == 1 else f'One of the environments {rows[0]} to {rows[-1]}'
