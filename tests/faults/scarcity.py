"""Runs that lack something: room on the disk, memory, open files, or a clock that only goes forward."""

from collections.abc import Iterator
import functools
import os
import pathlib
import random
import resource
import subprocess
import time

from tests.faults import injection
from tests.faults import outcomes
from tests.faults import processes
from tests.faults import runs


class JumpingClock:
  """The time of day jumps by up to a year, back or ahead, each time that it is read."""

  def __init__(self, seed: int):
    self._seed = seed

  def __call__(self, workdir: pathlib.Path) -> None:
    del workdir
    rng, true_time = random.Random(self._seed), time.time
    time.time = lambda: true_time() + rng.choice([0.0, 1.0, -1.0]) * rng.uniform(0.0, 365 * 86_400.0)


class Limit:
  """A limit of the operating system on the process."""

  def __init__(self, kind: int, value: int):
    self._kind, self._value = kind, value

  def __call__(self, workdir: pathlib.Path) -> None:
    del workdir
    resource.setrlimit(self._kind, (self._value, resource.getrlimit(self._kind)[1]))


def full_disks(run: outcomes.Run, shares: list[float]) -> Iterator[outcomes.Case]:
  """The disk has room for a share of what a run writes; it is tried twice before, and once after space is freed."""
  if os.geteuid():
    print('disk full: left out, since small file systems can only be mounted by root')
    return
  needed = sum(path.stat().st_size for path in run.reference.rglob('*') if path.is_file())

  def inject(share: float) -> outcomes.Found:
    workdir = run.folder / f'full-{share}'
    with injection.SmallDisk(workdir) as disk:
      disk.leave(int(share * needed))
      codes = [run.finish(workdir) for _ in range(2)]
      output = runs.output(workdir)
      disk.free()
      if not all(codes) or not outcomes.line_with(output, ['No space left on device'], begins='error: '):
        return outcomes.Found(outcomes.Outcome.SILENT, f'exit codes {codes}: {output[-1000:]}')
      if 'Traceback' in output:
        return outcomes.Found(outcomes.Outcome.TRACE, output[-2000:])
      return run.judge(workdir)

  for share in shares:
    yield 'disk full', f'{run.folder.name}-{share}', functools.partial(inject, share)


def jumping_clocks(run: outcomes.Run, times: int) -> Iterator[outcomes.Case]:
  def inject(seed: int) -> outcomes.Found:
    workdir = run.folder / f'clock-{seed}'
    code = run.start(workdir, JumpingClock(seed)).wait(300)
    return run.judge(workdir) if not code else outcomes.Found(outcomes.Outcome.TRACE, runs.output(workdir)[-2000:])

  for seed in range(times):
    yield 'clock jumps', f'{run.folder.name}-{seed}', functools.partial(inject, seed)


def limits(run: outcomes.Run) -> Iterator[outcomes.Case]:
  """Too few open files or too little memory: the process ends in some way, and nothing is lost."""

  def inject(name: str, prelude: processes.Prelude) -> outcomes.Found:
    workdir = run.folder / name
    process = run.start(workdir, prelude)
    try:
      process.wait(300)
    except subprocess.TimeoutExpired:
      process.kill()
      return outcomes.Found(outcomes.Outcome.SILENT, 'It hung.')
    return run.judge(workdir)

  for files in (6, 8, 10, 12, 14, 16, 20, 24, 32):
    name = f'{run.folder.name}-files-{files}'
    yield 'few open files', name, functools.partial(inject, f'files-{files}', Limit(resource.RLIMIT_NOFILE, files))
  for megabytes in (600, 800, 1000, 1200, 1400, 1600, 2000):
    prelude = Limit(resource.RLIMIT_AS, megabytes * 2**20)
    name = f'{run.folder.name}-memory-{megabytes}'
    yield 'little memory', name, functools.partial(inject, f'memory-{megabytes}', prelude)
