"""Files that are on disk, not only in the memory of the operating system, when a function returns."""

import contextlib
import errno
import os
import pathlib
from typing import Iterator

from lambda_kit.training.checkpoints import errors


def write(path: pathlib.Path, content: bytes) -> None:
  """Writes a new file. Its name survives a power cut only after `sync_folder`."""
  with open(path, 'xb') as file:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def sync_file(path: pathlib.Path) -> None:
  """Makes what was written to a file survive a power cut."""
  with open(path, 'rb') as file:
    os.fsync(file.fileno())


def sync_folder(folder: pathlib.Path) -> None:
  """Makes the names in a folder survive a power cut."""
  descriptor = os.open(folder, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


@contextlib.contextmanager
def missing_is_damage(path: pathlib.Path) -> Iterator[None]:
  """Turns errors of reading into `DamagedError`, except those that are not the file's fault, such as permissions."""
  try:
    yield
  except (FileNotFoundError, NotADirectoryError) as error:
    raise errors.DamagedError(f'{path} is missing') from error
  except IsADirectoryError as error:
    raise errors.DamagedError(f'{path} is a folder') from error
  except OSError as error:
    if error.errno != errno.EIO:
      raise
    raise errors.DamagedError(f'{path} can not be read from the disk: {error.strerror}') from error
