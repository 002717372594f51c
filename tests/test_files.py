"""Tests of writing files."""

import errno
import os
import pathlib
import subprocess

import pytest

from lambda_kit import files


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
  path = tmp_path / 'a.txt'
  files.write_atomically(path, 'old')

  def fail(descriptor):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  monkeypatch.setattr(os, 'fsync', fail)
  with pytest.raises(OSError, match='No space left on device'):
    files.write_atomically(path, 'new')
  assert os.listdir(tmp_path) == ['a.txt'] and path.read_text() == 'old'


def test_leftovers_of_dead_processes_are_removed_and_nothing_else(tmp_path):
  dead = subprocess.Popen(['true'])
  dead.wait()
  leftovers = [f'.video.{dead.pid}.partial.mp4', f'.run.{dead.pid}.partial.json', f'.Makefile.{os.getpid()}.partial']
  others = ['.video.1.partial.mp4', f'video.{dead.pid}.partial.mp4', '.video.x.partial.mp4', f'.{dead.pid}.partial']
  for name in [*leftovers, *others]:
    (tmp_path / name).touch()
  (tmp_path / f'.folder.{dead.pid}.partial').mkdir()
  files.remove_leftovers(tmp_path)
  assert sorted(os.listdir(tmp_path)) == sorted([*others, f'.folder.{dead.pid}.partial'])


def test_what_is_written_has_a_name_of_a_leftover(tmp_path):
  with files.replacing(tmp_path / 'video.mp4') as partial:
    partial.touch()
    files.remove_leftovers(tmp_path)  # Of this process: only at the start of a run, when it writes nothing else.
    assert not partial.exists()
    partial.touch()


def test_new_folders_survive_a_power_failure(tmp_path, monkeypatch):
  synced, fsync = [], os.fsync

  def record(descriptor):
    synced.append(pathlib.Path(os.readlink(f'/proc/self/fd/{descriptor}')))
    fsync(descriptor)

  monkeypatch.setattr(os, 'fsync', record)
  for _ in range(2):
    files.make_folder(tmp_path / 'a' / 'b')
  assert synced == [tmp_path / 'a', tmp_path]


@pytest.mark.parametrize(
  'make, message',
  [
    (lambda path: path.symlink_to('elsewhere'), 'a is a symbolic link to elsewhere, and links inside a workdir are'),
    (lambda path: path.symlink_to('/'), 'a is a symbolic link to /'),
    (os.mkfifo, 'a is neither a file nor a folder'),
  ],
)
def test_only_files_and_folders_are_written_to(tmp_path, make, message):
  path = tmp_path / 'a'
  files.refuse_others(path)
  make(path)
  with pytest.raises(files.NotPlainError, match=message):
    files.refuse_others(path)


@pytest.mark.parametrize('make', [pathlib.Path.touch, pathlib.Path.mkdir])
def test_files_and_folders_are_plain(tmp_path, make):
  make(tmp_path / 'a')
  files.refuse_others(tmp_path / 'a')
