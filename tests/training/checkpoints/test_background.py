"""Tests of saving beside the training."""

import threading

from absl import logging
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.training.checkpoints import background
from lambda_kit.training.checkpoints import store as store_lib
from tests.fakes import checkpoints as fakes


class _SlowStore(store_lib.CheckpointStore):
  """Writes when it is told to, or fails."""

  def __init__(self, folder):
    super().__init__(folder)
    self.may_write = threading.Event()
    self.started = threading.Event()
    self.error = None
    self.thread = None

  def save(self, *args, **kwargs):
    self.thread = threading.current_thread()
    self.started.set()
    assert self.may_write.wait(20)
    if self.error:
      raise self.error
    return super().save(*args, **kwargs)


@pytest.fixture(name='store')
def _store(tmp_path) -> _SlowStore:
  return _SlowStore(tmp_path)


def test_values_are_those_of_the_call(store):
  saver = background.BackgroundSaver(store)
  weights, state, score = np.zeros(4), {'seen': [1]}, fakes.score(1.0, 2.0)
  learner = {'w': jnp.zeros(100_000)}  # Large enough for the buffer to be reused.
  address = learner['w'].unsafe_buffer_pointer()
  update = jax.jit(lambda tree: {'w': tree['w'] + 1}, donate_argnums=0)
  saver.save(1, {'numpy': [weights], 'learner': learner}, state, score)
  updated = update(learner)
  assert updated['w'].unsafe_buffer_pointer() == address  # A view of the old values would see the new ones.
  weights += 1
  state['seen'].append(2)
  score['episode_return'] = 9.0
  store.may_write.set()
  path = saver.wait()
  checkpoint = store.newest()
  assert checkpoint.path == path
  assert (checkpoint.state, checkpoint.score) == ({'seen': [1]}, fakes.score(1.0, 2.0))
  fakes.assert_identical(checkpoint.load('numpy', [np.zeros(4)]), [np.zeros(4)])
  fakes.assert_identical(checkpoint.load('learner', updated), {'w': np.zeros(100_000, np.float32)})
  saver.close()


def test_writing_happens_in_one_thread_that_training_does_not_wait_for(store):
  saver = background.BackgroundSaver(store)
  saver.save(1, {}, {})
  assert store.started.wait(20)
  assert store.steps() == []  # The call returned, and nothing is written.
  assert store.thread is not threading.main_thread()
  first = store.thread
  store.may_write.set()
  saver.save(2, {}, {})
  assert saver.wait() == store.newest().path
  assert store.thread is first
  saver.close()
  assert store.steps() == [1, 2]


def test_a_save_waits_for_the_previous_one(store):
  saver = background.BackgroundSaver(store)
  saver.save(1, {}, {})
  second = threading.Thread(target=saver.save, args=(2, {}, {}))
  second.start()
  second.join(0.1)
  assert second.is_alive()
  store.may_write.set()
  second.join(20)
  assert not second.is_alive()
  assert 1 in store.steps()
  saver.close()
  assert store.steps() == [1, 2]


def test_errors_are_logged_and_raised_by_wait(store, monkeypatch):
  warnings = []
  monkeypatch.setattr(logging, 'warning', lambda text, *args: warnings.append(text % args))
  saver = background.BackgroundSaver(store)
  assert saver.wait() is None
  store.may_write.set()
  store.error = OSError(28, 'No space left on device')
  saver.save(1, {}, {})
  saver.save(2, {}, {})
  with pytest.raises(OSError, match='No space left'):
    saver.wait()
  assert warnings == [
    f'The checkpoint of step {step} was not saved: [Errno 28] No space left on device' for step in (1, 2)
  ]
  store.error = None
  saver.save(3, {}, {})
  assert saver.wait() == store.newest().path
  saver.close()


@pytest.mark.parametrize('state, score', [({'a': np.zeros(2)}, None), ({}, {'episode_return': 1.0})])
def test_wrong_arguments_are_raised_at_once(store, state, score):
  saver = background.BackgroundSaver(store)
  with pytest.raises((TypeError, ValueError)):
    saver.save(1, {}, state, score)
  assert saver.wait() is None
  saver.close()


def test_close_writes_what_is_pending_and_can_be_repeated(store):
  saver = background.BackgroundSaver(store)
  saver.save(1, {'learner': fakes.make_state(1), 'policy': {'w': np.full(2, 1)}}, {'step': 1})
  store.may_write.set()
  saver.close()
  saver.close()
  fakes.assert_complete(store.newest(), 1)
  assert saver.wait() == store.newest().path
  with pytest.raises(RuntimeError, match='closed'):
    saver.save(2, {}, {})
