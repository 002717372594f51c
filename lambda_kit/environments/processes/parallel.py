"""Several environments in worker processes, behind one batched step.

  with ParallelEnvironments(make_environment, num_environments=4, seed=0) as environments:
    timestep = environments.reset()
    while True:
      actions = policy(timestep.observation)  # [k, A]
      next_timestep = environments.step(actions)
      learn(timestep, actions, next_timestep)
      timestep = environments.reset_done()

Ends of episodes. `step` follows dm_env's rule in each row: it returns the true last observation with `StepType.LAST`,
and the next step ignores its action and returns `StepType.FIRST`. `reset_done` begins the new episodes at once, so that
no row of a batched step is spent on a reset. Then every row of (timestep, actions, next_timestep) is a true transition,
on-policy roll-outs stay rectangular [T, k], and values are bootstrapped from `next_timestep.observation`, also at time
limits. The one exception is a row of `next_timestep` that is first: its worker was replaced, so there is no transition,
and the episode of `timestep` has no end.
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


class ParallelEnvironments:
  """Steps k environments at once in worker processes of one or several environments each.

  A worker is replaced if one of its environments raises an error, if its process dies, or if it takes longer than
  `step_timeout`; a warning shows its traceback. Its episodes are dropped: the replacement begins the next ones, and the
  batched step has first time steps in these rows.

  Returned arrays belong to the caller. Not thread-safe.
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
      environment_factory: Called in workers with `seed=environment_seed(seed, index)`. A function, a partial, a
        closure, or gin's value of a reference: workers take over this process's gin bindings, but don't import its
        main module.
      num_environments: k.
      seed: Not negative.
      num_workers: Processes, among which environments are divided; None for k. Several environments in one process save
        much of the communication.
      step_timeout: Seconds that a step or a reset of all environments of a process may take.
      start_timeout: Seconds that starting a process and building its environments may take.
      max_restarts: Replacements, over all workers, before `WorkerError` is raised.

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
    # Also runs when this object is garbage collected, and when the interpreter exits.
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
        raise WorkerError(f'{_name(rows)} could not be built: {failure}') from None
    self._specs = started[0].specs[0]
    for index, other in enumerate(specs for one in started for specs in one.specs):
      if other != self._specs:
        raise WorkerError(f'Environments 0 and {index} have different specs: {self._specs} and {other}.')
    factories.add_to_operative_config(started[0].used)
    size = worker_lib.memory_size(self._specs, self._num_environments)
    os.ftruncate(self._memory_fd, size)
    self._arrays = worker_lib.map_arrays(mmap.mmap(self._memory_fd, size), self._specs, self._num_environments)
    self._arrays.step_type[...] = dm_env.StepType.LAST  # No episode has begun: `reset_done` has to begin them all.
    self._run(worker_lib.ATTACH, range(len(self._workers)))

  def reset(self) -> dm_env.TimeStep:
    """Begins a new episode in every environment."""
    self._run(worker_lib.RESET, range(len(self._workers)))
    return self._timestep()

  def step(self, actions: np.ndarray) -> dm_env.TimeStep:
    """Steps every environment; where an episode is over, begins a new one instead.

    Args:
      actions: [k, A], all finite.

    Returns:
      A time step of arrays: step_type [k], reward and discount [k], cost [k, C], observation [k, ...]. In first rows,
      reward and cost are 0 and the discount is 1.
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
    """Begins a new episode where the last one is over.

    Returns:
      The time step to act on: first in the rows of new episodes, and elsewhere what `step` returned last.
    """
    is_over = self._arrays.step_type == dm_env.StepType.LAST
    self._run(worker_lib.RESET_DONE, [worker for worker, rows in enumerate(self._rows) if is_over[rows].any()])
    return self._timestep()

  def action_spec(self) -> dm_specs.Array:
    """The spec of one environment's actions, [A]."""
    return self._specs.action

  @property
  def num_environments(self) -> int:
    return self._num_environments

  @property
  def last_step_counts(self) -> np.ndarray:
    """Simulator steps [k] of the last time step in each environment; 0 where it was a first one."""
    return self._arrays.last_step_count.copy()

  @property
  def episode_numbers(self) -> np.ndarray:
    """Numbers [k] of the episodes that the next resets begin. Can still be read after `close`."""
    return self._arrays.next_episode.copy()

  @episode_numbers.setter
  def episode_numbers(self, numbers: np.ndarray) -> None:
    numbers = np.asarray(numbers)
    is_integer = np.issubdtype(numbers.dtype, np.integer)
    if numbers.shape != (self._num_environments,) or not is_integer or (numbers < 0).any():
      raise ValueError(f'episode_numbers must be {self._num_environments} integers from 0 on, got {numbers}.')
    waiting = list(range(len(self._workers)))
    while waiting:  # A replaced worker has begun episodes already, and needs the numbers again.
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
    """Has workers carry out a command, replaces those that fail, and returns their indices."""
    if not self._finalizer.alive:
      raise RuntimeError('The environments are closed.')
    try:
      failures = self._exchange(command, workers)
      for worker, failure in failures.items():
        self._replace(worker, failure)
      return list(failures)
    except BaseException:
      # Interrupted halfway: some workers have stepped and others have not, and the caller can't know which.
      self.close()
      raise

  def _exchange(self, command: bytes, workers: Sequence[int]) -> dict[int, str]:
    """Has workers carry out a command in parallel, and returns the failures by worker."""
    deadline = time.monotonic() + self._step_timeout
    failures: dict[int, str] = {}
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
    """Starts new workers until one has begun its episodes."""
    rows = self._rows[index]
    while True:
      if self._restarts >= self._max_restarts:
        raise WorkerError(
          f'{_name(rows)} failed, after max_restarts={self._max_restarts} workers had been replaced: {failure}'
        )
      self._restarts += 1
      logging.warning(
        '%s failed; unfinished episodes are dropped. Replacing the worker (%d of at most %d).\n%s',
        _name(rows),
        self._restarts,
        self._max_restarts,
        failure,
      )
      # The episodes after the failed ones, which would probably fail again.
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
