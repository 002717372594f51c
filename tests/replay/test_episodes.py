"""Tests of episodes and their files: what was written is read back, and nothing else is."""

import dataclasses
import errno
import json
import os
import pathlib
import tempfile
import tracemalloc
import zipfile

import hypothesis
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
import numpy as np
import pytest

from lambda_kit.environments import grid_cmdp
from lambda_kit.environments import wrappers
from lambda_kit.replay import episodes
from tests.fakes import replay as fakes
from tests.fakes import specs

_DTYPES = ('uint8', 'int8', 'uint16', 'int32', 'int64', 'bool', 'float16', 'float32', 'float64')
_NAMES = st.text(st.characters(codec='utf-8', exclude_characters='\x00'), min_size=1, max_size=10)


def _arrays(field: episodes.Field, length: int) -> st.SearchStrategy[np.ndarray]:
  elements = dict(allow_nan=False, allow_infinity=False) if field.dtype.startswith('float') else {}
  return hnp.arrays(field.dtype, (length, *field.shape), elements=elements)


@st.composite
def _headed_episodes(draw) -> tuple[episodes.Header, episodes.Episode]:
  fields = st.builds(
    episodes.Field, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3), st.sampled_from(_DTYPES)
  )
  header = episodes.Header(
    task=draw(st.text(max_size=10)),
    observations=draw(st.dictionaries(_NAMES, fields, min_size=1, max_size=3)),
    action_shape=draw(hnp.array_shapes(min_dims=1, max_dims=1, max_side=3)),
    constraint_names=tuple(draw(st.lists(st.text(max_size=5), max_size=3))),
    action_repeat=draw(st.integers(1, 8)),
  )
  length = draw(st.integers(2, 5))
  arrays = {name: draw(_arrays(field, length)) for name, field in header.fields.items()}
  return header, episodes.Episode(**episodes.unflatten(arrays))


@hypothesis.given(_headed_episodes(), st.booleans())
@hypothesis.settings(max_examples=40, deadline=None)
def test_files_give_back_what_was_written(headed, compress):
  header, episode = headed
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / 'episode.npz'
    episodes.write_episode(path, episode, header, compress)
    found, found_header = episodes.read_episode(path, header)
    assert os.listdir(folder) == ['episode.npz']
  assert found_header == header
  fakes.assert_equal(found, episode)


def test_numpy_reads_the_file_without_pickle(tmp_path):
  episode = fakes.make_episode(3, 4)
  episodes.write_episode(tmp_path / 'e.npz', episode, fakes.HEADER)
  with np.load(tmp_path / 'e.npz', allow_pickle=False) as archive:
    np.testing.assert_array_equal(archive['observation/image'], episode.observation['image'])
    assert json.loads(str(archive['header']))['task'] == 'fake'


def test_header_of_an_environment_stores_floats_as_float32():
  header = episodes.Header.of(specs.of(fakes.EchoEnvironment(3)))
  assert header == fakes.HEADER
  grid = grid_cmdp.GridCmdp(seed=0, layout=('S.', '#G'), observations=('image', 'vector'), num_constraints=2)
  assert episodes.Header.of(specs.of(wrappers.ActionRepeat(grid, 2))) == episodes.Header(
    'GridCmdp S./#G',
    {'image': episodes.Field((16, 16, 3), 'uint8'), 'vector': episodes.Field((2,), 'float32')},
    (2,),
    ('hazards_1', 'hazards_2'),
    2,
  )


def test_bytes_of_a_time_step_are_those_of_the_arrays():
  # The vector has 2 * 4 bytes, the image 12, action and reward 4 each, the costs 2 * 4, terminal 4.
  assert fakes.HEADER.bytes_per_time_step == 8 + 12 + 4 + 4 + 8 + 4
  assert fakes.make_episode(0, 6).num_bytes == 7 * fakes.HEADER.bytes_per_time_step


