"""What is done to runs: moments to strike at, ways to damage files, and a disk that is soon full."""

from collections.abc import Callable
import contextlib
import hashlib
import json
import os
import pathlib
import random
import subprocess
import time

from lambda_kit.training.checkpoints import store as store_lib
from tests.faults import processes
from tests.faults import runs

Moment = Callable[[], bool]  # Whether it has come.


def after_seconds(seconds: float) -> Moment:
  """Some time after the start: while modules are imported, parts built, or a checkpoint restored."""
  moment = time.monotonic() + seconds
  return lambda: time.monotonic() >= moment


def at_log_size(workdir: pathlib.Path, size: int) -> Moment:
  """When the log of episodes has got so long, by the process that is about to start."""
  before = runs.log_size(workdir)
  has_begun = False

  def has_come() -> bool:
    nonlocal has_begun
    found = runs.log_size(workdir)
    has_begun = has_begun or found != before
    return has_begun and found >= size

  return has_come


def in_write(workdir: pathlib.Path, size: int) -> Moment:
  """When, after the log has got so long, a checkpoint or an episode is half-written or half-deleted."""
  is_long = at_log_size(workdir, size)
  return lambda: is_long() and bool(half_written(workdir))


def first_of(*moments: Moment) -> Moment:
  return lambda: any([has_come() for has_come in moments])  # noqa: C419 (each has to be asked, to see its start)


def half_written(workdir: pathlib.Path) -> list[str]:
  """What has a name that says that it isn't complete."""
  found = []
  for folder in (workdir / 'checkpoints', workdir / 'replay'):
    with contextlib.suppress(FileNotFoundError):
      found += [name for name in os.listdir(folder) if '.partial' in name]
  return found


def strike(process: processes.Process, number: int, moment: Moment, again_after: float | None = None) -> int:
  """Sends a signal when a moment comes, and a second one if seconds until it are given. Returns the exit code."""
  deadline = time.monotonic() + 300
  while not moment() and process.poll() is None and time.monotonic() < deadline:
    time.sleep(0.0005)
  process.send_signal(number)
  if again_after is not None:
    time.sleep(again_after)
    process.send_signal(number)
  return process.wait(timeout=120)


def truncate(path: pathlib.Path, rng: random.Random) -> None:
  os.truncate(path, rng.randrange(path.stat().st_size))


def flip_bit(path: pathlib.Path, rng: random.Random) -> None:
  content = bytearray(path.read_bytes())
  content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
  path.write_bytes(content)


def delete(path: pathlib.Path, rng: random.Random) -> None:
  del rng
  path.unlink()


def checkpoints(workdir: pathlib.Path) -> list[pathlib.Path]:
  """Folders of the complete checkpoints, the newest first."""
  steps = store_lib.CheckpointStore(workdir / 'checkpoints').steps()
  return [workdir / 'checkpoints' / f'step_{step:012d}' for step in reversed(steps)]


def replay_span(checkpoint: pathlib.Path) -> tuple[int, int]:
  """The first number of the episodes that a checkpoint needs, and one more than the last."""
  return tuple(json.loads((checkpoint / 'state.json').read_bytes())['replay']['span'])


def contents(workdir: pathlib.Path) -> list[str]:
  """Digests of all files, whatever their names: equal lists mean that nothing was lost or changed."""
  paths = [path for path in workdir.rglob('*') if path.is_file() and path.name not in ('.lock', '.lease')]
  return sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in paths)


class MountError(RuntimeError):
  """This user may not mount file systems."""


class SmallDisk:
  """A file system in memory, of its own, and as small as is asked for.

  Args:
    folder: Where it is mounted; made if needed.
    size: Bytes.
  """

  def __init__(self, folder: pathlib.Path, size: int = 16 * 2**20):
    self._folder = folder
    self._size = size
    self._filler = folder / 'filler'

  def leave(self, room: int) -> None:
    """Fills the disk up to some bytes, rounded to pages."""
    self.free()
    with open(self._filler, 'wb', buffering=0) as file, contextlib.suppress(OSError):
      while file.write(bytes(4096)) == 4096:
        pass
    os.truncate(self._filler, max(0, self._filler.stat().st_size - room))

  def free(self) -> None:
    self._filler.unlink(missing_ok=True)

  def __enter__(self) -> 'SmallDisk':
    self._folder.mkdir(parents=True, exist_ok=True)
    command = ['mount', '-t', 'tmpfs', '-o', f'size={self._size}', 'tmpfs', str(self._folder)]
    try:
      subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
      raise MountError('A small file system can not be mounted: this needs root.') from error
    return self

  def __exit__(self, *error) -> None:
    subprocess.run(['umount', str(self._folder)], check=True)
