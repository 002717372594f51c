"""Tests of datasets on disk."""

import dataclasses
import os

import pytest

from lambda_kit.replay import buffer as buffer_lib
from lambda_kit.replay import episodes
from lambda_kit.replay import offline
from tests.fakes import replay as fakes

_OTHER = dataclasses.replace(fakes.HEADER, task='other')


def _episodes(*numbers: int) -> list[episodes.Episode]:
  return [fakes.make_episode(number, 3 + number % 4) for number in numbers]


def _numbers(folder, header=fakes.HEADER) -> list[int]:
  return [int(episode.observation['vector'][0, 0]) for episode in offline.load_dataset(folder, header)]


def test_a_dataset_comes_back_in_order(tmp_path):
  folder = tmp_path / 'new' / 'dataset'
  given = _episodes(*range(12))
  assert offline.save_dataset(folder, iter(given), fakes.HEADER) == 12
  assert sorted(os.listdir(folder))[:2] == ['episode-000000.npz', 'episode-000001.npz']
  for header in (fakes.HEADER, None):
    for found, expected in zip(offline.load_dataset(folder, header), given, strict=True):
      fakes.assert_equal(found, expected)


def test_a_buffer_starts_from_a_dataset(tmp_path):
  offline.save_dataset(tmp_path, _episodes(0, 1, 2), fakes.HEADER)
  loaded = buffer_lib.EpisodeBuffer(fakes.HEADER, seed=0, sequence_length=3)
  direct = buffer_lib.EpisodeBuffer(fakes.HEADER, seed=0, sequence_length=3)
  for episode in offline.load_dataset(tmp_path, loaded.header):
    loaded.add(episode)
  for episode in _episodes(0, 1, 2):
    direct.add(episode)
  fakes.assert_equal(loaded.sample(8), direct.sample(8))


def test_saving_again_adds_and_never_overwrites(tmp_path):
  offline.save_dataset(tmp_path, _episodes(0, 1), fakes.HEADER)
  offline.save_dataset(tmp_path, _episodes(2, 3), fakes.HEADER)
  assert _numbers(tmp_path) == [0, 1, 2, 3]


def test_two_writers_can_share_a_folder(tmp_path):

  def episodes_of_one():
    for number in range(3):
      offline.save_dataset(tmp_path, [fakes.make_episode(number, 3)], fakes.HEADER)  # The other one.
      yield fakes.make_episode(3 + number, 3)

  offline.save_dataset(tmp_path, episodes_of_one(), fakes.HEADER)
  assert sorted(_numbers(tmp_path)) == list(range(6))


def test_numbers_beyond_six_digits_stay_in_order(tmp_path):
  for name in (999_999, 1_000_000, 2):
    episodes.write_episode(tmp_path / f'episode-{name:06d}.npz', fakes.make_episode(name % 1000, 3), fakes.HEADER)
  assert _numbers(tmp_path) == [2, 999, 0]
  offline.save_dataset(tmp_path, _episodes(0), fakes.HEADER)
  assert (tmp_path / 'episode-1000001.npz').is_file()


def test_other_files_are_no_matter(tmp_path):
  offline.save_dataset(tmp_path, _episodes(0), fakes.HEADER)
  for name in ('README.md', 'episode-000001.npz.123.partial', 'scores.npz'):
    (tmp_path / name).write_bytes(b'rubbish')
  assert _numbers(tmp_path) == [0]


def test_missing_and_empty_folders_are_named_at_once(tmp_path):
  with pytest.raises(FileNotFoundError, match=f'no dataset folder {tmp_path}/none. Give the replay folder'):
    offline.load_dataset(tmp_path / 'none', fakes.HEADER)
  (tmp_path / 'notes.txt').touch()
  with pytest.raises(FileNotFoundError, match=f'{tmp_path} has no episodes.*episode-000000.npz'):
    offline.load_dataset(tmp_path, fakes.HEADER)


def test_a_dataset_of_another_task_is_refused(tmp_path):
  offline.save_dataset(tmp_path, _episodes(0), fakes.HEADER)
  with pytest.raises(episodes.WrongTaskError, match="episode-000000.npz .*task is 'fake' instead of 'other'"):
    list(offline.load_dataset(tmp_path, _OTHER))
  with pytest.raises(episodes.WrongTaskError, match="episode-000000.npz .*task is 'fake' instead of 'other'"):
    offline.save_dataset(tmp_path, _episodes(0), _OTHER)


def test_mixed_tasks_are_refused(tmp_path):
  offline.save_dataset(tmp_path, _episodes(0), fakes.HEADER)
  episodes.write_episode(tmp_path / 'episode-000001.npz', fakes.make_episode(1, 3), _OTHER)
  loaded = offline.load_dataset(tmp_path)
  next(loaded)
  with pytest.raises(
    episodes.WrongTaskError,
    match="episode-000001.npz .*than .*episode-000000.npz: task is 'other' instead of 'fake'.*folder",
  ):
    next(loaded)


def test_a_damaged_file_is_named(tmp_path):
  offline.save_dataset(tmp_path, _episodes(0, 1), fakes.HEADER)
  path = tmp_path / 'episode-000001.npz'
  path.write_bytes(path.read_bytes()[:-30])
  loaded = offline.load_dataset(tmp_path, fakes.HEADER)
  next(loaded)
  with pytest.raises(
    episodes.EpisodeFileError, match='episode-000001.npz is damaged.*from a dataset, it may also be removed'
  ):
    next(loaded)
