"""Runs as child processes that never outlive the process that started them."""

from collections.abc import Collection, Mapping, Sequence
import contextlib
import datetime
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import time

from lambda_kit.sweeps import grid
from lambda_kit.sweeps import workdirs
from lambda_kit.training.checkpoints import lock

_GRACE = 60.0  # Seconds that a run has to save before it is killed.
_LOCK_SECONDS = 120.0
_POLL_SECONDS = 0.25


class RunProcess:
  """An attempt at a run. Its prints are appended to the run's output.

  If this process dies, even by SIGKILL, the kernel asks the run to end. It then saves, and unlocks its workdir.

  Args:
    run: What to run.
    cores: Numbers of the cores that it may use; by default those of this process.
    environment: Changes to the environment variables.
  """

  def __init__(self, run: grid.Run, cores: Sequence[int] = (), environment: Mapping[str, str] | None = None):
    run.output.parent.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now().astimezone().isoformat(timespec='seconds')
    with open(run.output, 'ab') as output:
      output.write(f'{workdirs.ATTEMPT}on {socket.gethostname()}, {now}: {shlex.join(run.command)}\n'.encode())
      output.flush()
      self._process = subprocess.Popen(
        [*_wrapper(cores), *run.command],
        cwd=run.start_folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
      )

  @property
  def session(self) -> int:
    """Id of the session that it leads, which includes its children."""
    return self._process.pid

  def poll(self) -> int | None:
    """Returns the exit code; None while it runs."""
    return self._process.poll()

  def wait(self) -> int:
    """Waits until it ends, and returns its exit code. Ends it if this process is interrupted meanwhile."""
    try:
      # Not Popen.wait: a signal handler that calls `end` meanwhile would deadlock.
      while (code := self.poll()) is None:
        time.sleep(_POLL_SECONDS)
      return code
    finally:
      self.end()

  def ask_to_end(self) -> None:
    if self.poll() is None:
      self._process.send_signal(signal.SIGTERM)

  def end(self, grace: float = _GRACE) -> None:
    """Asks it to end, and kills it after `grace` seconds. Children that it leaves are killed, too."""
    self.ask_to_end()
    with contextlib.suppress(subprocess.TimeoutExpired):
      self._process.wait(grace)
    with contextlib.suppress(ProcessLookupError):
      os.killpg(self.session, signal.SIGKILL)
    self._process.wait()


def run_to_end(run: grid.Run) -> int:
  """Makes an attempt at a run on this machine, unless the run is finished. Returns the exit code."""
  return RunProcess(run).wait() if is_to_run(run) else 0


def is_to_run(run: grid.Run) -> bool:
  """Whether a run is unfinished. First waits for an earlier attempt that was given up, but may still be saving."""
  deadline = time.monotonic() + _LOCK_SECONDS
  while (run.workdir / '.lock').exists() and time.monotonic() < deadline:
    try:
      with lock.WorkdirLock(run.workdir):
        break
    except lock.WorkdirLockedError:  # If it stays locked, the new attempt reports it.
      time.sleep(_POLL_SECONDS)
  return not workdirs.is_finished(run.workdir)


def memory_of(sessions: Collection[int]) -> dict[int, int]:
  """Returns the bytes of memory that sessions use. Shared pages count once. Empty without /proc."""
  used: dict[int, int] = {}
  for folder in pathlib.Path('/proc').glob('[0-9]*'):
    try:
      # After the name, which may hold any character: state, parent, group, session.
      session = int((folder / 'stat').read_text().rpartition(')')[-1].split()[3])
      if session in sessions:
        lines = (folder / 'smaps_rollup').read_text().splitlines()
        kilobytes = sum(int(line.split()[1]) for line in lines if line.startswith('Pss:'))
        used[session] = used.get(session, 0) + kilobytes * 1024
    except (OSError, ValueError, IndexError):  # It ended meanwhile.
      continue
  return used


def _wrapper(cores: Sequence[int]) -> list[str]:
  """Returns a command prefix that sets the child's cores and death signal, which Python could only do by forking."""
  wrapper = []
  if shutil.which('setpriv'):
    wrapper += ['setpriv', '--pdeathsig', 'TERM']
  if cores and shutil.which('taskset'):
    wrapper += ['taskset', '--cpu-list', ','.join(map(str, cores))]
  return wrapper
