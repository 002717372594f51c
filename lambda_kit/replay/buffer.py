"""The replay buffer: whole episodes in memory, up to a limit, and random sequences from them."""

import collections
from collections.abc import Iterable, Iterator
import os
import pathlib
from typing import Any, NamedTuple

from absl import logging
import numpy as np

import gin
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.replay import episodes as episodes_lib
from lambda_kit.replay import sequences


class NotEnoughDataError(errors.UserError):
  """The buffer has no sequence of the configured length."""


class _Stored(NamedTuple):
  number: int
  episode: episodes_lib.Episode
  num_bytes: int


@gin.register
@ranges.checked
class EpisodeBuffer:
  """Stores episodes, drops the oldest when it is full, and samples sequences, uniformly by default.

  Episodes get increasing numbers. A buffer rebuilt from the same numbered episodes and the same state of its random
  numbers samples the same batches. Not thread-safe.
  """

  def __init__(
    self,
    header: episodes_lib.Header,
    seed: int,
    sequence_length: ranges.Count = 50,
    max_bytes: ranges.Count = 16 * 2**30,
    max_episodes: ranges.Count | None = None,
    recent_share: ranges.Share = 0.0,
    recent_episodes: ranges.Count = 20,
    surprise_share: ranges.Share = 0.0,
  ):
    """Makes an empty buffer, which takes no memory yet.

    Args:
      header: The task. Episodes of other tasks are refused.
      seed: Of the sampling.
      sequence_length: L. Shorter episodes are kept, but never sampled.
      max_bytes: Limit on the memory of stored arrays, which is never exceeded. Batches, and an unfinished episode in
        an adder, come on top. The default keeps all images of the paper's longest runs.
      max_episodes: Number of latest episodes to keep, for agents that learn from their current behaviour; None for no
        such limit.
      recent_share: Share of each batch that is drawn from the latest episodes only; the rest is drawn from all.
      recent_episodes: How many episodes count as the latest.
      surprise_share: Share of each batch that is drawn in proportion to the surprise of sequences: how much more cost
        came in them than was forecast when they were new. Uniform as long as nothing was a surprise.
    """
    if recent_share + surprise_share > 1.0 + 1e-9:
      raise errors.SetupError(
        f'EpisodeBuffer.surprise_share = {surprise_share} and EpisodeBuffer.recent_share = {recent_share} are more '
        'than a whole batch: lower one of them.'
      )
    self._header = header
    self._length = sequence_length
    self._max_bytes, self._max_episodes = max_bytes, max_episodes
    self._recent_share, self._recent_episodes = recent_share, recent_episodes
    self._surprise_share = surprise_share
    self._rng = np.random.Generator(np.random.PCG64(seed))
    self._warned: set[str] = set()
    self._clear()

  def _clear(self) -> None:
    self._stored: collections.deque[_Stored] = collections.deque()
    self._index: sequences.SequenceIndex | None = None  # Of the stored episodes; None if they have changed.
    self._total_surprise = np.zeros(0)  # Of all sequences up to each one, of the index.
    self._num_bytes = 0
    self._num_steps = 0
    self._next_number = 0

  def add(self, episode: episodes_lib.Episode, number: int | None = None) -> int:
    """Stores a copy of an episode.

    Args:
      episode: Must fit the header.
      number: Larger than all before. By default, the next one.

    Returns:
      Its number.
    """
    episodes_lib.check(episode, self._header)
    number = self._next_number if number is None else number
    if number < self._next_number:
      raise ValueError(f'Episode {number} comes after episode {self._next_number - 1}: numbers must increase.')
    size = episode.num_bytes
    if size > self._max_bytes:
      raise ValueError(
        f'One episode of {episode.num_steps} agent steps takes {format_bytes(size)}, more than the whole replay '
        f'may take: EpisodeBuffer.max_bytes = {self._max_bytes} ({format_bytes(self._max_bytes)}). Raise it, or '
        'shorten the episodes.'
      )
    self._index = None
    if self._max_episodes is not None and self.num_episodes == self._max_episodes:
      self._drop_oldest()
    while self._num_bytes + size > self._max_bytes:
      self._warn_once(
        'full',
        f'The replay is full: EpisodeBuffer.max_bytes = {self._max_bytes} '
        f'({format_bytes(self._max_bytes)}). From now on, the oldest episodes are dropped.',
      )
      self._drop_oldest()
    episode = episodes_lib.read_only_copy(episode)
    self._stored.append(_Stored(number, episode, size))
    self._num_bytes += size
    self._num_steps += episode.num_steps
    self._next_number = number + 1
    if episode.num_steps + 1 < self._length:
      self._warn_once(
        'short',
        f'Episode {number} has {episode.num_steps + 1} time steps, fewer than '
        f'EpisodeBuffer.sequence_length = {self._length}: such episodes are never sampled.',
      )
    return number

  def _drop_oldest(self) -> None:
    oldest = self._stored.popleft()
    self._num_bytes -= oldest.num_bytes
    self._num_steps -= oldest.episode.num_steps

  def num_recent(self, batch_size: int) -> int:
    """How many sequences of a batch, the first ones, are from the latest episodes only."""
    return round(self._recent_share * batch_size)

  def draw(self, num_batches: int, batch_size: int) -> sequences.Draws:
    """Draws the sequences of n batches, with replacement. A sequence lies within one episode.

    The first `recent_share` of each batch is from the latest episodes, and the last `surprise_share` by surprise. One
    call for n batches draws the same sequences as n calls for one batch.
    """
    if self._index is None:
      self._index = sequences.SequenceIndex.of(
        [stored.episode for stored in self._stored], [stored.number for stored in self._stored], self._length
      )
      self._total_surprise = np.cumsum(self._index.surprise()) if self.draws_by_surprise else np.zeros(0)
    if not self._index.total:
      raise NotEnoughDataError(
        f'There is no sequence to learn from: the replay has {self.num_episodes} finished episodes with '
        f'{self.num_steps} agent steps in all, and EpisodeBuffer.sequence_length = {self._length} needs one episode '
        f'of at least {self._length - 1}. Lower sequence_length, collect more random steps before the first update '
        '(PeriodicUpdates.first), or start from an offline dataset (LambdaAgent.offline_data).'
      )
    # The oldest sequence that each row may be.
    is_recent = np.arange(batch_size) < self.num_recent(batch_size)
    first = np.where(is_recent, self._index.first_of_last(self._recent_episodes), 0)
    if not self.draws_by_surprise:
      return sequences.Draws(self._index, self._rng.integers(first, self._index.total, size=(num_batches, batch_size)))
    num_surprising = min(round(self._surprise_share * batch_size), batch_size - self.num_recent(batch_size))
    numbers = [self._draw_with_surprises(first, num_surprising) for _ in range(num_batches)]
    return sequences.Draws(self._index, np.array(numbers, np.int64).reshape(num_batches, batch_size))

  def _draw_with_surprises(self, first: np.ndarray, num_surprising: int) -> np.ndarray:
    """The sequences of one batch [B], the last ones in proportion to their surprise."""
    assert self._index is not None
    numbers = self._rng.integers(first, self._index.total)
    quantiles = self._rng.random(num_surprising)  # Also if they aren't used: what is drawn later stays the same.
    if num_surprising and self._total_surprise[-1] > 0.0:
      # The first sequence up to which the surprise exceeds its share of all: never one without any.
      positions = np.searchsorted(self._total_surprise, quantiles * self._total_surprise[-1], side='right')
      numbers[-num_surprising:] = positions
    return numbers

  @property
  def draws_by_surprise(self) -> bool:
    """Whether it uses `Episode.surprise`."""
    return self._surprise_share > 0.0

  def sample(self, batch_size: int) -> types.Trajectory:
    """A batch of sequences in new NumPy arrays [B, L, ...]: algorithm 2, line 4."""
    return self.draw(1, batch_size).batch(0)

  def items(self) -> Iterator[tuple[int, episodes_lib.Episode]]:
    """The numbers of the stored episodes and the episodes (read-only), oldest first."""
    for stored in tuple(self._stored):
      yield stored.number, stored.episode

  def rebuild(self, items: Iterable[tuple[int, episodes_lib.Episode]]) -> None:
    """Replaces the content by another buffer's `items`."""
    self._clear()
    for number, episode in items:
      self.add(episode, number)

  def rng_state(self) -> dict[str, Any]:
    """The state of the sampling's random numbers. JSON can hold it, with integers of 128 bits."""
    return dict(self._rng.bit_generator.state)

  def set_rng_state(self, state: dict[str, Any]) -> None:
    self._rng.bit_generator.state = state

  @property
  def header(self) -> episodes_lib.Header:
    return self._header

  @property
  def sequence_length(self) -> int:
    """L."""
    return self._length

  @property
  def num_bytes(self) -> int:
    """Bytes of all stored arrays."""
    return self._num_bytes

  @property
  def num_episodes(self) -> int:
    return len(self._stored)

  @property
  def num_steps(self) -> int:
    """Agent steps of all stored episodes."""
    return self._num_steps

  def check_episodes(self, episode_length: int | None) -> None:
    """Refuses limits under which no episode of this many simulator steps can be kept, or none can be sampled.

    Episodes of unknown length, None, are taken to be just long enough.
    """
    length = self._length
    if episode_length is not None:
      length = -(-episode_length // self._header.action_repeat) + 1
      if length < self._length:
        raise errors.SetupError(
          f'EpisodeBuffer.sequence_length = {self._length} is longer than an episode, which has {length} time steps '
          f'({episode_length} simulator steps with make_environment.action_repeat = {self._header.action_repeat}): '
          'lower it, or no episode could be learned from.'
        )
    size = length * self._header.bytes_per_time_step
    if size > self._max_bytes:
      raise errors.SetupError(
        f'EpisodeBuffer.max_bytes = {self._max_bytes} ({format_bytes(self._max_bytes)}) is less than one episode of '
        f'{length} time steps takes, {format_bytes(size)}: raise it, best to many times as much.'
      )

  def warn_if_short(self, environment_steps: int, episode_length: int | None) -> float:
    """Warns if the buffer or the machine's memory can't hold all data of a run.

    Args:
      environment_steps: Simulator steps of the whole run.
      episode_length: Simulator steps of an episode; None if unknown.

    Returns:
      The share of the run's data that the buffer can keep, at most 1.
    """
    needed = estimate_bytes(self._header, environment_steps, episode_length)
    share = min(1.0, self._max_bytes / needed)
    if share < 1.0:
      logging.warning(
        'The %d environment steps of this run make %s of replay data. EpisodeBuffer.max_bytes = %d (%s) keeps the '
        'newest %.0f %% of them.',
        environment_steps,
        format_bytes(needed),
        self._max_bytes,
        format_bytes(self._max_bytes),
        100.0 * share,
      )
    machine = _machine_bytes()
    if machine is not None and min(needed, self._max_bytes) > machine:
      logging.warning(
        'The replay will grow to %s, but this machine has %s of memory: the run will probably be killed. Lower '
        'EpisodeBuffer.max_bytes.',
        format_bytes(min(needed, self._max_bytes)),
        format_bytes(machine),
      )
    return share

  def _warn_once(self, topic: str, message: str) -> None:
    if topic not in self._warned:
      self._warned.add(topic)
      logging.warning('%s', message)


def estimate_bytes(header: episodes_lib.Header, environment_steps: int, episode_length: int | None) -> int:
  """Bytes that all episodes of a run take. An episode has one time step more than agent steps.

  Args:
    header: Shapes, dtypes and the action repeat.
    environment_steps: Simulator steps of the run.
    episode_length: Simulator steps of an episode; None counts the run as one episode.
  """
  repeat, episode_length = header.action_repeat, episode_length or environment_steps
  agent_steps, num_episodes = -(-environment_steps // repeat), -(-environment_steps // episode_length)
  return (agent_steps + num_episodes) * header.bytes_per_time_step


def format_bytes(count: float) -> str:
  """A number of bytes in a readable unit: '12.3 GiB'."""
  for unit in ('bytes', 'KiB', 'MiB'):
    if count < 1024:
      return f'{count:.4g} {unit}'
    count /= 1024
  return f'{count:.4g} GiB'


def _machine_bytes() -> int | None:
  """Memory of this machine, or of the container that this process runs in; None if unknown."""
  known = []
  try:
    known.append(os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES'))
  except (ValueError, OSError, AttributeError):
    pass
  try:
    known.append(int(pathlib.Path('/sys/fs/cgroup/memory.max').read_text('ascii')))
  except (ValueError, OSError):  # No such file, or 'max' for no limit.
    pass
  return min(known, default=None)
