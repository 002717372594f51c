"""The status of a sweep as a table: live on a terminal, lines and a final table everywhere else."""

import collections
from collections.abc import Sequence
import contextlib
import datetime
import sys
from typing import TextIO

from rich import box
from rich import console as rich_console
from rich import live as rich_live
from rich import table as rich_table
from rich import text

from lambda_kit.sweeps import interfaces
from lambda_kit.sweeps import supervision
from lambda_kit.sweeps import workdirs

State = interfaces.State

_STYLES = {State.QUEUED: 'dim', State.RUNNING: 'cyan', State.DONE: 'green', State.FAILED: 'bold red'}
_MAX_NOTE = 160  # Characters.
_WIDTH = 160  # Of tables without a terminal.


def status_table(statuses: Sequence[supervision.RunStatus]) -> rich_table.Table:
  """Returns a line for each configuration: the number of its seeds in each state, and the causes of failures."""
  table = rich_table.Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=True)
  totals = collections.Counter(status.state for status in statuses)
  table.add_column('task', footer=f'{len(statuses)} runs')
  table.add_column('variant')
  for state in State:
    table.add_column(state.value, str(totals[state]), justify='right', style=_STYLES[state])
  table.add_column('notes', overflow='fold')
  by_configuration = collections.defaultdict(list)
  for status in statuses:
    by_configuration[status.run.configuration].append(status)
  for (task, variant), same in by_configuration.items():
    counts = collections.Counter(status.state for status in same)
    notes = [note for status in same if (note := _note(status))]
    table.add_row(task, variant, *(str(counts[state] or '') for state in State), text.Text('\n'.join(notes)))
  return table


class StatusView:
  """A context manager that shows the runs of a sweep, and leaves their last state on the screen.

  Args:
    statuses: Statuses of all runs, which change meanwhile.
    stream: Where to show them; by default the standard output.
  """

  def __init__(self, statuses: Sequence[supervision.RunStatus], stream: TextIO | None = None):
    self._statuses = statuses
    self._stream = sys.stdout if stream is None else stream
    is_terminal = self._stream.isatty()
    self._console = rich_console.Console(file=self._stream, width=None if is_terminal else _WIDTH)
    self._live = (
      rich_live.Live(console=self._console, get_renderable=lambda: status_table(self._statuses), refresh_per_second=0.5)
      if is_terminal
      else None
    )
    self._stack = contextlib.ExitStack()

  def __enter__(self) -> 'StatusView':
    if self._live:
      self._stack.enter_context(self._live)
    else:
      counts = collections.Counter(status.state for status in self._statuses)
      self._print(f'{len(self._statuses)} runs, {counts[State.DONE]} of them already done.')
    return self

  def __exit__(self, *error) -> None:
    self._stack.close()
    if not self._live:
      self._console.print(status_table(self._statuses))

  def tell(self, status: supervision.RunStatus) -> None:
    """Prints the new state of a run."""
    if not self._live:
      note = f': {status.error}' if status.error and status.state is not State.RUNNING else ''
      tried = f' (attempt {status.attempts} failed)' if status.attempts and status.state is State.QUEUED else ''
      now = datetime.datetime.now().strftime('%H:%M:%S')
      self._print(f'{now} {status.run.name}: {status.state.value}{tried}{note}')

  def _print(self, line: str) -> None:
    print(line, file=self._stream, flush=True)


def _note(status: supervision.RunStatus) -> str:
  if status.error and status.state is not State.DONE:
    tried = '' if status.state is State.FAILED else f' (attempt {status.attempts + 1})'
    return f'seed {status.run.seed}{tried}: {status.error[:_MAX_NOTE]}'
  if status.state is State.RUNNING:
    return f'seed {status.run.seed}: step {workdirs.steps_done(status.run.workdir):,}'
  return ''
