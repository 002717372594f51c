"""What a run meets that is not its own: environments that fail, a second process, and readers of its files."""

from collections.abc import Iterator
import functools
import importlib
import os
import pathlib
import random
import shutil
import signal
import time

from tests.faults import damages
from tests.faults import injection
from tests.faults import outcomes
from tests.faults import processes
from tests.faults import runs

_FAULTY = (
  '--gin_file=gin/tasks/grid.gin',
  '--gin_file=gin/agents/random.gin',
  *(
    f'--gin_bindings={binding}'
    for binding in (
      'make_environment.simulator = @FaultyGrid',
      'ENVIRONMENT_STEPS = 800',
      'experiment.evaluate_every = 200',
      'experiment.evaluation_episodes = 3',
      'experiment.with_video = False',
      'experiment.checkpoint_steps = 100',
      'experiment.max_failed_episodes = 1_000',
    )
  ),
)


def _import_faulty_grid(workdir: pathlib.Path) -> None:
  """Lets gin know it. Workers import it when they are given it."""
  del workdir
  importlib.import_module('tests.fakes.faulty_grid')


def faulty_environments(folder: pathlib.Path, times: int) -> Iterator[outcomes.Case]:
  """Some episodes of training and evaluation fail: the run goes on to its end, and is the same if it is killed, too."""

  def inject(name: str, fault: str, seed: int) -> outcomes.Found:
    arguments = [*_FAULTY, f'--gin_bindings=FaultyGrid.fault = "{fault}"', f'--seed={seed}']
    if fault in ('hangs', 'dies'):
      arguments += ['--parts=isolated', '--gin_bindings=IsolatedEnvironment.step_timeout = 0.5']
    undisturbed, killed = (folder / f'{name}{suffix}' for suffix in ('', '-killed'))
    start = lambda workdir: processes.start('run', workdir, (*arguments, f'--workdir={workdir}'), _import_faulty_grid)
    codes = [start(undisturbed).wait(300)]
    share = random.Random(seed).uniform(0.1, 0.8)
    moment = injection.at_log_size(killed, int(share * runs.log_size(undisturbed)))
    injection.strike(start(killed), signal.SIGKILL, moment)
    codes.append(start(killed).wait(300))
    output = runs.output(undisturbed) + runs.output(killed)
    if outcomes.TRACE in output:
      return outcomes.Found(outcomes.Outcome.TRACE, output[-2000:])
    told = outcomes.line_with(output, ['given up', 'is lost', 'failed'])
    if any(codes) or not told:
      return outcomes.Found(outcomes.Outcome.SILENT, f'exit codes {codes}: {output[-1000:]}')
    try:
      runs.assert_same_outcome(killed, undisturbed)
    except Exception as error:
      return outcomes.Found(outcomes.Outcome.SILENT, f'{type(error).__name__}: {str(error)[-1000:]}')
    return outcomes.Found(outcomes.Outcome.REPAIRED, told)

  for fault in ('raises', 'returns NaN', 'hangs', 'dies'):
    for seed in range(times):
      name = f'{fault}-{seed}'.replace(' ', '-')
      yield f'environment {fault}', name, functools.partial(inject, name, fault, seed)


def two_writers(run: outcomes.Run, times: int, seed: int) -> Iterator[outcomes.Case]:
  """The lock is deleted while a run goes on, and the same command is given once more: one of them stops and says so."""

  def inject(number: int) -> outcomes.Found:
    workdir = run.folder / f'twice-{number}'
    first = run.start(workdir)
    moment = injection.at_log_size(workdir, int(random.Random(f'{seed}-{number}').uniform(0.05, 0.6) * run.size))
    while not moment() and first.poll() is None:
      time.sleep(0.001)
    (workdir / '.lock').unlink(missing_ok=True)
    second = run.start(workdir)
    codes = first.wait(300), second.wait(300)
    output = runs.output(workdir)
    if outcomes.TRACE in output:
      return outcomes.Found(outcomes.Outcome.TRACE, output[-2000:])
    if all(codes):
      return outcomes.Found(outcomes.Outcome.SILENT, f'Both stopped, {codes}: {output[-1000:]}')
    found = run.judge(workdir)
    told = outcomes.line_with(output, [str(workdir)], begins='error: ')
    if found.outcome.is_good and codes[0]:
      return outcomes.Found(outcomes.Outcome.REFUSED, told) if told else outcomes.Found(outcomes.Outcome.SILENT, output)
    return found

  for number in range(times):
    yield 'two writers', f'{run.folder.name}-{number}', functools.partial(inject, number)


def damaged_for_reports(run: outcomes.Run, other: pathlib.Path, tries: int, seed: int) -> Iterator[outcomes.Case]:
  """A report about a good run and a damaged one: it is written, has the good one, and names what is wrong."""

  def inject(file: pathlib.Path, name: str, number: int) -> outcomes.Found:
    folder = run.folder / f'report-{number}'
    for workdir, original in (('good', run.reference), ('damaged', other)):
      shutil.copytree(original, folder / workdir)
    path = folder / 'damaged' / file
    if name in _STRANGE:
      path.unlink()
      _STRANGE[name](path)
    else:
      damages.DAMAGES[name](path, random.Random(f'{seed}-{number}'), run.reference / file)
    out = folder.with_name(f'{folder.name}-out')
    code = processes.start('report', folder, (f'--runs={folder}', f'--out={out}')).wait(300)
    output = runs.output(folder)
    if outcomes.TRACE in output:
      return outcomes.Found(outcomes.Outcome.TRACE, output[-2000:])
    if code or 'good' not in (out / 'tables' / 'runs.md').read_text() + (out / 'scores.json').read_text():
      return outcomes.Found(outcomes.Outcome.SILENT, f'exit code {code}: {output[-1000:]}')
    told = (out / 'problems.json').read_text()
    is_told = 'damaged' in told
    return outcomes.Found(outcomes.Outcome.REPAIRED if is_told else outcomes.Outcome.EXACT, told[-300:] * is_told)

  number = 0
  for file in [
    path.relative_to(other) for path in sorted(other.iterdir()) if path.suffix in ('.jsonl', '.json', '.gin')
  ]:
    for name in (*damages.DAMAGES, *_STRANGE):
      for _ in range(tries if name in damages.AT_RANDOM else 1):
        yield f'report: {name}', f'{run.folder.name}-{file}-{number}', functools.partial(inject, file, name, number)
        number += 1


def _sparse(path: pathlib.Path) -> None:
  with open(path, 'wb') as file:
    file.truncate(1 << 40)


_STRANGE = {
  'a FIFO': os.mkfifo,
  'a link to /dev/zero': lambda path: path.symlink_to('/dev/zero'),
  'a folder': os.mkdir,
  'a terabyte of zeros': _sparse,
  'nested a million times': lambda path: path.write_text('[' * 1_000_000),
}