@pytest.mark.parametrize(
  'change, difference',
  [
    (dict(task='other'), "task is 'fake' instead of 'other'"),
    (dict(action_shape=(3,)), r'action_shape is \(1,\) instead of \(3,\)'),
    (dict(constraint_names=('first',)), r"constraint_names is \('first', 'second'\) instead of \('first',\)"),
    (dict(action_repeat=2), 'action_repeat is 1 instead of 2'),
    (dict(observations={'vector': episodes.Field((2,), 'float32')}), r"'image' is uint8 \[2, 2, 3\] instead of absent"),
    (
      dict(observations=fakes.HEADER.observations | {'map': episodes.Field((), 'int8')}),
      r"'map' is absent instead of int8 \[\]",
    ),
    (
      dict(observations=fakes.HEADER.observations | {'image': episodes.Field((4, 4, 3), 'uint8')}),
      r"'image' is uint8 \[2, 2, 3\] instead of uint8 \[4, 4, 3\]",
    ),
    (
      dict(observations=fakes.HEADER.observations | {'vector': episodes.Field((2,), 'float16')}),
      r"'vector' is float32 \[2\] instead of float16 \[2\]",
    ),
  ],
)
def test_a_file_of_another_task_is_refused(tmp_path, change, difference):
  path = tmp_path / 'e.npz'
  episodes.write_episode(path, fakes.make_episode(0, 3), fakes.HEADER)
  with pytest.raises(episodes.WrongTaskError, match=f'{path} belongs to another task.*{difference}.*Choose'):
    episodes.read_episode(path, dataclasses.replace(fakes.HEADER, **change))


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=200, deadline=None)
def test_damaged_files_are_named_or_harmless(data):
  """Whatever byte changes and wherever the file is cut, one gets an error that names it, or the very same episode."""
  episode = fakes.make_episode(7, 3)
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / 'e.npz'
    episodes.write_episode(path, episode, fakes.HEADER, compress=data.draw(st.booleans()))
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
      content = content[:position]
    else:
      content[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
      found, _ = episodes.read_episode(path, fakes.HEADER)
    except episodes.EpisodeFileError as error:
      assert str(path) in str(error) and 'Copy it again' in str(error)
    else:
      fakes.assert_equal(found, episode)


@pytest.mark.parametrize('content', [b'', b'rubbish', b'\x80\x04N.'])
def test_rubbish_is_named(tmp_path, content):
  (tmp_path / 'e.npz').write_bytes(content)
  with pytest.raises(episodes.EpisodeFileError, match='e.npz is damaged, or was not written by lambda_kit: .+Copy'):
    episodes.read_episode(tmp_path / 'e.npz')


@pytest.mark.parametrize('make', [os.mkfifo, lambda path: path.symlink_to('/dev/zero')])
def test_what_is_no_file_is_not_waited_for(tmp_path, make):
  make(tmp_path / 'e.npz')
  with pytest.raises(episodes.EpisodeFileError, match='e.npz is not read: it is a'):
    episodes.read_episode(tmp_path / 'e.npz')


def test_archives_do_not_expand_beyond_a_limit(tmp_path, monkeypatch):
  monkeypatch.setattr(episodes, '_MAX_BYTES', 1 << 20)
  np.savez_compressed(tmp_path / 'e.npz', header=np.zeros(1 << 20, np.uint8))
  assert (tmp_path / 'e.npz').stat().st_size < 10_000
  with pytest.raises(episodes.EpisodeFileError, match='it would expand to 1,048,704 bytes'):
    episodes.read_episode(tmp_path / 'e.npz')


def test_archives_do_not_expand_beyond_what_they_say(tmp_path):
  size = 1 << 26
  with zipfile.ZipFile(tmp_path / 'e.npz', 'w', zipfile.ZIP_DEFLATED) as archive:
    archive.writestr('header.npy', bytes(size))
    archive.filelist[0].file_size = 1000  # In the directory at the end.
  tracemalloc.start()
  with pytest.raises(episodes.EpisodeFileError, match='Bad CRC'):
    episodes.read_episode(tmp_path / 'e.npz')
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert peak < size / 8


def test_archives_of_others_and_of_later_versions_are_refused(tmp_path):
  np.savez(tmp_path / 'e.npz', image=np.zeros(3))
  with pytest.raises(episodes.EpisodeFileError, match='header'):
    episodes.read_episode(tmp_path / 'e.npz')
  np.savez(tmp_path / 'e.npz', header=np.array('{"a": 1}'))
  with pytest.raises(episodes.EpisodeFileError, match='does not say that it is a lambda_kit episode'):
    episodes.read_episode(tmp_path / 'e.npz')
  np.savez(tmp_path / 'e.npz', header=np.array(fakes.HEADER.to_json().replace('"version": 1', '"version": 2')))
  with pytest.raises(episodes.EpisodeFileError, match='version 2 .* reads version 1'):
    episodes.read_episode(tmp_path / 'e.npz')


def test_arrays_that_deny_their_header_are_refused(tmp_path):
  arrays = episodes.flatten(fakes.make_episode(0, 3)) | {'reward': np.zeros(3, np.float32)}
  np.savez(tmp_path / 'e.npz', header=np.array(fakes.HEADER.to_json()), **arrays)
  with pytest.raises(episodes.EpisodeFileError, match='e.npz is damaged.*with 3 time steps is'):
    episodes.read_episode(tmp_path / 'e.npz')


def test_a_missing_file_is_a_missing_file(tmp_path):
  with pytest.raises(FileNotFoundError, match='e.npz'):
    episodes.read_episode(tmp_path / 'e.npz')


def test_files_are_not_overwritten_by_accident(tmp_path):
  path = tmp_path / 'e.npz'
  episodes.write_episode(path, fakes.make_episode(1, 3), fakes.HEADER)
  with pytest.raises(FileExistsError):
    episodes.write_episode(path, fakes.make_episode(2, 3), fakes.HEADER)
  fakes.assert_equal(episodes.read_episode(path)[0], fakes.make_episode(1, 3))
  assert os.listdir(tmp_path) == ['e.npz']


def test_file_systems_without_hard_links(tmp_path, monkeypatch):
  def refuse(source, target):
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))

  monkeypatch.setattr(os, 'link', refuse)
  episodes.write_episode(tmp_path / 'e.npz', fakes.make_episode(1, 3), fakes.HEADER)
  with pytest.raises(FileExistsError):
    episodes.write_episode(tmp_path / 'e.npz', fakes.make_episode(2, 3), fakes.HEADER)
  fakes.assert_equal(episodes.read_episode(tmp_path / 'e.npz')[0], fakes.make_episode(1, 3))


