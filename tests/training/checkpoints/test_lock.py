"""Tests of the lock on a workdir, between processes and within one."""

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys

import pytest

from lambda_kit.training.checkpoints import lock

_HOLD = """
import sys
from lambda_kit.training.checkpoints import lock
with lock.WorkdirLock(sys.argv[1]):
  print('held', flush=True)
  sys.stdin.read()
"""

# The fork sleeps on when its parent is dead.
_HOLD_AND_FORK = """
import os, sys, time
from lambda_kit.training.checkpoints import lock
with lock.WorkdirLock(sys.argv[1]):
  pid = os.fork()
  if not pid:
    os.close(1)
    time.sleep(60)
    os._exit(0)
  time.sleep(0.2)
  print('held', pid, flush=True)
  time.sleep(60)
"""


def _start(program: str, folder) -> subprocess.Popen:
  return subprocess.Popen(
    [sys.executable, '-c', program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
  )


def test_another_process_is_refused_and_told_by_whom(tmp_path):
  holder = _start(_HOLD, tmp_path)
  assert holder.stdout.readline() == 'held\n'
  message = f'{tmp_path} is in use by process {holder.pid} on {socket.gethostname()}, since 20.*--workdir'
  for _ in range(2):  # Who is refused changes nothing.
    with pytest.raises(lock.WorkdirLockedError, match=message):
      with lock.WorkdirLock(tmp_path):
        pass
  holder.communicate()
  assert holder.returncode == 0
  with lock.WorkdirLock(tmp_path):
    pass


def test_a_killed_process_releases_it(tmp_path):
  holder = _start(_HOLD, tmp_path)
  assert holder.stdout.readline() == 'held\n'
  holder.kill()
  holder.communicate()
  assert 'pid' in (tmp_path / '.lock').read_text()  # What it says does not count.
  with lock.WorkdirLock(tmp_path):
    pass


def test_a_fork_does_not_hold_it(tmp_path):
  holder = _start(_HOLD_AND_FORK, tmp_path)
  fork = int(holder.stdout.readline().split()[1])
  try:
    with pytest.raises(lock.WorkdirLockedError):  # The fork did not release it either.
      with lock.WorkdirLock(tmp_path):
        pass
    holder.kill()
    holder.communicate()
    os.kill(fork, 0)
    with lock.WorkdirLock(tmp_path):
      pass
  finally:
    os.kill(fork, signal.SIGKILL)


def test_within_one_process(tmp_path):
  folder = tmp_path / 'new' / 'run'
  held = lock.WorkdirLock(folder)
  with held:
    for other in (lock.WorkdirLock(folder), held):
      with pytest.raises(lock.WorkdirLockedError, match=f'process {os.getpid()} on'):
        other.__enter__()
    with lock.WorkdirLock(tmp_path):  # Another folder.
      pass
  with held:
    pass
  with pytest.raises(KeyError):
    with held:
      raise KeyError
  with lock.WorkdirLock(folder):
    pass


def test_refusal_without_a_description_of_the_holder(tmp_path):
  with lock.WorkdirLock(tmp_path):
    for text in ('', '[]', '{"pid": 3}'):
      (tmp_path / '.lock').write_text(text)
      with pytest.raises(lock.WorkdirLockedError, match='in use by another process. Wait'):
        with lock.WorkdirLock(tmp_path):
          pass


def test_a_disk_without_locks_is_explained(tmp_path, monkeypatch):
  def fail(descriptor, operation):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

  monkeypatch.setattr(fcntl, 'flock', fail)
  with pytest.raises(OSError, match='The workdir can not be locked: .*Choose one on a local disk'):
    with lock.WorkdirLock(tmp_path):
      pass


def test_a_full_disk_does_not_keep_a_run_from_locking(tmp_path, monkeypatch):
  def fail(descriptor, content, offset):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  monkeypatch.setattr(os, 'pwrite', fail)
  with lock.WorkdirLock(tmp_path):
    with pytest.raises(lock.WorkdirLockedError, match='in use by another process'):
      with lock.WorkdirLock(tmp_path):
        pass
