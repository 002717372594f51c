"""A lock and a lease on a workdir, so that two processes never write to the same one.

The lock keeps a second process out. But somebody may delete its file, and then a second process gets a lock of its own.
So a process that writes also takes the lease: a file with its token. The first process finds another token there when
it next wants to write, and stops.
"""

from collections.abc import Iterator
import contextlib
import datetime
import errno
import fcntl
import json
import os
import pathlib
import secrets
import socket
import time
from typing import Any

from absl import logging

from lambda_kit import errors
from lambda_kit import files

_LEASE = '.lease'
_MAX_BYTES = 4096  # Of a description.
_POLL_SECONDS = 0.02
_PATIENCE = 2.0  # Seconds, before it is said who is waited for.
_STOPS = 'This process stops, and has written nothing there since. Never delete the .lock of a workdir that is in use.'


class WorkdirLockedError(errors.UserError):
  """Another run uses the folder."""


class LostLeaseError(errors.UserError):
  """Another process has taken over the folder, so this one may not write there any more."""


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
    files.make_folder(self._folder)
    files.refuse_others(self._folder / '.lock')
    descriptor = os.open(self._folder / '.lock', os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
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


class Lease:
  """The right to write to a workdir, from now on until another process takes it.

  Args:
    folder: The workdir.
    run_id: Of the run, for whoever reads the file.
  """

  def __init__(self, folder: pathlib.Path, run_id: str | None):
    self._path = folder / _LEASE
    self._token = secrets.token_hex(16)
    files.refuse_others(self._path)
    earlier = self._open()
    content = {'run_id': run_id, 'token': self._token, **_this_process()}
    try:
      files.write_atomically(self._path, json.dumps(content) + '\n')
      if earlier is not None:
        self._wait_for_writes(earlier)
    except OSError as error:
      raise OSError(
        error.errno, f'The workdir can not be taken: {error.strerror or error}', str(self._path.parent)
      ) from error
    finally:
      if earlier is not None:
        os.close(earlier)

  @contextlib.contextmanager
  def writing(self) -> Iterator[None]:
    """Lets nobody take the lease until a write is done. May be nested, and used by several threads at once.

    Raises:
      LostLeaseError: Another process has taken the lease.
    """
    descriptor = self._open()
    if descriptor is None:
      raise LostLeaseError(f'{self._path} is gone, so another process may use the workdir. {_STOPS}')
    try:
      fcntl.flock(descriptor, fcntl.LOCK_SH)
      content = os.pread(descriptor, _MAX_BYTES, 0)
      # A process that has just replaced the file waits for those that locked it, but not for later ones.
      if _token(content) != self._token or not self._is_current(descriptor):
        raise LostLeaseError(f'{self._path.parent} was taken over by {_holder(self._content())}. {_STOPS}')
      yield
    finally:
      os.close(descriptor)

  def check(self) -> None:
    """Raises `LostLeaseError` if another process has taken the lease."""
    with self.writing():
      pass

  def _wait_for_writes(self, earlier: int) -> None:
    """Waits until no process writes under an earlier lease."""
    patience = time.monotonic() + _PATIENCE
    while True:
      try:
        fcntl.flock(earlier, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
      except BlockingIOError:
        if patience and time.monotonic() > patience:
          patience = 0.0
          holder = _holder(os.pread(earlier, _MAX_BYTES, 0))
          logging.warning('%s: waiting for a write of %s to end.', self._path.parent, holder)
        time.sleep(_POLL_SECONDS)

  def _open(self) -> int | None:
    try:
      return os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
      return None

  def _is_current(self, descriptor: int) -> bool:
    """Whether an open file is still the one in the workdir."""
    with contextlib.suppress(FileNotFoundError):
      return os.path.samestat(os.fstat(descriptor), os.lstat(self._path))
    return False

  def _content(self) -> bytes:
    try:
      return self._path.read_bytes()[:_MAX_BYTES]
    except OSError:
      return b''


def _lock(descriptor: int, folder: pathlib.Path) -> None:
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except OSError as error:
    if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
      raise WorkdirLockedError(
        f'{folder} is in use by {_holder(os.pread(descriptor, _MAX_BYTES, 0))}. Wait for that run to end, stop it, or '
        'choose another folder with --workdir.'
      ) from None
    raise OSError(
      error.errno,
      f'The workdir can not be locked: {error.strerror}. Choose one on a local disk with --workdir',
      str(folder),
    ) from error


def _describe_holder(descriptor: int) -> None:
  with contextlib.suppress(OSError):  # Such as a full disk. The lock works without a description, too.
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(_this_process()).encode(), 0)


def _this_process() -> dict[str, Any]:
  now = datetime.datetime.now().astimezone().isoformat(timespec='seconds')
  return {'pid': os.getpid(), 'host': socket.gethostname(), 'started': now}


def _holder(content: bytes) -> str:
  """What the file of a lock or of a lease says about its process."""
  try:
    holder = json.loads(content)
    return f'process {holder["pid"]} on {holder["host"]}, since {holder["started"]}'
  except (ValueError, KeyError, TypeError):  # Just locked, and not described yet.
    return 'another process'


def _token(content: bytes) -> Any:
  try:
    return json.loads(content)['token']
  except (ValueError, KeyError, TypeError):
    return None
