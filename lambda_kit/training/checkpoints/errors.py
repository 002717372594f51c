"""Errors of checkpoints and exported policies. Messages name the file, and the remedy if there is one."""

from collections.abc import Iterator
import contextlib
import errno
import pathlib

from lambda_kit import errors
from lambda_kit import reading


class CheckpointError(errors.UserError, ValueError):
  """A checkpoint or an exported policy can't be used."""


class DamagedError(CheckpointError):
  """A file is not what was written: truncated, changed, or missing."""


class MismatchError(CheckpointError):
  """The files are good, but from a run with other arrays."""


@contextlib.contextmanager
def wrong_content_is_damage(path: pathlib.Path) -> Iterator[None]:
  """Turns what comes of a value that is missing or of the wrong kind into `DamagedError`."""
  try:
    yield
  except (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
    raise DamagedError(f'{path} does not hold what was written to it ({type(error).__name__}: {error})') from error


@contextlib.contextmanager
def missing_is_damage(path: pathlib.Path) -> Iterator[None]:
  """Turns read errors into `DamagedError`, except those that are not the file's fault, such as missing permissions."""
  try:
    yield
  except (FileNotFoundError, NotADirectoryError) as error:
    raise DamagedError(f'{path} is missing') from error
  except IsADirectoryError as error:
    raise DamagedError(f'{path} is a folder') from error
  except reading.RefusedError as error:
    raise DamagedError(f'{path} is no file of ours: {error.reason}') from error
  except OSError as error:
    if error.errno != errno.EIO:
      raise
    raise DamagedError(f'{path} can not be read from the disk: {error.strerror}') from error
