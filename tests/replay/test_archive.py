"""The replay on disk: appended, and rebuilt to the bit."""

from absl import logging
import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from lambda_kit.replay import archive as archive_lib
from lambda_kit.replay import buffer as buffer_lib
from lambda_kit.replay import episodes
from lambda_kit.replay import offline
from tests.fakes import replay as fakes


def _buffer(max_bytes=10**6):
  return buffer_lib.EpisodeBuffer(fakes.HEADER, seed=0, sequence_length=2, max_bytes=max_bytes)


def _files(folder):
  return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_only_new_episodes_are_written(tmp_path):
  buffer = _buffer()
  archive = archive_lib.ReplayArchive(tmp_path / 'replay', buffer)
  assert archive.save() == (0, 0)
  for number in range(3):
    buffer.add(fakes.make_episode(number, 4))
  assert archive.save() == (0, 3)
  before = _files(tmp_path / 'replay')
  buffer.add(fakes.make_episode(3, 4))
  assert archive.save() == (0, 4)
  after = _files(tmp_path / 'replay')
  assert len(after) == 4 and before.items() < after.items()
  # The folder is a dataset, too.
  assert len(list(offline.load_dataset(tmp_path / 'replay', fakes.HEADER))) == 4


def test_a_buffer_that_draws_by_surprise_comes_back_and_samples_the_same(tmp_path):
  make = lambda: buffer_lib.EpisodeBuffer(fakes.HEADER, seed=0, sequence_length=2, surprise_share=0.5)
  buffer, again = make(), make()
  for number, surprise in enumerate([None, [0, 0, 3, 0, 0], [1, 0, 0, 0, 2]]):  # The first is from a file without it.
    surprise = None if surprise is None else np.asarray(surprise, np.float32)
    buffer.add(fakes.make_episode(number, 4)._replace(surprise=surprise))
  span = archive_lib.ReplayArchive(tmp_path, buffer).save()
  archive_lib.ReplayArchive(tmp_path, again).restore(*span)
  assert next(again.items())[1].surprise is None
  np.testing.assert_array_equal(list(again.items())[2][1].surprise, [1, 0, 0, 0, 2])
  for _ in range(5):
    fakes.assert_equal(again.sample(8), buffer.sample(8))


@hypothesis.given(
  lengths=st.lists(st.integers(1, 9), min_size=1, max_size=12), saved=st.integers(0, 12), ceiling=st.integers(400, 2000)
)
@hypothesis.settings(max_examples=25, deadline=None)
def test_a_buffer_comes_back_as_it_was_and_samples_the_same(tmp_path_factory, lengths, saved, ceiling):
  folder, buffer = tmp_path_factory.mktemp('replay'), _buffer(ceiling)
  archive = archive_lib.ReplayArchive(folder, buffer)
  span = archive.save()
  expected, rng = [], buffer.rng_state()
  for number, length in enumerate(lengths):
    buffer.add(fakes.make_episode(number, length))
    last = archive.save()
    if number <= saved:
      span, expected, rng = last, list(buffer.items()), buffer.rng_state()
  again = _buffer(ceiling)
  other = archive_lib.ReplayArchive(folder, again)
  other.restore(*span)
  again.set_rng_state(rng)
  assert [number for number, _ in again.items()] == [number for number, _ in expected]
  for (_, ours), (_, theirs) in zip(again.items(), expected):
    fakes.assert_equal(ours, theirs)
  # What came later is gone, and the same episodes can be taken again.
  assert all(number < span[1] for number in offline.episode_files(folder))
  for number, length in list(enumerate(lengths))[span[1] :]:
    again.add(fakes.make_episode(number, length))
    other.save()
  assert [number for number, _ in again.items()] == [number for number, _ in buffer.items()]
  if any(length >= 1 for length in lengths):
    fakes.assert_equal(again.sample(4), buffer.sample(4))


def test_missing_and_damaged_episodes_are_named(tmp_path):
  buffer = _buffer()
  for number in range(3):
    buffer.add(fakes.make_episode(number, 4))
  archive = archive_lib.ReplayArchive(tmp_path, buffer)
  span = archive.save()
  (tmp_path / 'episode-000001.npz').write_bytes(b'rubbish')
  with pytest.raises(episodes.EpisodeFileError, match='episode-000001.npz is damaged'):
    archive_lib.ReplayArchive(tmp_path, _buffer()).restore(*span)
  (tmp_path / 'episode-000001.npz').unlink()
  with pytest.raises(episodes.EpisodeFileError, match='episode-000001.npz is missing, one of 1 episodes'):
    archive_lib.ReplayArchive(tmp_path, _buffer()).restore(*span)


