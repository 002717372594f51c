"""Tests of the dataset: the same batches with and without a thread, and no thread left behind."""

import gc
import threading
import time

import jax
import numpy as np
import pytest

from lambda_kit.replay import buffer as buffer_lib
from lambda_kit.replay import dataset as dataset_lib
from lambda_kit.replay import sequences
from tests.fakes import replay as fakes


def _make(prefetch: int, **kwargs) -> tuple[dataset_lib.ReplayDataset, buffer_lib.EpisodeBuffer]:
  buffer = buffer_lib.EpisodeBuffer(fakes.HEADER, seed=3, sequence_length=4)
  for number, length in enumerate((9, 30, 4)):
    buffer.add(fakes.make_episode(number, length))
  return dataset_lib.ReplayDataset(buffer, batch_size=5, prefetch=prefetch, **kwargs), buffer


def _threads() -> list[str]:
  return [thread.name for thread in threading.enumerate() if thread.name.startswith('replay_prefetch')]


@pytest.fixture(autouse=True)
def no_threads_are_left():
  assert not _threads()
  yield
  assert not _threads()


@pytest.mark.parametrize('prefetch', [0, 1, 3, 20])
def test_batches_are_those_of_the_buffer(prefetch):
  """Over blocks with new episodes in between, bit for bit what sampling from the buffer gives."""
  dataset, buffer = _make(prefetch)
  _, reference = _make(0)
  for block, count in enumerate((1, 7, 3, 0, 2)):
    batches = list(dataset.batches(count))
    assert len(batches) == count
    for batch in batches:
      assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(batch))
      fakes.assert_equal(jax.device_get(batch), reference.sample(5))
    assert buffer.rng_state() == reference.rng_state()
    for each in (buffer, reference):
      each.add(fakes.make_episode(10 + block, 12))


@pytest.mark.parametrize('prefetch', [0, 2])
def test_a_block_is_drawn_when_it_is_asked_for(prefetch):
  """Episodes that come while a block is used, and leaving it early, have the same effect with and without a thread."""
  dataset, buffer = _make(prefetch)
  _, reference = _make(0)
  expected = [reference.sample(5) for _ in range(6)]
  batches = dataset.batches(6)
  buffer.add(fakes.make_episode(50, 40))
  for i in range(3):
    fakes.assert_equal(jax.device_get(next(batches)), expected[i])
    buffer.add(fakes.make_episode(51 + i, 40))
  batches.close()
  assert buffer.rng_state() == reference.rng_state()


def test_batches_are_prepared_ahead_but_not_too_far(monkeypatch):
  gathered = []
  gather = sequences.SequenceIndex.gather

  def recorded(self, numbers):
    gathered.append(threading.current_thread().name)
    return gather(self, numbers)

  monkeypatch.setattr(sequences.SequenceIndex, 'gather', recorded)
  dataset, _ = _make(prefetch=2)
  batches = dataset.batches(10)
  assert not gathered
  for taken in range(1, 4):
    next(batches)
    deadline = time.monotonic() + 10.0
    while len(gathered) < taken + 2 and time.monotonic() < deadline:
      time.sleep(0.001)
    time.sleep(0.02)
    assert len(gathered) == taken + 2
  assert all(name.startswith('replay_prefetch') for name in gathered)
  assert len(_threads()) == 1
  batches.close()


@pytest.mark.parametrize('leave', ['close', 'drop', 'error', 'exhaust', 'never start'])
def test_leaving_early_ends_the_thread(leave):
  dataset, _ = _make(prefetch=3)
  batches = dataset.batches(100)
  if leave == 'close':
    next(batches)
    batches.close()
  elif leave == 'drop':
    next(batches)
    assert _threads()
  elif leave == 'error':
    with pytest.raises(ZeroDivisionError):
      for _ in dataset.batches(100):
        raise ZeroDivisionError
  elif leave == 'exhaust':
    for _ in batches:
      pass
    assert not _threads()
  del batches
  gc.collect()
  assert not _threads()


@pytest.mark.parametrize('prefetch', [0, 1, 4])
def test_errors_in_the_thread_come_out_at_their_batch(prefetch, monkeypatch):
  gather = sequences.SequenceIndex.gather
  calls = []

  def fails_at_the_third(self, numbers):
    calls.append(numbers)
    if len(calls) == 3:
      raise MemoryError('no room for a batch')
    return gather(self, numbers)

  monkeypatch.setattr(sequences.SequenceIndex, 'gather', fails_at_the_third)
  dataset, _ = _make(prefetch)
  batches = dataset.batches(10)
  for _ in range(2):
    next(batches)
  with pytest.raises(MemoryError, match='no room for a batch'):
    next(batches)
  assert not _threads()
  assert not list(batches)


def test_too_little_data_is_said_at_once():
  empty = buffer_lib.EpisodeBuffer(fakes.HEADER, seed=0)
  with pytest.raises(buffer_lib.NotEnoughDataError):
    dataset_lib.ReplayDataset(empty).batches(3)


def test_batches_stay_as_they_are():
  """On the CPU, JAX uses the memory of the arrays that it is given: none may be used twice."""
  dataset, _ = _make(prefetch=2)
  batches = list(dataset.batches(8))
  copies = [np.array(batch.reward) for batch in batches]
  list(dataset.batches(8))
  for batch, copy in zip(batches, copies):
    np.testing.assert_array_equal(batch.reward, copy)


def test_the_thread_knows_the_callers_device(monkeypatch):
  seen = []
  put = jax.device_put
  monkeypatch.setattr(jax, 'device_put', lambda x, device: seen.append(jax.config.jax_default_device) or put(x, device))
  dataset, _ = _make(prefetch=1)
  device = jax.devices()[-1]
  with jax.default_device(device):
    list(dataset.batches(3))
  assert seen == [device] * 3


def test_batches_are_put_on_the_chosen_device():
  device = jax.devices()[-1]
  for prefetch in (0, 1):
    dataset, _ = _make(prefetch, device=device)
    assert all(batch.reward.committed and batch.reward.devices() == {device} for batch in dataset.batches(2))


@pytest.mark.parametrize('kwargs', [dict(batch_size=0), dict(prefetch=-1)])
def test_senseless_settings_are_refused(kwargs):
  _, buffer = _make(0)
  with pytest.raises(ValueError, match=next(iter(kwargs))):
    dataset_lib.ReplayDataset(buffer, **kwargs)
