"""What workdirs reveal to a sweep: whether a run is finished, its progress, and the cause of its end."""

from collections.abc import Iterable
import os
import pathlib
import re
import signal

from lambda_kit import reading
from lambda_kit.analysis import rows as rows_lib
from lambda_kit.analysis import run_record
from lambda_kit.config import configuration
from lambda_kit.sweeps import errors
from lambda_kit.sweeps import grid

ATTEMPT = '=== attempt '  # Starts the line that precedes an attempt's output.

_MAX_CONFIG = 1 << 20  # Bytes.
_TAIL = 1 << 16  # Bytes, longer than a row or a stack trace.
_ERROR = re.compile(r'(error: |fatal|(\w+\.)*\w*(Error|Exception|Missing|Diverged|Failure)\b)', re.IGNORECASE)


def is_finished(workdir: pathlib.Path) -> bool:
  """Whether `lambda-kit run` would find nothing left to do: all steps are evaluated, saved and filmed."""
  return run_record.is_finished(workdir)


def what_is_missing(workdir: pathlib.Path) -> str:
  """Says why a workdir doesn't hold a finished run, which `is_finished` says."""
  try:
    run_record.read(workdir)
  except (OSError, run_record.RecordError) as error:
    return str(error)
  return f'{run_record.NAME} says that it is not finished'


def steps_done(workdir: pathlib.Path) -> int:
  """Returns the environment steps that a run has logged, 0 if none."""
  return _last_step(workdir / 'episode.jsonl')


def output_size(run: grid.Run) -> int:
  """Returns the size of what attempts have printed so far. An attempt first adds a line to it."""
  try:
    return run.output.stat().st_size
  except OSError:
    return 0


def last_error(output: pathlib.Path, code: int | None) -> str:
  """Returns the line of the last attempt's output that explains best why it ended with this code."""
  killed = f'killed by {signal.Signals(-code).name}' if code is not None and code < 0 else ''
  try:
    text = _tail(output).decode('utf-8', errors='replace').rpartition(ATTEMPT)[-1].partition('\n')[2]
  except (OSError, reading.RefusedError):
    text = ''
  lines = [line.strip() for line in text.splitlines() if line.strip()]
  causes = [line for line in lines if _ERROR.match(line)]
  # A killed run could not print the cause.
  return killed or (causes or lines or [f'ended with code {code}, without any output'])[-1]


def check_configurations(runs: Iterable[grid.Run], root: pathlib.Path) -> list[str]:
  """Refuses what runs would refuse, before anything is started.

  Args:
    runs: Runs of a sweep.
    root: The folder that holds `gin/`.

  Returns:
    The different configurations as text.

  Raises:
    ConfigurationError: Layers or bindings don't fit together.
    SweepError: A workdir holds a run with another configuration, which could be mistaken for this one.
    RefusedError: The configuration in a workdir is too large.
  """
  resolved: dict[tuple[str, str], str] = {}
  for run in runs:
    if run.configuration not in resolved:
      bindings = [*run.bindings, f'experiment.seed = {run.seed}']
      try:
        configuration.parse(run.gin_files[1:], bindings, search_paths=[str(root)], task=run.gin_files[0])
      except configuration.ConfigurationError as error:
        raise configuration.ConfigurationError(f'{run.variant} on {run.task}: {error}') from error
      resolved[run.configuration] = configuration.resolved_config()
    path = run.workdir / 'config.gin'
    if path.is_file():
      saved = reading.read_bytes(path, _MAX_CONFIG, follow_links=True).decode('utf-8', errors='replace')
      lines = [
        line
        for line in configuration.differing_lines(saved, resolved[run.configuration])
        if 'experiment.seed = ' not in line
      ]
      if lines:
        raise errors.SweepError(
          f'{run.workdir} holds a run with another configuration:\n'
          + '\n'.join(f'  {line}' for line in lines)
          + '\nGive the files and bindings that it was started with, or another --folder for a new sweep.'
        )
  return list(resolved.values())


def _last_step(path: pathlib.Path) -> int:
  """Returns the environment steps of a log's last complete row, 0 if there is none."""
  try:
    lines = _tail(path).splitlines()
  except (OSError, reading.RefusedError):
    return 0
  rows = (rows_lib.parse(line) for line in reversed(lines))  # The last may be torn, or still being written.
  return next((row['environment_steps'] for row in rows if row is not None), 0)


def _tail(path: pathlib.Path) -> bytes:
  with reading.open_regular(path) as file:
    file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
    return file.read(_TAIL)
