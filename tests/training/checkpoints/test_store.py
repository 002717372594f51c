"""Tests of the store of checkpoints: whatever happens to it, the newest good checkpoint is found, and is complete."""

import errno
import os
import pathlib
import random
import shutil
import subprocess
import sys

from absl import logging
import numpy as np
import pytest

from lambda_kit import files
from lambda_kit.training.checkpoints import errors
from lambda_kit.training.checkpoints import manifest as manifest_lib
from lambda_kit.training.checkpoints import store as store_lib
from tests.fakes import checkpoints as fakes

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_FILES = ['learner.safetensors', 'manifest.json', 'policy.safetensors', 'state.json']


@pytest.fixture(name='warnings')
def _warnings(monkeypatch) -> list[str]:
  found = []
  monkeypatch.setattr(logging, 'warning', lambda text, *args: found.append(text % args))
  return found


def _name(step: int) -> str:
  return f'step_{step:012d}'


def test_a_checkpoint_is_read_back(tmp_path):
  store = store_lib.CheckpointStore(tmp_path / 'run' / 'checkpoints')
  assert store.newest() is None and store.best() is None
  path = fakes.save(store, 12345, score=fakes.score(3.0, 1.0))
  assert path == tmp_path / 'run' / 'checkpoints' / 'step_000000012345'
  assert sorted(os.listdir(path)) == _FILES
  assert os.listdir(path.parent) == [path.name]
  for checkpoint in (store.newest(), store_lib.CheckpointStore(path.parent).best()):
    fakes.assert_complete(checkpoint, 12345)
    assert (checkpoint.path, checkpoint.score) == (path, fakes.score(3.0, 1.0))
    assert checkpoint.names == ('learner', 'policy')


def test_any_json_is_state(tmp_path):
  store = store_lib.CheckpointStore(tmp_path)
  state = {'rng': {'state': 2**127, 'text': 'ä\n'}, 'best': None, 'losses': [0.1, float('inf')], 'done': False}
  store.save(np.int64(3), {}, state)
  assert store.newest().state == state
  assert store.newest().step == 3


def test_the_newest_is_of_the_highest_step_and_can_be_replaced(tmp_path):
  store = store_lib.CheckpointStore(tmp_path)
  for step in (5, 20, 10):
    fakes.save(store, step)
  assert store.steps() == [5, 10, 20]
  fakes.assert_complete(store.newest(), 20)
  store.save(20, {}, {'again': True}, fakes.score(1.0, 1.0))
  assert store.newest().state == {'again': True}
  assert store.best().step == 20
  assert sorted(os.listdir(tmp_path)) == [_name(5), _name(10), _name(20)]


def test_other_arrays_are_an_error_and_no_damage(tmp_path, warnings):
  store = store_lib.CheckpointStore(tmp_path)
  fakes.save(store, 1)
  with pytest.raises(errors.MismatchError, match=r"learner.safetensors holds.*'\.key' is uint32 \[2\] instead of"):
    store.newest().load('learner', fakes.make_state(0)._replace(key=np.zeros(3)))
  with pytest.raises(errors.MismatchError, match="has no arrays named 'buffer', only.*Resume with the configuration"):
    store.newest().load('buffer', {})
  assert store.newest().step == 1 and not warnings


