"""Kills processes while they save, in all places, and looks at what they leave. Run as a program by the tests.

The processes are forks of this one, which takes milliseconds; that is why it must not be the one of the tests, where
jax has threads.
"""

from collections.abc import Callable
import os
import pathlib
import random
import signal
import sys
import time

from lambda_kit.training.checkpoints import store as store_lib
from tests.fakes import checkpoints as fakes

_CALLS = ('mkdir', 'fsync', 'replace', 'unlink', 'rmdir')


def _fork(run: Callable[..., None], *args) -> int:
  pid = os.fork()
  if not pid:
    try:
      run(*args)
      os._exit(0)
    except BaseException as error:  # Must not go on as a second driver.
      print(f'{type(error).__name__}: {error}', file=sys.stderr)
      os._exit(1)
  return pid


def _die_at(call: int) -> None:
  """Makes this process kill itself before its nth call that changes the disk."""
  calls = 0

  def counting(function):
    def replacement(*args, **kwargs):
      nonlocal calls
      if calls == call:
        os.kill(os.getpid(), signal.SIGKILL)
      calls += 1
      return function(*args, **kwargs)

    return replacement

  for name in _CALLS:
    setattr(os, name, counting(getattr(os, name)))


def _newest_of_clean_folder(folder: pathlib.Path, keep: int) -> int:
  store = store_lib.CheckpointStore(folder, keep)
  store.remove_leftovers()
  assert all('.' not in name for name in os.listdir(folder)), os.listdir(folder)
  for step in store.steps():
    fakes.assert_complete(store.at(step), step)
  newest = store.newest()
  return 0 if newest is None else newest.step


def _save_and_die(call: int, store: store_lib.CheckpointStore, step: int) -> None:
  _die_at(call)
  fakes.save(store, step)


def die_in_every_place(folder: pathlib.Path, steps: tuple[int, ...], saved: int, keep: int) -> set[int]:
  """Saves after `steps` were saved, dying one call later each time. Returns which step was the newest afterwards."""
  newest = set()
  for call in range(1000):
    case = folder / str(call)
    case.mkdir()
    store = store_lib.CheckpointStore(case, keep)
    for step in steps:
      fakes.save(store, step)
    _, status = os.waitpid(_fork(_save_and_die, call, store, saved), 0)
    newest.add(_newest_of_clean_folder(case, keep))
    if not os.WIFSIGNALED(status):
      assert status == 0, status
      break
  print(f'{call} places')
  return newest


def _save_forever(folder: pathlib.Path, first_step: int, writer: int) -> None:
  store = store_lib.CheckpointStore(folder, keep=2)
  for step in range(first_step, 10**6):
    fakes.save(store, step)
    os.write(writer, step.to_bytes(4, 'big'))


def kill_at_any_time(folder: pathlib.Path, times: int) -> None:
  """Kills a process that saves and saves. No step that was reported as saved may get lost."""
  rng = random.Random(0)
  last = 0
  for _ in range(times):
    reader, writer = os.pipe()
    pid = _fork(_save_forever, folder, last + 1, writer)
    first = os.read(reader, 4)
    time.sleep(rng.uniform(0, 0.05))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(writer)
    reported = first
    while more := os.read(reader, 4):
      reported = more
    os.close(reader)
    newest = _newest_of_clean_folder(folder, keep=2)
    assert newest >= int.from_bytes(reported, 'big') > last, (newest, reported, last)
    last = newest
  print(f'{last} saves')


def main(folder: pathlib.Path) -> None:
  for name in ('new', 'pruning', 'replacing', 'running'):
    (folder / name).mkdir()
  assert die_in_every_place(folder / 'new', (), 1, keep=1) == {0, 1}
  assert die_in_every_place(folder / 'pruning', (1, 2), 3, keep=2) == {2, 3}
  # Not even then is there a moment without a checkpoint.
  assert die_in_every_place(folder / 'replacing', (2,), 2, keep=1) == {2}
  kill_at_any_time(folder / 'running', 20)


if __name__ == '__main__':
  main(pathlib.Path(sys.argv[1]))
