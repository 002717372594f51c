"""Saving in the background: values are copied at once, and written by a thread."""

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
    store: Where to save.
  """

  def __init__(self, store: store_lib.CheckpointStore):
    self._store = store
    self._executor = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix='checkpoints')
    self._last: futures.Future[pathlib.Path] | None = None
    self._closed = False

  def save(
    self, step: int, arrays: Mapping[str, Any], state: Mapping[str, Any], score: Mapping[str, Any] | None = None
  ) -> None:
    """Saves the values of this moment; see `CheckpointStore.save`. Waits for the previous save, even if that failed.

    Errors of writing are logged, and raised only by `wait`. A state that JSON can't hold and an invalid score are
    raised at once.
    """
    if self._closed:
      raise RuntimeError('The saver is closed.')
    if self._last is not None:
      futures.wait([self._last])  # Before the next copy is made, so that memory holds at most one.
    # The learner's next update overwrites its buffers. `jax.device_get` returns views of them on CPU; this copies.
    copied = jax.tree.map(np.array, dict(arrays))
    # A round trip through text copies, too, and finds what JSON can't hold.
    state = json.loads(json.dumps(state))
    self._last = self._executor.submit(self._write, operator.index(step), copied, state, scores.check(score))

  def wait(self) -> pathlib.Path | None:
    """Blocks until everything is written. Returns the last checkpoint's folder, or raises the last save's error."""
    return None if self._last is None else self._last.result()

  def close(self) -> None:
    """Blocks until everything is written, and ends the thread. Raises nothing, and may be called again."""
    self._closed = True
    self._executor.shutdown()

  def _write(
    self, step: int, arrays: Mapping[str, Any], state: Mapping[str, Any], score: Mapping[str, Any] | None
  ) -> pathlib.Path:
    try:
      return self._store.save(step, arrays, state, score)
    except Exception as error:
      logging.warning('The checkpoint of step %d was not saved: %s', step, error)
      raise
