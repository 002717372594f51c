"""Faults that are really injected into runs, and what became of the runs.

Each function hurts a run in one way, as often as it is told to, lets it go on to its end, and compares the outcome to
the bit with that of a run that nobody hurt.
"""

from collections.abc import Callable, Sequence
import dataclasses
import os
import pathlib
import random
import re
import shutil
import signal
import time
from typing import NamedTuple

from tests.faults import injection
from tests.faults import runs

Damage = Callable[[pathlib.Path, random.Random], None]

_GARBAGE = (b'{"environment_steps": 12', b'\xff\x00rubbish', b'\x00\x00\n[1, 2]\n{"a":\n', b'\n\n')


@dataclasses.dataclass(frozen=True)
class Result:
  """A row of the table."""

  fault: str
  injected: int
  survived: int
  rows_lost: int
  message: str

  @property
  def is_good(self) -> bool:
    return self.survived == self.injected and not self.rows_lost


class Case(NamedTuple):
  """What became of one workdir."""

  survived: bool
  rows_lost: int
  message: str


class Run:
  """A run that will be hurt, and the one that it is compared with.

  Args:
    folder: For all workdirs of this kind of run.
    arguments: Of the launcher.
    reference: Workdir of a finished run with the same arguments. By default it is made.
  """

  def __init__(self, folder: pathlib.Path, arguments: Sequence[str], reference: pathlib.Path | None = None):
    self.folder = folder
    self.arguments = tuple(arguments)
    folder.mkdir(parents=True, exist_ok=True)
    self.reference = reference or folder / 'reference'
    if reference is None:
      runs.finish(self.reference, self.arguments)
    self.size = runs.log_size(self.reference)

  def stop(self, name: str, share: float) -> pathlib.Path:
    """A new run, killed when a share of it is done, and beyond its newest checkpoint."""
    workdir = self.folder / name
    moment = injection.at_log_size(workdir, int(share * self.size))
    assert runs.interrupt(workdir, self.arguments, signal.SIGKILL, moment, poll_seconds=0.001) == -signal.SIGKILL
    return workdir

  def copy(self, workdir: pathlib.Path, name: str) -> pathlib.Path:
    return shutil.copytree(workdir, self.folder / name)

  def check(self, workdir: pathlib.Path) -> Case:
    """Lets a run go on to its end, and compares."""
    return self.compare(workdir, finish=True)

  def compare(self, workdir: pathlib.Path, finish: bool = False) -> Case:
    """Compares a run with the reference, if asked to after it has gone on to its end."""
    message = ''
    try:
      if finish:
        runs.finish(workdir, self.arguments)
      runs.assert_same_outcome(workdir, self.reference)
    except Exception as error:
      message = f'{type(error).__name__}: {str(error)[-2000:] or "the outcome is another one"}'
    return Case(not message, runs.rows_lost(workdir, self.reference), message)


def kills(run: Run, times: int, seed: int = 0) -> Result:
  """SIGKILL at random moments of one run: some in the middle of writes, some before it goes on, others anywhere."""
  rng = random.Random(seed)
  workdir = run.folder / 'killed'
  injected = halves = 0
  for i in range(times):
    done = runs.log_size(workdir)
    share = max(0, run.size - done) / (times - i + 1)  # Leaves something to do for the kills that follow.
    size = done + int(rng.uniform(0.0, 1.5 * share))
    moment = injection.at_log_size(workdir, size)
    if i % 5 == 4:
      moment = injection.first_of(moment, injection.after_seconds(rng.uniform(0.0, 3.0)))
    elif i % 2:  # Half a share later, if no write is seen: the machine may be busy with other things.
      late = injection.at_log_size(workdir, size + int(share / 2))
      moment = injection.first_of(injection.in_write(workdir, size), late)
    before = set(injection.half_written(workdir))  # Of a process that was killed before it cleaned up.
    injected += runs.interrupt(workdir, run.arguments, signal.SIGKILL, moment, poll_seconds=0.0002) == -signal.SIGKILL
    halves += not before.issuperset(injection.half_written(workdir))
  case = run.check(workdir)
  return Result(
    'SIGKILL',
    injected,
    injected * case.survived,
    case.rows_lost,
    case.message or f'{halves} left something half-written',
  )


