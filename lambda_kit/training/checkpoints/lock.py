"""A lock on a workdir, so that two runs never write to the same one."""

import contextlib
import datetime
import errno
import fcntl
import json
import os
import pathlib
import socket

from lambda_kit import errors


class WorkdirLockedError(errors.UserError):
  """Another run uses the folder."""


class WorkdirLock:
  """Context manager that holds `<folder>/.lock`, or raises `WorkdirLockedError` at once.

  The kernel releases the lock when the process ends, however it ends, so a leftover lock file does not matter. The file
  is never deleted: otherwise a process that had already opened it and one that comes later could both hold a lock.

  Args:
    folder: Created if it does not exist.
  """

  def __init__(self, folder: str | os.PathLike):
    self._folder = pathlib.Path(folder)
    self._descriptor: int | None = None
    # A forked process shares the lock, and would still hold it after this process has ended.
    os.register_at_fork(after_in_child=self._close)

  def __enter__(self) -> 'WorkdirLock':
    self._folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(self._folder / '.lock', os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
      _lock(descriptor, self._folder)
      _describe_holder(descriptor)
    except BaseException:
      os.close(descriptor)
      raise
    self._descriptor = descriptor
    return self

  def __exit__(self, *error) -> None:
    if self._descriptor is not None:
      os.ftruncate(self._descriptor, 0)
    self._close()

  def _close(self) -> None:
    if self._descriptor is not None:
      os.close(self._descriptor)
      self._descriptor = None


def _lock(descriptor: int, folder: pathlib.Path) -> None:
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except OSError as error:
    if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
      raise WorkdirLockedError(
        f'{folder} is in use by {_holder(descriptor)}. Wait for that run to end, stop it, or '
        'choose another folder with --workdir.'
      ) from None
    raise OSError(
      error.errno,
      f'The workdir can not be locked: {error.strerror}. Choose one on a local disk with --workdir',
      str(folder),
    ) from error


def _describe_holder(descriptor: int) -> None:
  holder = {
    'pid': os.getpid(),
    'host': socket.gethostname(),
    'started': datetime.datetime.now().astimezone().isoformat(timespec='seconds'),
  }
  with contextlib.suppress(OSError):  # Such as a full disk. The lock works without a description, too.
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(holder).encode(), 0)


def _holder(descriptor: int) -> str:
  try:
    holder = json.loads(os.pread(descriptor, 4096, 0))
    return f'process {holder["pid"]} on {holder["host"]}, since {holder["started"]}'
  except (ValueError, KeyError, TypeError):  # Just locked, and not described yet.
    return 'another process'
