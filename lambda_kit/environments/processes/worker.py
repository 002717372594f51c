"""The program of a worker process, and the layout of the memory that it shares with its parent.

Imports as little as possible, and never jax: every process pays for its start-up time and memory.

The parent sends a command of one byte and the worker answers with one byte; by then, the arrays of the time step are in
shared memory. Only a start, a picture and a failure carry more: a length and that many bytes.
"""

from collections.abc import Iterator, Mapping
import faulthandler
import mmap
import os
import pickle
import select
import signal
import socket
import struct
import threading
import traceback
from typing import Any, NamedTuple

import dm_env
from dm_env import specs as dm_specs
import numpy as np

from lambda_kit import core
from lambda_kit import errors
from lambda_kit import signals
from lambda_kit import types
from lambda_kit.environments.processes import factories

# Commands go to all environments of a worker, except RESET_DONE (to those whose episode is over) and RENDER (to the
# first, followed by a packed `PICTURE_SIZE`).
ATTACH, SET_EPISODE, RESET, RESET_DONE, STEP, RENDER, CLOSE = b'a', b'e', b'r', b'd', b's', b'p', b'c'
# Answers. STARTED is followed by a pickled `Started`, RENDERED by a pickled array, FAILED by the text of a traceback.
STARTED, DONE, RENDERED, FAILED = b'S', b'D', b'P', b'F'

PICTURE_SIZE = struct.Struct('!II')  # Height and width.

TRACE_SIGNAL = signal.SIGUSR1  # Makes a worker write its stack trace to its trace file.
_ALIGNMENT = 64  # Bytes; a cache line.


class Specs(NamedTuple):
  """The specs and properties of an environment."""

  task_name: str
  observation: dict[str, dm_specs.Array]
  action: dm_specs.Array
  reward: types.CmdpReward  # Of specs.
  discount: dm_specs.Array
  constraint_names: tuple[str, ...]
  action_repeat: int
  episode_length: int | None
  mujoco_version: str | None


class Start(NamedTuple):
  """The first message to a worker."""

  package: factories.Package
  seeds: tuple[int, ...]  # One for each environment of this worker.
  first_index: int  # The row of the first of them; the others follow.
  num_environments: int  # k, of all workers.


class Started(NamedTuple):
  """The worker's answer when its environments are built."""

  specs: tuple[Specs, ...]  # One for each environment.
  used: factories.Used


class SharedArrays(NamedTuple):
  """Views of the shared memory. Workers touch only the rows of their environments."""

  action: np.ndarray  # [k, A]
  observation: dict[str, np.ndarray]  # [k, ...]
  reward: np.ndarray  # [k]
  cost: np.ndarray  # [k, C]
  discount: np.ndarray  # [k]
  step_type: np.ndarray  # [k] uint8.
  last_step_count: np.ndarray  # [k] int64, simulator steps.
  next_episode: np.ndarray  # [k] int64. Advanced before a reset, so that a replacement skips an episode that fails.


def memory_size(specs: Specs, num_environments: int) -> int:
  """Bytes that `map_arrays` needs."""
  return sum(_padded_size(spec, num_environments) for spec in _fields(specs))


def map_arrays(memory: mmap.mmap, specs: Specs, num_environments: int) -> SharedArrays:
  """Maps arrays onto `memory`: in the same way on both sides, since it depends on the specs alone."""

  def arrays() -> Iterator[np.ndarray]:
    offset = 0
    for spec in _fields(specs):
      yield np.ndarray((num_environments, *spec.shape), spec.dtype, memory, offset)
      offset += _padded_size(spec, num_environments)

  views = arrays()
  observation = {name: next(views) for name in sorted(specs.observation)}
  return SharedArrays(next(views), observation, *views)


def _fields(specs: Specs) -> list[dm_specs.Array]:
  count = dm_specs.Array((), np.int64)
  observation = [spec for _, spec in sorted(specs.observation.items())]  # Equal dictionaries may differ in order.
  return [
    *observation,
    specs.action,
    specs.reward.reward,
    specs.reward.cost,
    specs.discount,
    dm_specs.Array((), np.uint8),
    count,
    count,
  ]


