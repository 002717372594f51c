"""Batches on the learner's device, prepared while it computes."""

import collections
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import jax

from lambda_kit import types
from lambda_kit.replay import buffer as buffer_lib
from lambda_kit.replay import sequences


class ReplayDataset:
  """Batches of sequences from a buffer, as JAX arrays.

    for batch in dataset.batches(num_updates):
      state, metrics = update(state, batch)

  `batches(n)` draws the sequences of n updates when it is called; a thread only copies them to the device. So the
  batches don't depend on `prefetch`.
  """

  def __init__(self, buffer: buffer_lib.EpisodeBuffer, batch_size: int = 32, prefetch: int = 1, device: Any = None):
    """Samples nothing yet.

    Args:
      buffer: The source of sequences.
      batch_size: B.
      prefetch: How many batches a thread prepares ahead; 0 prepares each batch when it is asked for.
      device: Device or sharding for the batches. By default, JAX's.
    """
    if batch_size < 1 or prefetch < 0:
      raise ValueError(
        f'ReplayDataset: batch_size = {batch_size} must be at least 1, and prefetch = {prefetch} must not be negative.'
      )
    self.num_recent = buffer.num_recent(batch_size)
    self._buffer = buffer
    self._batch_size = batch_size
    self._prefetch = prefetch
    self._device = device

  def batches(self, num_batches: int) -> Iterator[types.Trajectory]:
    """The batches [B, L, ...] of the next updates. Closing the iterator, or dropping it, ends its thread."""
    if num_batches < 1:
      return iter(())
    draws = self._buffer.draw(num_batches, self._batch_size)
    if not self._prefetch:
      return (self._prepare(draws, i) for i in range(num_batches))
    device = jax.config.jax_default_device  # type: ignore[attr-defined]  # JAX adds its options at run time.
    return self._prefetched(draws, device)

  def _prefetched(self, draws: sequences.Draws, default_device: Any) -> Iterator[types.Trajectory]:

    def prepare(i: int) -> types.Trajectory:
      with jax.default_device(default_device):  # The caller's: in JAX, each thread has its own.
        return self._prepare(draws, i)

    executor = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix='replay_prefetch')
    try:
      pending: collections.deque[futures.Future[types.Trajectory]] = collections.deque()
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
    if isinstance(self._device, jax.sharding.Sharding):  # Each device, on each host, takes its slice.
      return jax.tree.map(lambda x: jax.make_array_from_callback(x.shape, self._device, x.__getitem__), batch)
    return jax.device_put(batch, self._device)
