"""What becomes of a run that was hurt: there are three good ends, and two that must not be."""

from collections.abc import Callable, Sequence
import enum
import pathlib
import re
import shutil
import signal
from typing import NamedTuple

from tests.faults import injection
from tests.faults import processes
from tests.faults import runs

_SECONDS = 600.0  # Longer than any run takes: what takes longer hangs.
TRACE = 'Traceback (most recent call last)'


class Outcome(enum.Enum):
  """What a user finds after a fault, when the same command has been given again."""

  EXACT = 'exact'  # Everything is as in a run that nobody hurt, to the bit.
  REPAIRED = 'repaired and told'  # The same, and a message names the file.
  REFUSED = 'refused with the name'  # One line names the file or the cause, and nothing on disk has changed.
  SILENT = 'silent damage'  # Something else came out, or it was not told.
  TRACE = 'stack trace'

  @property
  def is_good(self) -> bool:
    return self not in (Outcome.SILENT, Outcome.TRACE)


class Found(NamedTuple):
  """What became of one fault."""

  outcome: Outcome
  message: str = ''


class Run:
  """A small run that is hurt, and the one that nobody hurt, to compare it with.

  Args:
    folder: For all workdirs of this kind of run.
    arguments: Of `lambda-kit run`, without the workdir.
  """

  def __init__(self, folder: pathlib.Path, arguments: Sequence[str]):
    self.folder = folder
    self.arguments = tuple(arguments)
    folder.mkdir(parents=True, exist_ok=True)
    self.reference = folder / 'reference'
    self.finish(self.reference)
    self.size = runs.log_size(self.reference)

  def start(self, workdir: pathlib.Path, prelude: processes.Prelude | None = None) -> processes.Process:
    return processes.start('run', workdir, (*self.arguments, f'--workdir={workdir}'), prelude)

  def finish(self, workdir: pathlib.Path) -> int:
    return self.start(workdir).wait(_SECONDS)

  def stop(self, name: str, share: float) -> pathlib.Path:
    """A new run, killed when a share of it is done, and beyond its newest checkpoint."""
    workdir = self.folder / name
    moment = injection.at_log_size(workdir, int(share * self.size))
    process = self.start(workdir)
    assert injection.strike(process, signal.SIGKILL, moment) == -signal.SIGKILL, runs.output(workdir)
    return workdir

  def copy(self, workdir: pathlib.Path, name: str) -> pathlib.Path:
    return shutil.copytree(workdir, self.folder / name, symlinks=True)

  def judge(self, workdir: pathlib.Path, *named: str) -> Found:
    """Gives the command again, and compares what comes of it.

    Args:
      workdir: Of a run that was hurt.
      named: What a message has to contain, any of these; nothing has to be told without them.
    """
    said = len(runs.output(workdir)) if pathlib.Path(f'{workdir}.out').exists() else 0
    before = injection.contents(workdir)
    code = self.finish(workdir)
    output = runs.output(workdir)[said:]
    told = line_with(output, named)
    if TRACE in output:
      return Found(Outcome.TRACE, output[-2000:])
    if code:
      refused = line_with(output, named, begins='error: ')
      if not refused:
        return Found(Outcome.SILENT, f'Ended with {code}: {output[-1000:]}')
      if injection.contents(workdir) != before:
        return Found(Outcome.SILENT, f'Refused, but files have changed: {refused}')
      return Found(Outcome.REFUSED, refused)
    try:
      runs.assert_same_outcome(workdir, self.reference)
    except Exception as error:
      return Found(Outcome.SILENT, f'{type(error).__name__}: {str(error)[-1000:]}. Told: {told}')
    return Found(Outcome.REPAIRED, told) if told else Found(Outcome.EXACT)


def line_with(output: str, texts: Sequence[str], begins: str = '') -> str:
  """The last line that has any of some texts, without the time and place that logs begin with."""
  lines = [re.sub(r'^[IWEF]\d{4} .*?\] ', '', line) for line in output.splitlines()]
  lines = [line for line in lines if line.startswith(begins) and any(text in line for text in texts)]
  return lines[-1] if lines else ''


Case = tuple[str, str, Callable[[], Found]]  # The family of a fault, its name, and what injects it.