def _padded_size(spec: dm_specs.Array, num_environments: int) -> int:
  size = num_environments * int(np.prod(spec.shape)) * spec.dtype.itemsize
  return -(-size // _ALIGNMENT) * _ALIGNMENT


def send_long(connection: socket.socket, kind: bytes, content: bytes) -> None:
  """Sends a message of more than one byte."""
  connection.sendall(kind + struct.pack('!Q', len(content)) + content)


def receive_long(connection: socket.socket) -> bytes:
  """Receives what follows the first byte of a long message."""
  return _receive_exactly(connection, *struct.unpack('!Q', _receive_exactly(connection, 8)))


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
  content = bytearray()
  while len(content) < size:
    part = connection.recv(min(size - len(content), 1 << 20))
    if not part:
      raise EOFError('The other side is gone.')
    content += part
  return bytes(content)


def main(connection_fd: int, memory_fd: int, trace_fd: int) -> None:
  """Builds environments and serves them until the parent closes them or dies."""
  signals.ignore()  # The parent saves, and closes its workers.
  faulthandler.enable(trace_fd, all_threads=False)
  faulthandler.register(TRACE_SIGNAL, trace_fd, all_threads=False)
  connection = socket.socket(fileno=connection_fd)
  for fd in (connection_fd, memory_fd, trace_fd):
    os.set_inheritable(fd, False)  # Otherwise, processes that the environment starts would keep them open.
  threading.Thread(target=_exit_with_parent, args=(connection_fd,), daemon=True).start()
  try:
    _serve(connection, memory_fd)
  except BaseException as error:  # Environments can raise anything, SystemExit included.
    name = '' if isinstance(error, errors.UserError) else f'{type(error).__name__}: '
    sentence = (str(error).splitlines() or [''])[0]
    try:
      send_long(connection, FAILED, f'{name}{sentence}\n{traceback.format_exc()}'.encode())
    except OSError:
      pass  # The parent is gone.
    raise SystemExit(1) from None


def _exit_with_parent(connection_fd: int) -> None:
  """Ends this process when the parent dies, even during a step that never returns."""
  poll = select.poll()
  poll.register(connection_fd, 0)  # Wakes only when the other side is closed.
  poll.poll()
  os._exit(1)


def _serve(connection: socket.socket, memory_fd: int) -> None:
  """Answers commands until it is told to close, or the parent is gone."""
  start: Start = pickle.loads(receive_long(connection))
  built = [factories.build(start.package, seed) for seed in start.seeds]
  environments = [environment for environment, _ in built]
  specs = tuple(_get_specs(environment) for environment in environments)
  send_long(connection, STARTED, pickle.dumps(Started(specs, built[0][1])))
  rows: list[_Row] = []
  while command := connection.recv(1):
    if command == CLOSE:
      for environment in environments:
        environment.close()
      return
    if command == RENDER:
      picture = environments[0].render(*PICTURE_SIZE.unpack(_receive_exactly(connection, PICTURE_SIZE.size)))
      send_long(connection, RENDERED, pickle.dumps(picture))
      continue
    if command == ATTACH:
      memory = mmap.mmap(memory_fd, memory_size(specs[0], start.num_environments))
      arrays = map_arrays(memory, specs[0], start.num_environments)
      rows = [_Row(arrays, start.first_index + i) for i in range(len(environments))]
    for environment, row in zip(environments, rows, strict=True):
      _carry_out(command, environment, row)
    connection.send(DONE)


def _carry_out(command: bytes, environment: core.Environment, row: '_Row') -> None:
  if command == SET_EPISODE:
    environment.next_episode = row.next_episode
  elif command == RESET or (command in (RESET_DONE, STEP) and row.is_over):
    row.next_episode = environment.next_episode + 1
    row.write(environment.reset(), last_step_count=0)
  elif command == STEP:
    row.write(environment.step(row.action), environment.last_step_count)
  row.next_episode = environment.next_episode


def _get_specs(environment: core.Environment) -> Specs:
  """Collects the environment's specs, and refuses what shared memory can't hold."""
  observation, reward = environment.observation_spec(), environment.reward_spec()
  if not isinstance(observation, Mapping) or not isinstance(reward, types.CmdpReward):
    raise ValueError(
      'Observations must be mappings from name to array and rewards a `CmdpReward`, but the specs are '
      f'{observation} and {reward}.'
    )
  specs = Specs(
    environment.task_name,
    dict(observation),
    environment.action_spec(),
    reward,
    environment.discount_spec(),
    tuple(environment.constraint_names),
    environment.action_repeat,
    environment.episode_length,
    environment.mujoco_version,
  )
  for spec in _fields(specs):
    if not isinstance(spec, dm_specs.Array) or spec.dtype.hasobject:
      raise ValueError(f'Only arrays of numbers can be shared between processes, not {spec}.')
  return specs


class _Row:
  """One environment's part of the shared arrays."""

  def __init__(self, arrays: SharedArrays, index: int):
    self._arrays = arrays
    self._index = index
    self._observation = {name: array[index, ...] for name, array in arrays.observation.items()}
    self._action, self._reward, self._cost, self._discount = (
      array[index, ...] for array in (arrays.action, arrays.reward, arrays.cost, arrays.discount)
    )
    self.is_over = True  # Whether the next step begins an episode.

  @property
  def action(self) -> np.ndarray:
    return self._action.copy()

  @property
  def next_episode(self) -> int:
    return int(self._arrays.next_episode[self._index])

  @next_episode.setter
  def next_episode(self, number: int) -> None:
    self._arrays.next_episode[self._index] = number

  def write(self, timestep: dm_env.TimeStep, last_step_count: int) -> None:
    """Stores a time step. A first one has no reward and discount, and gets zeros and a discount of 1."""
    if timestep.observation.keys() != self._observation.keys():
      raise ValueError(
        f'The environment returned observations {sorted(timestep.observation)}, but its spec has '
        f'{sorted(self._observation)}.'
      )
    for name, destination in self._observation.items():
      _copy(destination, timestep.observation[name], name)
    if timestep.first():
      self._reward[...], self._cost[...], self._discount[...] = 0, 0, 1
    else:
      _copy(self._reward, timestep.reward.reward, 'reward')
      _copy(self._cost, timestep.reward.cost, 'cost')
      _copy(self._discount, timestep.discount, 'discount')
    self._arrays.step_type[self._index] = timestep.step_type
    self._arrays.last_step_count[self._index] = last_step_count
    self.is_over = timestep.last()


def _copy(destination: np.ndarray, value: Any, name: str) -> None:
  value = np.asarray(value)
  if value.shape != destination.shape:  # numpy would broadcast.
    raise ValueError(f'The environment returned {name} of shape {value.shape}, but its spec has {destination.shape}.')
  np.copyto(destination, value, casting='same_kind')
