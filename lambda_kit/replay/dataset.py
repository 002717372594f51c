"""Batches for a learner, on its device, prepared while it works."""

import collections
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import jax

import gin
from lambda_kit import types
from lambda_kit.replay import buffer as buffer_lib
from lambda_kit.replay import sequences


@gin.register
class ReplayDataset:
  """Batches of sequences from a buffer, as arrays of JAX.

    for batch in dataset.batches(num_updates):
      state, metrics = update(state, batch)

  `next(dataset)` samples one batch from what the buffer holds at that moment. `batches(n)` chooses those of n updates
  at once, when it is called, from what the buffer holds then; only copying them to the device is left to a thread. So
  the batches don't depend on `prefetch`: they are bit for bit those of n calls of `next`.
  """

  def __init__(self, buffer: buffer_lib.EpisodeBuffer, batch_size: int = 32, prefetch: int = 1, device: Any = None):
    """Samples nothing yet.

    Args:
      buffer: Where sequences are drawn from.
      batch_size: B.
      prefetch: Batches that are prepared ahead of the learner, in a thread; 0 prepares each when it's asked for.
      device: Device or sharding for the batches. By default, JAX's.
    """
    if batch_size < 1 or prefetch < 0:
      raise ValueError(
        f'ReplayDataset: batch_size = {batch_size} must be at least 1, and prefetch = {prefetch} must not be negative.'
      )
    self._buffer = buffer
    self._batch_size = batch_size
    self._prefetch = prefetch
    self._device = device

  def __iter__(self) -> Iterator[types.Trajectory]:
    return self

  def __next__(self) -> types.Trajectory:
    return self._prepare(self._buffer.draw(1, self._batch_size), 0)

  def batches(self, num_batches: int) -> Iterator[types.Trajectory]:
    """The batches [B, L, ...] of the next updates. Closing the iterator, or dropping it, ends its thread."""
    if num_batches < 1:
      return iter(())
    draws = self._buffer.draw(num_batches, self._batch_size)
    if not self._prefetch:
      return (self._prepare(draws, i) for i in range(num_batches))
    return self._prefetched(draws, jax.config.jax_default_device)

  def _prefetched(self, draws: sequences.Draws, default_device: Any) -> Iterator[types.Trajectory]:

    def prepare(i: int) -> types.Trajectory:
      with jax.default_device(default_device):  # Of the caller: JAX keeps one for each thread.
        return self._prepare(draws, i)

    executor = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix='replay_prefetch')
    try:
      pending = collections.deque()
      for i in range(draws.num_batches):
        pending.append(executor.submit(prepare, i))
        if len(pending) > self._prefetch:
          yield pending.popleft().result()
      while pending:
        yield pending.popleft().result()
    finally:
      executor.shutdown(wait=True, cancel_futures=True)

  def _prepare(self, draws: sequences.Draws, i: int) -> types.Trajectory:
    batch = draws.batch(i)
    if isinstance(self._device, jax.sharding.Sharding):  # Each device, and each host, takes its part of it.
      return jax.tree.map(lambda x: jax.make_array_from_callback(x.shape, self._device, x.__getitem__), batch)
    return jax.device_put(batch, self._device)
