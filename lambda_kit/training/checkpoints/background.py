"""Saving beside the training: the values are copied at once, and written by a thread."""

from collections.abc import Mapping
from concurrent import futures
import json
import operator
import pathlib
from typing import Any

from absl import logging
import jax
import numpy as np

from lambda_kit.training.checkpoints import scores
from lambda_kit.training.checkpoints import store as store_lib


class BackgroundSaver:
  """Saves checkpoints in one thread, one at a time.

  Args:
    store: Where to.
  """

  def __init__(self, store: store_lib.CheckpointStore):
    self._store = store
    self._executor = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix='checkpoints')
    self._last: futures.Future[pathlib.Path] | None = None
    self._closed = False
    self._failures = 0
    self._last_error: Exception | None = None

  def save(
    self, step: int, arrays: Mapping[str, Any], state: Mapping[str, Any], score: Mapping[str, Any] | None = None
  ) -> None:
    """Saves the values of this moment; see `CheckpointStore.save`. Waits for the previous save, whatever came of it.

    What goes wrong while writing is logged and counted, and raised by `wait` only. A state that JSON can't hold and a
    score that is none are raised at once.
    """
    if self._closed:
      raise RuntimeError('The saver is closed.')
    if self._last is not None:
      futures.wait([self._last])  # Before the next copy is made: memory holds one at most.
    # The learner's next update writes over its buffers. `jax.device_get` returns views of them on CPU; this copies.
    copied = jax.tree.map(np.array, dict(arrays))
    # Text and back is a copy, too, and finds what JSON can't hold.
    state = json.loads(json.dumps(state))
    self._last = self._executor.submit(self._write, operator.index(step), copied, state, scores.check(score))

  def wait(self) -> pathlib.Path | None:
    """Blocks until all is written. Returns the last checkpoint's folder, or raises the error of the last save."""
    return None if self._last is None else self._last.result()

  def close(self) -> None:
    """Blocks until all is written, and ends the thread. Raises nothing, and may be called again."""
    self._closed = True
    self._executor.shutdown()

  @property
  def failures(self) -> int:
    """How many saves failed."""
    return self._failures

  @property
  def last_error(self) -> Exception | None:
    """The error of the latest save that failed."""
    return self._last_error

  def __enter__(self) -> 'BackgroundSaver':
    return self

  def __exit__(self, *error) -> None:
    self.close()

  def _write(
    self, step: int, arrays: Mapping[str, Any], state: Mapping[str, Any], score: Mapping[str, Any] | None
  ) -> pathlib.Path:
    try:
      return self._store.save(step, arrays, state, score)
    except Exception as error:
      self._failures += 1
      self._last_error = error
      logging.warning('The checkpoint of step %d was not saved: %s', step, error)
      raise
