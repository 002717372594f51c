"""Tests of writing files."""

import errno
import os
import pathlib

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
