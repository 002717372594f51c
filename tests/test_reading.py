"""Tests of reading files that anybody may have written."""

import os
import socket

import pytest

from lambda_kit import reading


def _socket(path):
  with socket.socket(socket.AF_UNIX) as bound:
    bound.bind(str(path))


@pytest.mark.parametrize(
  'make, what',
  [
    (os.mkfifo, 'a FIFO'),
    (lambda path: path.symlink_to('/dev/zero'), 'a symbolic link'),
    (lambda path: path.symlink_to('file'), 'a symbolic link'),
    (lambda path: path.symlink_to(path.name), 'a symbolic link'),
    (_socket, 'a socket'),
  ],
)
def test_only_regular_files_are_opened(tmp_path, make, what):
  (tmp_path / 'file').write_bytes(b'1')
  path = tmp_path / 'other'
  make(path)
  for read in (reading.exists, reading.open_regular, reading.read_json):
    with pytest.raises(reading.RefusedError, match=f'other is not read: it is {what}'):
      read(path)
  assert reading.exists(tmp_path / 'file') and not reading.exists(tmp_path / 'none')


def test_links_are_followed_to_regular_files_only(tmp_path):
  (tmp_path / 'file').write_bytes(b'1')
  (tmp_path / 'good').symlink_to('file')
  (tmp_path / 'endless').symlink_to('/dev/zero')
  assert reading.read_bytes(tmp_path / 'good', 1, follow_links=True) == b'1'
  with pytest.raises(reading.RefusedError, match='it is a device'):
    reading.read_bytes(tmp_path / 'endless', 1, follow_links=True)
  with pytest.raises(IsADirectoryError):
    reading.read_bytes(tmp_path, 1)


def test_bytes_are_limited(tmp_path):
  path = tmp_path / 'file'
  path.write_bytes(b'12345')
  assert reading.read_bytes(path, 5) == b'12345'
  with pytest.raises(reading.RefusedError, match='it has more than 4 bytes'):
    reading.read_bytes(path, 4)


@pytest.mark.parametrize(
  'text, reason',
  [
    (b'{', 'not JSON'),
    (b'\xff', 'not JSON'),
    (b'1' * 5000, 'not JSON'),  # Digits beyond Python's own limit.
    (b'[' * 100_000, 'nested more than 64 deep'),
    (b'[' * 66 + b']' * 66, 'nested more than 64 deep'),
    (b'{"a": "\\ud800"}', 'text that is not Unicode'),
    (b'{"\\uDFFF": 1}', 'text that is not Unicode'),
  ],
)
def test_json_that_could_harm_is_refused(tmp_path, text, reason):
  path = tmp_path / 'file.json'
  path.write_bytes(text)
  with pytest.raises(reading.RefusedError, match=reason):
    reading.read_json(path)


@pytest.mark.parametrize('text', [b'[' * 64 + b']' * 64, b'{"a": "\\ud83d\\ude00 \\u00e9"}', b'null', b'[NaN, 1e999]'])
def test_other_json_is_read(text):
  reading.parse_json(text)


def test_text_becomes_one_line():
  assert reading.one_line('a\nb\x1b[2J\ud800\u202e é') == 'a b [2J   é'
  assert reading.one_line('x' * 400) == 'x' * 297 + '...' and reading.one_line('x' * 300) == 'x' * 300
  assert (
    reading.is_line('é') and not reading.is_line('a\n') and not reading.is_line('x' * 201) and not reading.is_line(1)
  )