def signals(run: Run, numbers: Sequence[int], seed: int = 0) -> Result:
  """Signals at random moments of one run, every second time twice in a row. Exit codes say whether to go on later."""
  rng = random.Random(seed)
  workdir = run.folder / 'signalled'
  injected, codes = 0, []
  for i, number in enumerate(numbers):
    done = runs.log_size(workdir)
    size = done + int(rng.uniform(0.0, 2.0 * max(0, run.size - done) / (len(numbers) - i + 1)))
    again_after = rng.uniform(0.0, 0.5) if i % 2 else None
    moment = injection.at_log_size(workdir, size)
    codes.append(runs.interrupt(workdir, run.arguments, number, moment, again_after, poll_seconds=0.001))
    injected += codes[-1] != 0
  case = run.check(workdir)
  expected = [130 if number == signal.SIGINT else 75 for number in numbers]
  if wrong := [pair for pair in zip(codes, expected, strict=True) if pair[0] not in (0, pair[1])]:
    case = case._replace(survived=False, message=f'exit codes, and those expected: {wrong}')
  return Result(
    'signals of schedulers, SIGINT, and two in a row',
    injected,
    injected * case.survived,
    case.rows_lost,
    case.message or _line(workdir, 'Interrupted') or f'exit codes {codes}',
  )


def second_writer(run: Run, share: float) -> Result:
  """The lock's file is deleted while a process is held up, and another one goes on. Then the first one wakes up."""
  workdir = run.folder / 'two-writers'
  moment = injection.at_log_size(workdir, int(share * run.size))
  first = runs.start(workdir, run.arguments)
  try:
    while not moment() and first.poll() is None:
      time.sleep(0.001)
    injection.hold_up(first, workdir)
    (workdir / '.lock').unlink()
    case = run.check(workdir)
    first.send_signal(signal.SIGCONT)
    code = first.wait(timeout=120)
  finally:
    first.kill()
  line = _line(workdir, 'error: ', 'was taken over by process', str(workdir))
  if case.survived:  # The first one has changed nothing after the second one's end either.
    case = run.compare(workdir)
  if code != 1 or not line:
    case = case._replace(survived=False, message=f'exit code {code}: {runs.output(workdir)[-500:]}')
  return _summed_up('lock deleted, second writer', [case._replace(message=case.message or line)])


def damaged_checkpoints(run: Run, stopped: pathlib.Path, files: Sequence[str], damages: Sequence[Damage]) -> Result:
  """Files of the newest checkpoint are damaged, one at a time, each in every way."""
  rng, cases = random.Random(0), []
  for file in files:
    for damage in damages:
      workdir = run.copy(stopped, f'{damage.__name__}-{file}')
      damage(injection.checkpoints(workdir)[0] / file, rng)
      cases.append(_told(run, workdir, 'is damaged and skipped', file))
  return _summed_up('newest checkpoint: a file ' + ', '.join(damage.__name__ for damage in damages), cases)


def one_good_checkpoint(run: Run, stopped: pathlib.Path) -> Result:
  """All checkpoints but the oldest are damaged."""
  workdir = run.copy(stopped, 'one-good')
  *damaged, _ = injection.checkpoints(workdir)
  for checkpoint in damaged:
    injection.flip_bit(checkpoint / 'learner.safetensors', random.Random(0))
  return _summed_up(
    f'all checkpoints but the oldest ({len(damaged)}) damaged',
    [_told(run, workdir, 'is damaged and skipped', 'learner.safetensors')],
  )


def no_good_checkpoint(run: Run, stopped: pathlib.Path) -> Result:
  """All checkpoints are damaged: the run is refused, and everything stays for whoever can repair it."""
  workdir = run.copy(stopped, 'none-good')
  for checkpoint in injection.checkpoints(workdir):
    injection.truncate(checkpoint / 'state.json', random.Random(0))
  return _summed_up('all checkpoints damaged; refused', [_refused(run, workdir, 'No checkpoint in')])


def lost_episodes(
  run: Run, stopped: pathlib.Path, damages: Sequence[Damage] = (injection.truncate, injection.delete)
) -> Result:
  """An episode that only the newest checkpoint needs is damaged or missing: the one before is used."""
  newest, before = (injection.replay_span(checkpoint) for checkpoint in injection.checkpoints(stopped)[:2])
  assert newest[1] > before[1], 'Both checkpoints need the same episodes.'
  file = f'episode-{newest[1] - 1:06d}.npz'
  cases = []
  for damage in damages:
    workdir = run.copy(stopped, f'{damage.__name__}-{file}')
    damage(workdir / 'replay' / file, random.Random(0))
    cases.append(_told(run, workdir, 'is damaged and skipped', file))
  return _summed_up('episode of the newest checkpoint: truncate, delete', cases)


