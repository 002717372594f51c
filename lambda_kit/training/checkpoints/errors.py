"""What can be wrong with a checkpoint or an exported policy. Messages name the file and the remedy, if there is one."""

from collections.abc import Iterator
import contextlib
import errno
import pathlib

from lambda_kit import errors


class CheckpointError(errors.UserError, ValueError):
  """A checkpoint, an exported policy, or a file of one, that can't be used."""


class DamagedError(CheckpointError):
  """Not what was written: cut off, changed, or gone."""


class MismatchError(CheckpointError):
  """What was written, but of a run with other arrays."""


@contextlib.contextmanager
def missing_is_damage(path: pathlib.Path) -> Iterator[None]:
  """Turns errors of reading into `DamagedError`, except those that are not the file's fault, such as permissions."""
  try:
    yield
  except (FileNotFoundError, NotADirectoryError) as error:
    raise DamagedError(f'{path} is missing') from error
  except IsADirectoryError as error:
    raise DamagedError(f'{path} is a folder') from error
  except OSError as error:
    if error.errno != errno.EIO:
      raise
    raise DamagedError(f'{path} can not be read from the disk: {error.strerror}') from error
