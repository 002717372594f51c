"""One environment in its own process, so that its crash or hang costs an episode instead of the run."""

import mmap
import os
import pickle
import weakref

import dm_env
from dm_env import specs as dm_specs
import numpy as np

import gin
from lambda_kit import core
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.environments.processes import factories
from lambda_kit.environments.processes import process as process_lib
from lambda_kit.environments.processes import worker as worker_lib


class EnvironmentFailure(errors.UserError):
  """An environment raised an error or hung, or its process died. The first line of the message says which, the others
  where, if it is known.
  """


@gin.register
@ranges.checked
class IsolatedEnvironment(core.Environment):
  """Runs an environment in another process. Its episodes are the same, to the bit.

  If the environment raises an error, takes too long or loses its process, the call raises `EnvironmentFailure` and the
  episode is lost. The next call starts another process and begins episode `next_episode`: the one after the lost one,
  unless the caller sets it.

  Returned arrays belong to the caller. Not thread-safe.
  """

  def __init__(
    self,
    seed: int,
    environment_factory: core.EnvironmentFactory,
    step_timeout: ranges.Positive = 60.0,
    start_timeout: ranges.Positive = 300.0,
  ):
    """Starts the process and waits until the environment is built.

    Args:
      seed: Passed on to the factory.
      environment_factory: Called in the other process, which takes over this process's gin bindings but doesn't import
        its main module. A function, a partial, a closure, or gin's value of a reference.
      step_timeout: Seconds that a step, a reset or a picture may take.
      start_timeout: Seconds that starting a process and building the environment may take.

    Raises:
      EnvironmentFailure: The environment could not be built.
    """
    self._step_timeout = step_timeout
    self._start_timeout = start_timeout
    self._start = worker_lib.Start(factories.pack(environment_factory), (seed,), first_index=0, num_environments=1)
    self._memory_fd = process_lib.anonymous_file('lambda_kit_environment')
    self._workers: list[process_lib.WorkerProcess] = []  # Empty after a failure; otherwise one.
    self._knows_episode = True  # Whether the worker knows `next_episode`.
    # Also runs when this object is garbage collected, and when the interpreter exits.
    self._finalizer = weakref.finalize(self, process_lib.stop, self._workers, self._memory_fd, os.getpid())
    try:
      started = self._start_worker()
      (self._specs,) = started.specs
      factories.add_to_operative_config(started.used)
      size = worker_lib.memory_size(self._specs, num_environments=1)
      os.ftruncate(self._memory_fd, size)
      self._arrays = worker_lib.map_arrays(mmap.mmap(self._memory_fd, size), self._specs, num_environments=1)
      self._workers[0].call(worker_lib.ATTACH, self._step_timeout)
    except process_lib.WorkerFailure as failure:
      self.close()
      raise EnvironmentFailure(
        f'The environment could not be built (start_timeout = {start_timeout} s): {failure}'
      ) from None
    except BaseException:
      self.close()
      raise

  def reset(self) -> dm_env.TimeStep:
    self._call(worker_lib.RESET)
    return self._timestep()

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    """Steps the environment. The action is cast to the type of `action_spec()`."""
    action, expected = np.asarray(action), self._arrays.action[0, ...]
    if action.shape != expected.shape:
      raise ValueError(f'The action must have shape {expected.shape}, got {action.shape}.')
    np.copyto(expected, action, casting='same_kind')
    self._call(worker_lib.STEP)
    return self._timestep()

  def render(self, height: int = 256, width: int = 256) -> np.ndarray:
    return pickle.loads(self._call(worker_lib.RENDER + worker_lib.PICTURE_SIZE.pack(height, width)))

  def observation_spec(self) -> dict[str, dm_specs.Array]:
    return self._specs.observation

  def action_spec(self) -> dm_specs.Array:
    return self._specs.action

  def reward_spec(self) -> types.CmdpReward:
    return self._specs.reward

  def discount_spec(self) -> dm_specs.Array:
    return self._specs.discount

  @property
  def task_name(self) -> str:
    return self._specs.task_name

  @property
  def mujoco_version(self) -> str | None:
    return self._specs.mujoco_version

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
  def next_episode(self) -> int:
    """See `core.Environment`. Can still be read after `close`."""
    return int(self._arrays.next_episode[0])

  @next_episode.setter
  def next_episode(self, number: int) -> None:
    # The worker gets it with the next command: it may be dead now, and callers set this after a failure.
    self._arrays.next_episode[0] = number
    self._knows_episode = False

  @property
  def last_step_count(self) -> int:
    return int(self._arrays.last_step_count[0])

  @property
  def process_id(self) -> int | None:
    """The id of the environment's process; None between a failure and the next call."""
    return self._workers[0].process_id if self._workers else None

  def close(self) -> None:
    """Closes the environment and ends its process. May be called twice."""
    self._finalizer()

  def _timestep(self) -> dm_env.TimeStep:
    arrays = self._arrays
    step_type = dm_env.StepType(int(arrays.step_type[0]))
    observation = {name: arrays.observation[name][0, ...].copy() for name in self._specs.observation}
    if step_type.first():
      return dm_env.TimeStep(step_type, None, None, observation)
    reward = types.CmdpReward(arrays.reward[0, ...].copy(), arrays.cost[0, ...].copy())
    return dm_env.TimeStep(step_type, reward, arrays.discount[0], observation)

  def _call(self, command: bytes) -> bytes:
    """Has the worker carry out a command, in a new process if the last one failed. Returns the answer's content."""
    if not self._finalizer.alive:
      raise RuntimeError('The environment is closed.')
    try:
      if not self._workers:
        self._replace_worker()
      worker = self._workers[0]
      if not self._knows_episode:
        worker.call(worker_lib.SET_EPISODE, self._step_timeout)
        self._knows_episode = True
      return worker.call(command, self._step_timeout)
    except process_lib.WorkerFailure as failure:
      self._drop_worker()
      raise EnvironmentFailure(
        f'{self.task_name} failed in its process (step_timeout = {self._step_timeout} s): {failure}'
      ) from None
    except BaseException:
      self._drop_worker()  # Interrupted: its late answer would be mistaken for the next command's.
      raise

  def _start_worker(self) -> worker_lib.Started:
    self._workers.append(process_lib.WorkerProcess(self._start, self._memory_fd, self._start_timeout))
    return self._workers[0].wait_until_started()

  def _replace_worker(self) -> None:
    number = self.next_episode
    self._start_worker()
    self._workers[0].call(worker_lib.ATTACH, self._step_timeout)
    self.next_episode = number  # The new environment has reset it to 0.

  def _drop_worker(self) -> None:
    for worker in self._workers:
      worker.kill()
    self._workers.clear()