@pytest.mark.parametrize('has_checkpoint', [True, False])
def test_what_a_killed_process_left_half_written_is_deleted(tmp_path, has_checkpoint):
  buffer = _buffer()
  buffer.add(fakes.make_episode(0, 4))
  archive = archive_lib.ReplayArchive(tmp_path, buffer)
  span = archive.save()
  (tmp_path / 'episode-000001.npz.4711.partial').write_bytes(b'half')
  (tmp_path / 'notes.txt').write_text('mine')
  if has_checkpoint:
    archive.restore(*span)
  else:
    archive.restore_none()
  assert sorted(_files(tmp_path)) == ['episode-000000.npz'] * has_checkpoint + ['notes.txt']


def test_pruning_deletes_what_no_checkpoint_needs(tmp_path):
  buffer = _buffer()
  for number in range(4):
    buffer.add(fakes.make_episode(number, 4))
  archive = archive_lib.ReplayArchive(tmp_path, buffer)
  archive.save()
  archive.prune(2)
  assert sorted(offline.episode_files(tmp_path)) == [2, 3]


def _saved(folder, run_id='mine', count=3):
  """The folder of a run with some episodes. Returns their range."""
  buffer = _buffer()
  for number in range(count):
    buffer.add(fakes.make_episode(number, 4))
  return archive_lib.ReplayArchive(folder, buffer, run_id).save()


def _name(number):
  return f'episode-{number:06d}.npz'


def _contents(folder):
  return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
  'number, source, message',
  [
    (1, 'mine/episode-000002.npz', 'is episode 2 of run mine, not episode 1 of this run'),
    (1, 'other/episode-000001.npz', 'is episode 1 of run other, not episode 1 of this run'),
    (1, 'dataset/episode-000001.npz', 'is of no run, not episode 1 of this run'),
    (5, 'other/episode-000001.npz', 'is episode 1 of run other, not episode 5 of this run'),
    (5, 'mine/episode-000002.npz', 'is episode 2 of run mine, not episode 5 of this run'),
  ],
)
def test_an_episode_of_elsewhere_is_refused_and_nothing_changes(tmp_path, number, source, message):
  for run_id in ('mine', 'other'):
    span = _saved(tmp_path / run_id, run_id)
  _saved(tmp_path / 'dataset', None)
  _saved(tmp_path / 'more', 'mine', count=5)
  (tmp_path / 'mine' / _name(4)).write_bytes((tmp_path / 'more' / _name(4)).read_bytes())  # To be deleted.
  (tmp_path / 'mine' / _name(number)).write_bytes((tmp_path / source).read_bytes())
  before = _contents(tmp_path / 'mine')
  with pytest.raises(archive_lib.StrangeEpisodeError, match=f'mine/{_name(number)} {message}'):
    archive_lib.ReplayArchive(tmp_path / 'mine', _buffer(), 'mine').restore(*span)
  assert _contents(tmp_path / 'mine') == before


def test_what_the_run_did_not_write_is_neither_replaced_nor_deleted(tmp_path):
  _saved(tmp_path, 'other', count=2)
  before = _contents(tmp_path)
  archive = archive_lib.ReplayArchive(tmp_path, _buffer(), 'mine')
  archive.prune(2)
  with pytest.raises(archive_lib.StrangeEpisodeError, match=_name(0)):
    _saved(tmp_path, 'mine')
  with pytest.raises(archive_lib.StrangeEpisodeError, match=_name(0)):
    archive.restore_none()
  assert _contents(tmp_path) == before


def test_a_damaged_episode_that_is_played_again_is_renamed(tmp_path, monkeypatch):
  told = []
  monkeypatch.setattr(logging, 'warning', lambda text, *values: told.append(text % values))
  _saved(tmp_path, count=4)
  damaged = {3: b'rubbish', 4: b''}
  for number, content in damaged.items():
    (tmp_path / _name(number)).write_bytes(content)
  archive_lib.ReplayArchive(tmp_path, _buffer(), 'mine').restore(0, 2)
  assert sorted(_contents(tmp_path)) == [_name(0), _name(1), f'{_name(3)}.damaged', f'{_name(4)}.damaged']
  assert len(told) == 2 and f'{_name(3)} is damaged, and is played again' in told[0]
  for number, content in damaged.items():
    assert (tmp_path / f'{_name(number)}.damaged').read_bytes() == content


def test_runs_that_are_older_than_ids_go_on(tmp_path):
  span = _saved(tmp_path, None)
  again = _buffer()
  archive_lib.ReplayArchive(tmp_path, again).restore(*span)
  assert again.num_episodes == 3