def test_a_full_disk_leaves_nothing_behind_and_names_the_file(tmp_path, monkeypatch):
  def fail(descriptor):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  monkeypatch.setattr(os, 'fsync', fail)
  with pytest.raises(OSError, match='The episode cannot be written: No space left.*e.npz') as info:
    episodes.write_episode(tmp_path / 'e.npz', fakes.make_episode(1, 3), fakes.HEADER)
  assert info.value.errno == errno.ENOSPC
  assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
  'change, message',
  [
    (
      dict(reward=np.zeros(5, np.float64)),
      r'reward of an episode with 5 time steps is float64 \[5\] instead of float32',
    ),
    (dict(cost=np.zeros((5, 1), np.float32)), r'cost .* is float32 \[5, 1\] instead of float32 \[5, 2\]'),
    (dict(action=np.zeros((4, 1), np.float32)), r'action .* is float32 \[4, 1\] instead of float32 \[5, 1\]'),
    (dict(observation={}), "its task .*'observation/image'"),
    (dict(reward=np.array([0, 0, np.inf, 0, 0], np.float32)), 'reward has entries .* not finite, first at time step 2'),
  ],
)
def test_episodes_that_deny_their_header_are_not_written(tmp_path, change, message):
  with pytest.raises(ValueError, match=message):
    episodes.write_episode(tmp_path / 'e.npz', fakes.make_episode(0, 4)._replace(**change), fakes.HEADER)
  assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
  'surprise, message',
  [
    (np.zeros(3, np.float32), r'surprise .* float32 \[3\] instead of float32 \[4\]'),
    (np.array([0, 1, -1, 0], np.float32), 'surprise has negative entries'),
    (np.array([0, 1, np.inf, 0], np.float32), 'surprise has entries that are not finite'),
  ],
)
def test_surprise_that_is_none_is_refused(surprise, message):
  with pytest.raises(ValueError, match=message):
    episodes.check(fakes.make_episode(0, 3)._replace(surprise=surprise), fakes.HEADER)


def test_one_time_step_is_no_episode():
  with pytest.raises(ValueError, match='at least 2 time steps, got 1'):
    episodes.check(fakes.make_episode(0, 0), fakes.HEADER)
