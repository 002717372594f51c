"""Tests of writing files."""

import errno
import os

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