def _damages(content: bytes) -> list[bytes]:
  """Contents of a file that was cut, lengthened, or had a bit flipped."""
  rng = random.Random(0)
  damaged = [content[:size] for size in (0, 1, 8, len(content) // 2, len(content) - 1)] + [content + b'\n']
  for position in rng.sample(range(len(content)), min(30, len(content))):
    flipped = bytearray(content)
    flipped[position] ^= 1 << rng.randrange(8)
    damaged.append(bytes(flipped))
  return damaged


@pytest.mark.parametrize('name', _FILES)
def test_a_damaged_checkpoint_is_skipped_named_and_set_aside(tmp_path, warnings, name):
  store = store_lib.CheckpointStore(tmp_path)
  fakes.save(store, 1)
  path = fakes.save(store, 2)
  shutil.copytree(path, tmp_path / 'good')
  for number, content in enumerate([*_damages((path / name).read_bytes()), None]):
    (path / name).unlink()
    if content is not None:
      (path / name).write_bytes(content)
    fakes.assert_complete(store.newest(), 1)
    assert len(warnings) == number + 1
    assert str(path / name) in warnings[-1] and 'is damaged and skipped' in warnings[-1]
    aside = tmp_path / (f'{path.name}.damaged' + (f'.{number}' if number else ''))
    assert f'Its folder is now {aside.name}.' in warnings[-1]
    if content is not None:
      assert (aside / name).read_bytes() == content
    assert store.steps() == [1]
    shutil.copytree(tmp_path / 'good', path)
  fakes.assert_complete(store.newest(), 2)


def test_reasons_are_given(tmp_path, warnings):
  store = store_lib.CheckpointStore(tmp_path, keep=9)
  paths = [fakes.save(store, step) for step in range(7)]
  (paths[6] / 'state.json').unlink()
  (paths[5] / 'policy.safetensors').write_bytes(b'')
  (paths[4] / 'manifest.json').write_text('{"format"')
  (paths[3] / 'manifest.json').write_text('[]')
  shutil.rmtree(paths[2])
  paths[2].write_text('a file')
  shutil.rmtree(paths[1])
  shutil.copytree(paths[0], paths[1])
  fakes.assert_complete(store.newest(), 0)
  for warning, reason in zip(
    warnings,
    [
      'state.json is missing',
      'has 0 bytes instead of',
      'is not JSON',
      'is not marked',
      'manifest.json is missing',
      'is of step 0',
    ],
    strict=True,
  ):
    assert reason in warning


def test_without_a_good_checkpoint_there_is_an_error_until_somebody_acts(tmp_path, warnings):
  store = store_lib.CheckpointStore(tmp_path)
  for step in (1, 2):
    (fakes.save(store, step) / 'state.json').unlink()
  for attempt in range(2):  # A restart must not begin anew in silence.
    message = f'No checkpoint in {tmp_path} .*{_name(1)}.damaged, {_name(2)}.damaged. Copy'
    with pytest.raises(errors.CheckpointError, match=message):
      store_lib.CheckpointStore(tmp_path).newest()
    assert len(warnings) == 2, attempt
  fakes.save(store, 3)
  assert store.newest().step == 3


def test_checkpoints_before_a_step(tmp_path, warnings):
  store = store_lib.CheckpointStore(tmp_path)
  for step in (1, 2, 3):
    fakes.save(store, step)
  (tmp_path / _name(2) / 'state.json').unlink()
  fakes.assert_complete(store.newest(before=3), 1)
  assert len(warnings) == 1
  assert store.newest(before=1) is None
  assert store.newest().step == 3


def test_a_good_checkpoint_can_be_set_aside(tmp_path, warnings):
  store = store_lib.CheckpointStore(tmp_path)
  for step in (1, 2):
    fakes.save(store, step)
  store.set_aside(store.newest(), ValueError('episode-000007.npz is missing.'))
  assert store.newest().step == 1
  assert (tmp_path / f'{_name(2)}.damaged' / 'learner.safetensors').exists()
  assert 'episode-000007.npz is missing. Its folder is now' in warnings[0]


def test_another_version_is_an_error_and_stays(tmp_path, monkeypatch, warnings):
  store = store_lib.CheckpointStore(tmp_path, keep=1)
  fakes.save(store, 1)
  monkeypatch.setattr(manifest_lib, '_VERSION', 2)
  with pytest.raises(errors.CheckpointError, match='has version 1 of .*and this code reads version 2. Resume'):
    store.newest()
  fakes.save(store, 2)
  assert store.steps() == [1, 2] and not warnings


def test_files_that_may_not_be_read_are_no_damage(tmp_path, monkeypatch, warnings):
  store = store_lib.CheckpointStore(tmp_path)
  fakes.save(store, 1)

  def fail(path, *flags):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

  monkeypatch.setattr(os, 'open', fail)
  with pytest.raises(PermissionError):
    store.newest()
  assert store.steps() == [1] and not warnings


@pytest.mark.parametrize('code', [errno.EIO, errno.ENOSPC])
def test_an_error_in_any_place_of_a_save_leaves_the_checkpoints_before(tmp_path, monkeypatch, code):
  """Fails at each call of fsync and replace in turn, until there are no more."""
  calls = 0

  def failing(function):
    def replacement(*args):
      nonlocal calls
      calls -= 1
      if calls == -1:
        raise OSError(code, os.strerror(code))
      return function(*args)

    return replacement

  originals = {name: getattr(os, name) for name in ('fsync', 'replace')}
  for number in range(100):
    folder = tmp_path / str(number)
    store = store_lib.CheckpointStore(folder)
    for step in (1, 2):
      fakes.save(store, step)
    calls = number
    for name, function in originals.items():
      monkeypatch.setattr(os, name, failing(function))
    try:
      fakes.save(store, 2)
    except OSError as error:
      assert (error.errno, error.filename) == (code, str(folder / _name(2)))
      assert 'The checkpoint can not be written' in str(error) and 'untouched' in str(error)
    finally:
      for name, function in originals.items():
        monkeypatch.setattr(os, name, function)
    assert sorted(os.listdir(folder)) == [_name(1), _name(2)]
    fakes.assert_complete(store.newest(), 2)
    if calls >= 0:
      break
  # The four files, three folders, and two renames.
  assert number == 4 + 3 + 2


@pytest.mark.parametrize('room', [0.0, 0.3, 0.55, 0.7, 0.99])  # As a part of what it takes.
@pytest.mark.parametrize('code', [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_costs_only_the_new_checkpoint(tmp_path, monkeypatch, room, code):
  store = store_lib.CheckpointStore(tmp_path, keep=1)
  path = fakes.save(store, 1)
  left = int(room * sum(file.stat().st_size for file in path.iterdir()))

  class FullFile:
    """Writes what there is room for."""

    def __init__(self, file):
      self._file = file

    def __enter__(self):
      return self

    def __exit__(self, *error):
      self._file.close()

    def __getattr__(self, name):
      return getattr(self._file, name)

    def write(self, content):
      nonlocal left
      self._file.write(content[:left])
      if len(content) > left:
        raise OSError(code, os.strerror(code))
      left -= len(content)

  monkeypatch.setattr(files, 'open', lambda *args: FullFile(open(*args)), raising=False)
  with pytest.raises(OSError, match='The checkpoint can not be written: .*Free some space on this disk') as caught:
    fakes.save(store, 2)
  assert (caught.value.errno, caught.value.filename) == (code, str(tmp_path / _name(2)))
  assert os.listdir(tmp_path) == [_name(1)]
  monkeypatch.undo()
  fakes.assert_complete(store.newest(), 1)
  fakes.save(store, 2)
  fakes.assert_complete(store.newest(), 2)


@pytest.mark.parametrize(
  'arrays, state, score',
  [
    ({'a/b': np.zeros(2)}, {}, None),
    ({'a': np.array('text')}, {}, None),
    ({}, {'a': np.zeros(2)}, None),
    ({}, {}, {'episode_return': 1.0}),
    ({}, {}, dict(fakes.score(1.0, 1.0), cost_limit=[1.0])),
  ],
)
def test_what_can_not_be_saved_leaves_no_trace(tmp_path, arrays, state, score):
  store = store_lib.CheckpointStore(tmp_path)
  with pytest.raises((TypeError, ValueError)):
    store.save(1, arrays, state, score)
  assert not os.listdir(tmp_path)


def test_the_last_ones_and_the_best_safe_one_are_kept(tmp_path):
  # In order: step, return, cost (the limit is 25), what is kept afterwards, the best.
  script = [
    (1, 9.0, 26.0, [1], None),  # Not safe.
    (2, 4.0, 25.0, [1, 2], 2),  # At the limit is safe.
    (3, 5.0, 3.0, [2, 3], 3),
    (4, 7.0, 99.0, [3, 4], 3),
    (5, 1.0, 0.0, [3, 4, 5], 3),
    (6, None, None, [3, 5, 6], 3),  # Not evaluated.
    (7, float('nan'), 0.0, [3, 6, 7], 3),
    (8, 8.0, float('nan'), [3, 7, 8], 3),
    (9, 5.0, 0.0, [8, 9], 9),  # Of two that are equal the later one.
    (10, 2.0, 0.0, [9, 10], 9),
    (11, 2.0, 0.0, [9, 10, 11], 9),
    (12, 6.0, 0.0, [11, 12], 12),
  ]
  for step, episode_return, cost, kept, best in script:
    store = store_lib.CheckpointStore(tmp_path, keep=2)  # A new one: all that it knows is on the disk.
    fakes.save(store, step, score=None if cost is None else fakes.score(episode_return, cost))
    assert store.steps() == kept
    assert (store.best().step if best else store.best()) == best
    assert len(os.listdir(tmp_path)) == len(kept)


def test_a_damaged_best_one_gives_way_to_the_next_best(tmp_path, warnings):
  store = store_lib.CheckpointStore(tmp_path)
  for step, episode_return in enumerate([1.0, 3.0, 2.0]):
    fakes.save(store, step, score=fakes.score(episode_return, 0.0))
  (tmp_path / _name(1) / 'policy.safetensors').write_bytes(b'')
  fakes.assert_complete(store.best(), 2)
  assert len(warnings) == 1


def test_what_was_saved_last_is_kept_even_below_later_steps(tmp_path):
  store = store_lib.CheckpointStore(tmp_path, keep=1)
  fakes.save(store, 300)
  fakes.save(store, 100)
  assert store.steps() == [100, 300]


def test_pruning_deletes_nothing_that_it_can_not_judge(tmp_path):
  store = store_lib.CheckpointStore(tmp_path, keep=1)
  path = fakes.save(store, 1)
  (path / 'manifest.json').write_bytes(b'')
  fakes.save(store, 2)
  fakes.save(store, 3)
  assert store.steps() == [1, 3]


def test_leftovers_of_dead_processes_are_removed(tmp_path):
  dead = subprocess.Popen([sys.executable, '-c', ''])
  dead.wait()
  alive = os.getppid()
  fakes.save(store_lib.CheckpointStore(tmp_path), 1)
  for kind in ('partial', 'replaced'):
    for pid in (dead.pid, alive, os.getpid()):
      (tmp_path / f'{_name(1)}.{kind}.{pid}').mkdir()
  (tmp_path / 'notes.partial.txt').touch()
  store = store_lib.CheckpointStore(tmp_path)
  assert len(os.listdir(tmp_path)) == 8 and store.newest().step == 1  # Who only reads removes nothing.
  store.remove_leftovers()
  assert sorted(os.listdir(tmp_path)) == sorted(
    ['notes.partial.txt', _name(1), f'{_name(1)}.partial.{alive}', f'{_name(1)}.replaced.{alive}']
  )
  fakes.assert_complete(store.newest(), 1)


def test_a_checkpoint_that_was_being_replaced_comes_back(tmp_path):
  dead = subprocess.Popen([sys.executable, '-c', ''])
  dead.wait()
  store = store_lib.CheckpointStore(tmp_path)
  path = fakes.save(store, 1)
  shutil.copytree(path, tmp_path / f'{_name(1)}.partial.{dead.pid}')
  path.rename(tmp_path / f'{_name(1)}.replaced.{dead.pid}')
  store.restore_replaced()
  fakes.assert_complete(store.newest(), 1)
  assert len(os.listdir(tmp_path)) == 2  # The new one stays until the run has resumed.


def test_at_least_one_is_kept():
  with pytest.raises(ValueError, match='keep=0'):
    store_lib.CheckpointStore('unused', keep=0)


def test_killed_processes_leave_good_checkpoints(tmp_path):
  done = subprocess.run(
    [sys.executable, '-m', 'tests.training.checkpoints.crashing', str(tmp_path)],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    timeout=120,
  )
  assert done.returncode == 0, done.stderr
  new, pruning, replacing, saves = (int(line.split()[0]) for line in done.stdout.splitlines())
  # Two folders made, seven fsyncs and a rename; then for the old one a rename, four files and a folder to delete.
  assert new >= 10 and pruning >= 10 + 6 and replacing >= 10 + 6
  assert saves > 20


class TestOfAnotherRun:
  @pytest.fixture(name='folder')
  def _folder(self, tmp_path):
    """A store with checkpoints of a run, the newest of another one."""
    for run_id, step, where in (('mine', 1, 'run'), ('other', 2, 'other'), (None, 3, 'old')):
      fakes.save(store_lib.CheckpointStore(tmp_path / where, run_id=run_id), step, score=fakes.score(step, 0.0))
    shutil.copytree(tmp_path / 'other' / _name(2), tmp_path / 'run' / _name(2))
    return tmp_path / 'run'

  def test_it_is_refused_by_name_and_stays(self, folder, warnings):
    store = store_lib.CheckpointStore(folder, run_id='mine')
    for read in (store.newest, lambda: store.at(2)):
      with pytest.raises(
        errors.MismatchError, match=f'{folder / _name(2)} was written by run other, and this is run mine'
      ):
        read()
    assert store.steps() == [1, 2] and not warnings
    assert store_lib.CheckpointStore(folder).newest().step == 2  # For whoever reads those of any run.

  def test_one_without_an_id_is_refused(self, folder):
    shutil.copytree(folder.parent / 'old' / _name(3), folder / _name(3))
    with pytest.raises(errors.MismatchError, match='was written by an older run, and this is run mine'):
      store_lib.CheckpointStore(folder, run_id='mine').newest()

  def test_it_is_neither_the_best_nor_pruned_nor_replaced(self, folder):
    content = (folder / _name(2) / 'manifest.json').read_bytes()
    store = store_lib.CheckpointStore(folder, keep=1, run_id='mine')
    assert store.best().step == 1 and [state['step'] for state in store.states()] == [1]
    for step in (4, 5):
      fakes.save(store, step)
    assert store.steps() == [1, 2, 5]  # The best one, too.
    fakes.save(store, 2)
    assert (folder / f'{_name(2)}.damaged' / 'manifest.json').read_bytes() == content
    fakes.assert_complete(store.at(2), 2)


def test_a_save_that_may_not_write_any_more_changes_nothing(tmp_path):
  for step in (1, 2):
    fakes.save(store_lib.CheckpointStore(tmp_path), step)

  def refuse():
    raise PermissionError('taken over')

  store = store_lib.CheckpointStore(tmp_path, keep=1, writing=refuse)
  for step in (2, 3):
    with pytest.raises(OSError, match='taken over'):
      fakes.save(store, step)
  assert sorted(os.listdir(tmp_path)) == [_name(1), _name(2)]
  fakes.assert_complete(store.newest(), 2)


def test_a_flipped_key_in_a_state_is_damage_and_no_error(tmp_path):
  store = store_lib.CheckpointStore(tmp_path)
  fakes.save(store, 1)
  path = fakes.save(store, 2) / 'state.json'
  path.write_bytes(path.read_bytes().replace(b'step', b'stdp'))
  assert store.states() == [{'step': 1}]
