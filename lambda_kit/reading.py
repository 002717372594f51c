"""Reads files that anybody may have written, so that none of them costs more than it should.

Only regular files are opened: a FIFO would block for ever, a device may never end, and a symbolic link can lead to a
file that its owner never meant to show. JSON is limited in bytes and in depth.
"""

import errno
import io
import json
import os
import pathlib
import stat
from typing import Any

from lambda_kit import errors

MAX_BYTES = 1 << 20  # Of small files by default: a run.json has about ten thousand.

_MAX_DEPTH = 64
_KINDS = {
  stat.S_IFIFO: 'a FIFO',
  stat.S_IFCHR: 'a device',
  stat.S_IFBLK: 'a device',
  stat.S_IFSOCK: 'a socket',
  stat.S_IFLNK: 'a symbolic link',
}

Path = str | os.PathLike[str]


class RefusedError(errors.UserError, ValueError):
  """A file is not of the kind, size or depth that is read."""

  def __init__(self, path: Path, reason: str):
    super().__init__(f'{path} is not read: {reason}.')
    self.path = pathlib.Path(path)
    self.reason = reason


def exists(path: Path) -> bool:
  """Whether there is a regular file of that name. Raises RefusedError if there is something else."""
  try:
    _check_kind(path, os.lstat(path).st_mode)
  except (FileNotFoundError, NotADirectoryError):
    return False
  except IsADirectoryError:
    raise RefusedError(path, 'it is a folder') from None
  return True


def open_regular(path: Path, follow_links: bool = False) -> io.BufferedReader:
  """Opens a file for reading, at once and only if it is a regular one.

  Args:
    path: The file.
    follow_links: Whether it may be a symbolic link to a regular file. Never for files whose content is shown.

  Raises:
    RefusedError: It is something else.
    OSError: It can't be opened; folders raise IsADirectoryError.
  """
  # Looked at before it is opened, since opening a device can have effects of its own.
  _check_kind(path, os.stat(path, follow_symlinks=follow_links).st_mode)
  flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow_links else os.O_NOFOLLOW)
  descriptor = os.open(path, flags)
  try:
    _check_kind(path, os.fstat(descriptor).st_mode)
    return open(descriptor, 'rb')
  except BaseException:
    os.close(descriptor)
    raise


def read_bytes(path: Path, max_bytes: int, follow_links: bool = False) -> bytes:
  """Reads a regular file of at most `max_bytes`."""
  with open_regular(path, follow_links) as file:
    content = file.read(max_bytes + 1)  # What is read counts, not the size: the file may be growing.
  if len(content) > max_bytes:
    raise RefusedError(path, f'it has more than {max_bytes:,} bytes')
  return content


def read_json(path: Path, max_bytes: int = MAX_BYTES, follow_links: bool = False) -> Any:
  """Reads a regular file of JSON as `parse_json` does."""
  content = read_bytes(path, max_bytes, follow_links)
  try:
    return parse_json(content)
  except ValueError as error:
    raise RefusedError(path, str(error)) from error


def parse_json(text: bytes) -> Any:
  """Parses UTF-8 JSON. Raises a ValueError if it is none, nested too deeply, or has text that can't be encoded."""
  try:
    value = json.loads(text.decode('utf-8'))
  except RecursionError:
    raise ValueError(f'its JSON is nested more than {_MAX_DEPTH} deep') from None
  except ValueError as error:
    raise ValueError(f'it is not JSON ({error})') from error
  level = [value]
  for _ in range(_MAX_DEPTH + 1):
    level = [item for node in level if isinstance(node, (dict, list)) for item in _items(node)]
    if not level:
      break
  else:
    raise ValueError(f'its JSON is nested more than {_MAX_DEPTH} deep')
  if b'\\u' in text:  # Only an escape can make half of a surrogate pair.
    try:
      json.dumps(value, ensure_ascii=False).encode('utf-8')
    except UnicodeEncodeError:
      raise ValueError('it has text that is not Unicode') from None
  return value


def one_line(text: str, length: int = 300) -> str:
  """Text of others, fit for a terminal and a table: printable, on one line, and no longer than `length`."""
  text = ''.join(character if character.isprintable() else ' ' for character in text[: length + 1])
  return text if len(text) <= length else f'{text[: length - 3]}...'


def is_line(value: Any, length: int = 200) -> bool:
  """Whether a value is text that `one_line` would not change."""
  return isinstance(value, str) and len(value) <= length and value.isprintable()


def _items(node: dict | list) -> Any:
  return node.values() if isinstance(node, dict) else node


def _check_kind(path: Path, mode: int) -> None:
  if stat.S_ISDIR(mode):
    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
  if not stat.S_ISREG(mode):
    raise RefusedError(path, f'it is {_KINDS.get(stat.S_IFMT(mode), "no regular file")}')
