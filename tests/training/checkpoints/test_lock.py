"""Tests of the lock and the lease on a workdir, between processes and within one."""

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading

from absl import logging
import pytest

from lambda_kit import files
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

_TAKE_LEASE = """
import os, pathlib, sys
from lambda_kit.training.checkpoints import lock
lock.Lease(pathlib.Path(sys.argv[1]), 'run')
print(os.getpid())
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


@pytest.mark.parametrize(
  'name, take',
  [
    ('.lock', lambda folder: lock.WorkdirLock(folder).__enter__()),
    ('.lease', lambda folder: lock.Lease(folder, 'run')),
  ],
)
def test_links_are_not_followed(tmp_path, name, take):
  folder, target = tmp_path / 'run', tmp_path / 'target'
  folder.mkdir()
  target.write_text('mine')
  (folder / name).symlink_to(target)
  with pytest.raises(files.NotPlainError, match=f'run/{name} is a symbolic link to {target}'):
    take(folder)
  assert target.read_text() == 'mine'


class TestALease:
  def test_is_lost_when_another_process_takes_it(self, tmp_path):
    first = lock.Lease(tmp_path, 'run')
    with first.writing():
      pass
    holder = subprocess.run(
      [sys.executable, '-c', _TAKE_LEASE, str(tmp_path)], capture_output=True, text=True, check=True
    )
    message = f'{tmp_path} was taken over by process {int(holder.stdout)} on {socket.gethostname()}, since 20.*stops'
    for _ in range(2):
      with pytest.raises(lock.LostLeaseError, match=message):
        with first.writing():
          pytest.fail('It wrote.')
    with lock.Lease(tmp_path, 'run').writing():  # Taken again.
      pass

  def test_is_not_taken_in_the_middle_of_a_write(self, tmp_path, monkeypatch):
    warnings = []
    monkeypatch.setattr(logging, 'warning', lambda text, *args: warnings.append(text % args))
    monkeypatch.setattr(lock, '_PATIENCE', 0.0)
    first, taken = lock.Lease(tmp_path, 'run'), []
    other = threading.Thread(target=lambda: taken.append(lock.Lease(tmp_path, 'run')))
    with first.writing():
      other.start()
      other.join(timeout=0.3)
      assert not taken
    other.join(timeout=20)
    assert len(taken) == 1
    assert warnings == [warnings[0]] and f'waiting for a write of process {os.getpid()} on' in warnings[0]
    with pytest.raises(lock.LostLeaseError):
      first.check()
    taken[0].check()

  def test_may_be_used_in_a_write_and_by_several_threads(self, tmp_path):
    lease = lock.Lease(tmp_path, 'run')
    with lease.writing(), lease.writing():
      thread = threading.Thread(target=lease.check)
      thread.start()
      thread.join(timeout=20)
      assert not thread.is_alive()

  @pytest.mark.parametrize('damage', [os.unlink, lambda path: os.truncate(path, 0)])
  def test_that_is_deleted_or_damaged_is_lost(self, tmp_path, damage):
    lease = lock.Lease(tmp_path, 'run')
    damage(tmp_path / '.lease')
    with pytest.raises(lock.LostLeaseError, match='another process'):
      lease.check()

  def test_a_full_disk_is_explained(self, tmp_path, monkeypatch):
    def fail(descriptor):
      raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, 'fsync', fail)
    with pytest.raises(OSError, match='The workdir can not be taken: No space left on device') as info:
      lock.Lease(tmp_path, 'run')
    assert info.value.filename == str(tmp_path)
