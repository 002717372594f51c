"""Numbers the sequences of length L within episodes, and gathers batches of them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lambda_kit import types
from lambda_kit.replay import episodes as episodes_lib


class SequenceIndex(NamedTuple):
  """Numbers all sequences that lie within one episode: 0, 1, ... by episode, then by their first time step.

  So a uniform number is a uniform sequence, and episodes are drawn in proportion to the number of their sequences.
  """

  episodes: tuple[episodes_lib.Episode, ...]  # E of them.
  episode_numbers: np.ndarray  # [E] int32, those of the buffer.
  begins: np.ndarray  # [E], the number of each episode's first sequence.
  ends: np.ndarray  # [E], the number after its last one.
  length: int  # L.

  @classmethod
  def of(cls, episodes: Sequence[episodes_lib.Episode], episode_numbers: Sequence[int], length: int) -> 'SequenceIndex':
    # T + 1 time steps have T + 2 - L sequences.
    counts = np.fromiter((max(episode.num_steps + 2 - length, 0) for episode in episodes), np.int64, len(episodes))
    ends = np.cumsum(counts)
    return cls(tuple(episodes), np.asarray(episode_numbers, np.int32), ends - counts, ends, length)

  @property
  def total(self) -> int:
    return int(self.ends[-1]) if len(self.ends) else 0

  def first_of_last(self, num_episodes: int) -> int:
    """The number of the first sequence of the last episodes; 0 if they have none."""
    first = int(self.begins[-min(num_episodes, len(self.begins))])
    return first if first < self.total else 0

  def surprise(self) -> np.ndarray:
    """The surprise of each sequence, summed over its time steps, [total] float64; 0 where it is not known."""
    sums = np.zeros(self.total)
    for episode, begin, end in zip(self.episodes, self.begins.tolist(), self.ends.tolist()):
      if episode.surprise is not None and end > begin:
        before = np.concatenate([[0.0], np.cumsum(episode.surprise, dtype=np.float64)])
        sums[begin:end] = before[self.length :] - before[: -self.length]
    return sums

  def gather(self, numbers: np.ndarray) -> types.Trajectory:
    """Copies the sequences with the given numbers [B] into new arrays [B, L, ...]."""
    # An episode without sequences has the same end as its predecessor, and is skipped.
    owners = np.searchsorted(self.ends, numbers, side='right')
    starts = numbers - self.begins[owners]
    # Always new arrays: on the CPU, JAX uses the memory of NumPy arrays without copying it.
    batch = {
      name: np.empty((len(numbers), self.length, *array.shape[1:]), array.dtype)
      for name, array in episodes_lib.flatten(self.episodes[owners[0]]).items()
    }
    for row, (owner, start) in enumerate(zip(owners.tolist(), starts.tolist())):
      for name, array in episodes_lib.flatten(self.episodes[owner]).items():
        batch[name][row] = array[start : start + self.length]
    numbers_of_owners = np.repeat(self.episode_numbers[owners][:, None], self.length, axis=1)
    return types.Trajectory(**episodes_lib.unflatten(batch), episode=numbers_of_owners)


class Draws(NamedTuple):
  """Batches that are drawn but not copied yet. Later changes of the buffer don't affect them.

  Any thread may copy them. They keep their episodes alive, even if the buffer drops them.
  """

  source: SequenceIndex
  numbers: np.ndarray  # [n, B]

  @property
  def num_batches(self) -> int:
    return len(self.numbers)

  def batch(self, i: int) -> types.Trajectory:
    """Batch i of n, [B, L, ...]."""
    return self.source.gather(self.numbers[i])
