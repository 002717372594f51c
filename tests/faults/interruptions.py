"""Runs are killed at every change that they make on disk and at random moments, and told to end by signals."""

from collections.abc import Iterator
import functools
import itertools
import os
import pathlib
import random
import signal
import sys

from lambda_kit import signals
from tests.faults import injection
from tests.faults import outcomes
from tests.faults import runs

_CHANGES = ('open', 'os.mkdir', 'os.remove', 'os.rename', 'os.rmdir', 'os.truncate', 'os.link', 'os.symlink')
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_SIGNALS = (signal.SIGINT, *signals.ENDING)


class DieAtChange:
  """Ends its process, as SIGKILL does, when it is about to make its nth change to a workdir's files."""

  def __init__(self, number: int):
    self._left = number

  def __call__(self, workdir: pathlib.Path) -> None:
    inside = str(workdir)

    def watch(event: str, arguments: tuple) -> None:
      if event not in _CHANGES or not str(arguments[0]).startswith(inside):
        return
      if event == 'open' and not arguments[2] & _WRITING:
        return
      if not self._left:
        os.kill(os.getpid(), signal.SIGKILL)
      self._left -= 1

    sys.addaudithook(watch)


def at_every_change(run: outcomes.Run, step: int) -> Iterator[outcomes.Case]:
  """Kills before the 0th, the `step`th, ... change of a run, for as many as it has."""

  def inject(number: int) -> outcomes.Found:
    workdir = run.folder / f'change-{number}'
    code = run.start(workdir, DieAtChange(number)).wait(300)
    if code != -signal.SIGKILL:
      return outcomes.Found(outcomes.Outcome.SILENT, f'Was not killed, but ended with {code}.')
    return run.judge(workdir)

  for number in range(0, count_changes(run), step):
    name = f'{run.folder.name}-{number}'
    yield 'SIGKILL at a change on disk', name, functools.partial(inject, number)


def count_changes(run: outcomes.Run) -> int:
  """How many changes a run makes, until it is finished."""
  workdir = run.folder / 'counted'
  counter = CountChanges(run.folder / 'changes')
  if run.start(workdir, counter).wait(300):
    raise AssertionError('The run that is counted failed.')
  return int((run.folder / 'changes').read_text())


class CountChanges(DieAtChange):
  """Writes how many changes a process has made to a file, at its end."""

  def __init__(self, path: pathlib.Path):
    super().__init__(sys.maxsize)
    self._path = path

  def __call__(self, workdir: pathlib.Path) -> None:
    import atexit

    super().__call__(workdir)
    atexit.register(lambda: self._path.write_text(str(sys.maxsize - self._left)))


def at_any_time(run: outcomes.Run, times: int, seed: int) -> Iterator[outcomes.Case]:
  """SIGKILL at random moments, each followed by another after the run went on, in chains of five."""

  def inject(number: int) -> outcomes.Found:
    rng = random.Random(f'{seed}-{number}')
    workdir = run.folder / f'killed-{number}'
    for _ in range(5):
      size = runs.log_size(workdir) + int(rng.uniform(0.0, 0.35 * run.size))
      moment = injection.at_log_size(workdir, size)
      if rng.random() < 0.4:
        moment = injection.first_of(moment, injection.in_write(workdir, size))
      elif rng.random() < 0.3:
        moment = injection.first_of(moment, injection.after_seconds(rng.uniform(0.0, 1.5)))
      injection.strike(run.start(workdir), signal.SIGKILL, moment)
    return run.judge(workdir)

  for number in range(times):
    yield 'SIGKILL five times at any time', f'{run.folder.name}-{number}', functools.partial(inject, number)


def by_signals(run: outcomes.Run, times: int, seed: int) -> Iterator[outcomes.Case]:
  """Each signal that ends runs, every second time twice in a row."""

  def inject(number: int, which: signal.Signals) -> outcomes.Found:
    rng = random.Random(f'{seed}-{number}')
    workdir = run.folder / f'signalled-{number}'
    moment = injection.at_log_size(workdir, int(rng.uniform(0.0, 0.9) * run.size))
    again_after = rng.uniform(0.0, 0.3) if number % 2 else None
    code = injection.strike(run.start(workdir), which, moment, again_after)
    expected = signals.INTERRUPTED if which == signal.SIGINT else signals.GO_ON_LATER
    if code != expected:
      return outcomes.Found(outcomes.Outcome.SILENT, f'{which.name} ended it with {code} instead of {expected}.')
    return run.judge(workdir)

  for number, which in zip(range(times), itertools.cycle(_SIGNALS)):
    name = f'{run.folder.name}-{number}'
    yield f'{which.name}', name, functools.partial(inject, number, which)