def episodes_lost_to_all(run: Run, stopped: pathlib.Path) -> Result:
  """An episode that all checkpoints need is damaged or missing: the run is refused, and nothing is changed."""
  spans = [injection.replay_span(checkpoint) for checkpoint in injection.checkpoints(stopped)]
  number = min(span[1] for span in spans) - 1
  assert number >= max(span[0] for span in spans), 'No episode is needed by all.'
  file = f'episode-{number:06d}.npz'
  cases = []
  for damage in (injection.truncate, injection.delete):
    workdir = run.copy(stopped, f'all-{damage.__name__}-{file}')
    damage(workdir / 'replay' / file, random.Random(0))
    cases.append(_refused(run, workdir, file))
  return _summed_up('episode that all need: truncate, delete; refused', cases)


def damaged_logs(run: Run, stopped: pathlib.Path) -> Result:
  """The last line of the log of episodes is torn, rubbish follows the rows of all logs, or rows before are damaged."""
  cases = []
  torn = run.copy(stopped, 'torn')
  os.truncate(torn / 'episode.jsonl', runs.log_size(torn) - 17)
  cases.append(_told(run, torn, 'are not rows', 'episode.jsonl'))
  for i, garbage in enumerate(_GARBAGE):
    workdir = run.copy(stopped, f'garbage-{i}')
    for path in workdir.glob('*.jsonl'):
      with open(path, 'ab') as file:
        file.write(garbage)
    cases.append(_told(run, workdir, 'are not rows', 'evaluation.jsonl'))
  for kind in runs.kinds(stopped):
    for damage in (_flip_first_key, injection.halve, injection.delete):
      workdir = run.copy(stopped, f'{damage.__name__}-{kind}')
      damage(workdir / f'{kind}.jsonl', random.Random(0))
      cases.append(_told(run, workdir, 'It is written again', f'{kind}.jsonl'))
  return _summed_up('logs: last line torn, rubbish appended, first row damaged, half or all lost', cases)


def _flip_first_key(path: pathlib.Path, rng: random.Random) -> None:
  del rng
  path.write_bytes(path.read_bytes().replace(b'environment_steps', b'environment_stepr', 1))


def full_disk(run: Run, shares: Sequence[float]) -> Result:
  """The disk has room for a share of what the run writes; the run is tried again before and after space is freed."""
  needed = sum(path.stat().st_size for path in run.reference.rglob('*') if path.is_file())
  cases = []
  for share in shares:
    workdir = run.folder / f'full-{share}'
    try:
      with injection.SmallDisk(workdir) as disk:
        disk.leave(int(share * needed))
        codes = [runs.start(workdir, run.arguments).wait(timeout=300) for _ in range(2)]
        line = _line(workdir, 'error: ', 'No space left on device', str(workdir))
        disk.free()
        case = run.check(workdir)
    except injection.MountError as error:
      return Result('disk full', 0, 0, 0, str(error))
    if not all(codes) or not line:
      case = case._replace(survived=False, message=f'exit codes {codes}: {runs.output(workdir)[-2000:]}')
    cases.append(case._replace(message=case.message or line))
  return _summed_up('disk full', cases)


def _summed_up(fault: str, cases: Sequence[Case]) -> Result:
  """One fault in each case. The message is that of the first one that is lost, or of the first."""
  first = min(cases, key=lambda case: case.survived)
  return Result(
    fault, len(cases), sum(case.survived for case in cases), sum(case.rows_lost for case in cases), first.message
  )


def _told(run: Run, workdir: pathlib.Path, *texts: str) -> Case:
  """A run that must go on to the same outcome, and say why with some texts in one line."""
  case, line = run.check(workdir), _line(workdir, *texts)
  if not line:
    return case._replace(survived=False, message=case.message or f'Nothing was said of {texts}.')
  return case._replace(message=case.message or line)


def _refused(run: Run, workdir: pathlib.Path, *texts: str) -> Case:
  """A run that must end at once with an error, and leave all files as they are."""
  before = injection.contents(workdir)
  code = runs.start(workdir, run.arguments).wait(timeout=300)
  line = _line(workdir, 'error: ', *texts)
  is_unchanged = injection.contents(workdir) == before
  return Case(code != 0 and bool(line) and is_unchanged, rows_lost=0, message=line or runs.output(workdir)[-500:])


def _line(workdir: pathlib.Path, *texts: str) -> str:
  """The last line of the output that has all texts, without the time and place that logs begin with."""
  lines = [line for line in runs.output(workdir).splitlines() if all(text in line for text in texts)]
  return re.sub(r'^[IWEF]\d{4} .*?\] ', '', lines[-1]) if lines else ''
