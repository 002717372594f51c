"""Writes files that are on the disk, not only in the operating system's cache, when a function returns."""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import re
import stat

from lambda_kit import errors

_PARTIAL = re.compile(r'\..+\.(\d{1,9})\.partial(\.\w+)?')  # As `replacing` names them.


class NotPlainError(errors.UserError):
  """Something else is where a file or a folder would be written."""


def refuse_others(path: pathlib.Path) -> None:
  """Raises `NotPlainError` unless a path is a file, a folder, or absent: nothing is written through links or pipes."""
  try:
    mode = path.lstat().st_mode
  except FileNotFoundError:
    return
  if stat.S_ISLNK(mode):
    raise NotPlainError(
      f'{path} is a symbolic link to {os.readlink(path)}, and links inside a workdir are not followed for writing. '
      'Put the file or folder itself there; the whole workdir may be a link.'
    )
  if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
    raise NotPlainError(f'{path} is neither a file nor a folder. Remove it, or choose another workdir.')


def make_folder(folder: pathlib.Path) -> None:
  """Makes a folder and its parents, so that their names survive a power failure."""
  missing = [path for path in (folder, *folder.parents) if not path.exists()]
  folder.mkdir(parents=True, exist_ok=True)
  for path in missing:
    sync_folder(path.parent)


def write(path: pathlib.Path, content: bytes) -> None:
  """Writes a new file. Its name survives a power failure only after `sync_folder`."""
  with open(path, 'xb') as file:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[pathlib.Path]:
  """Yields a path to write to, which is renamed to `path` at the end. After a failure, `path` is as it was before.

  The file extension is the same, for programs that choose a format by it.
  """
  path = pathlib.Path(path)
  make_folder(path.parent)
  partial = path.with_name(f'.{path.stem}.{os.getpid()}.partial{path.suffix}')
  try:
    yield partial
    sync_file(partial)
    os.replace(partial, path)
    sync_folder(path.parent)
  finally:
    partial.unlink(missing_ok=True)


def write_atomically(path: str | os.PathLike, content: bytes | str) -> None:
  """Writes or replaces a file, completely or not at all. Text is UTF-8."""
  with replacing(path) as partial:
    partial.write_bytes(content.encode() if isinstance(content, str) else content)


def remove_leftovers(folder: pathlib.Path) -> None:
  """Deletes what processes of this machine left in a folder when they died in `replacing`."""
  for path in folder.glob('.*.partial*'):
    match = _PARTIAL.fullmatch(path.name)
    if match and not is_alive(int(match[1])) and not path.is_dir():
      path.unlink(missing_ok=True)


def is_alive(pid: int) -> bool:
  """Whether another process of this machine has this id."""
  if pid == os.getpid():
    return False  # In a container, a process may have the id of one that died before.
  try:
    os.kill(pid, 0)
  except ProcessLookupError:
    return False
  except PermissionError:  # It belongs to another user.
    return True
  return True


def sync_file(path: pathlib.Path) -> None:
  """Makes a file's content survive a power failure."""
  with open(path, 'rb') as file:
    os.fsync(file.fileno())


def sync_folder(folder: pathlib.Path) -> None:
  """Makes the names in a folder survive a power failure."""
  descriptor = os.open(folder, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)
