"""Progress of a run: a live view on a terminal, single lines everywhere else."""

import atexit
import collections
from collections.abc import Callable, Iterable, Sequence
import contextlib
import datetime
import logging as python_logging
import sys
import time
from typing import Any, TextIO

from absl import logging
import numpy as np
from rich import console as rich_console
from rich import live as rich_live
from rich import panel
from rich import progress as rich_progress
from rich import table as rich_table
from rich import text

from lambda_kit import core
from lambda_kit.analysis import held_out
from lambda_kit.analysis import tables

_MEAN_EPISODES = 10
_PROGRESS_SECONDS = 0.5  # Between two updates of the progress; calls in between only read the clock.
# Acting and learning take turns, and a short window would see only one of them.
_SPEED_SECONDS = 600.0


class TerminalLogger(core.Logger):
  """Shows progress, speed, returns and costs against their limits, and how well costs of new episodes were forecast.

  On a terminal this is a live view, with prints and log messages scrolling above it. A pipe or a file gets plain lines:
  at most one every `interval` seconds for episodes, and one for every evaluation.

  Only `close` (or the end of the process) releases the terminal: call it in a `finally`.
  """

  def __init__(
    self,
    total_environment_steps: int,
    cost_limit: float | Sequence[float],
    title: str,
    stream: TextIO | None = None,
    constraint_names: Sequence[str] = (),
    interval: float = 10.0,
    clock: Callable[[], float] = time.monotonic,
  ):
    """Starts to show the run.

    Args:
      total_environment_steps: Environment steps at which the run ends.
      cost_limit: One limit for all constraints, or one for each.
      title: Name of the run.
      stream: Where to show it; by default the standard output.
      constraint_names: Names of the C costs, shown if there are several.
      interval: Seconds between two lines for episodes if there is no terminal.
      clock: Returns the time in seconds.
    """
    self._cost_limit = cost_limit
    self._title = title
    self._constraint_names = constraint_names
    self._interval = interval
    self._clock = clock
    self._stream = sys.stdout if stream is None else stream
    self._next_progress = -np.inf
    self._next_line = -np.inf
    self._watched = True
    self._pending_line: str | None = None  # Of the last episode, if it has not been printed.
    self._episodes: collections.deque[dict[str, Any]] = collections.deque(maxlen=_MEAN_EPISODES)
    self._evaluation: dict[str, Any] | None = None
    self._calibration: list[str] = []  # Lines about the newest scores of new episodes, one for each constraint.
    self._stack = contextlib.ExitStack()  # Undoes the live view's changes to the process.

    console = rich_console.Console(file=self._stream)
    self._progress = rich_progress.Progress(
      rich_progress.BarColumn(bar_width=None),
      rich_progress.TaskProgressColumn('{task.percentage:>5.1f}%'),
      rich_progress.TimeElapsedColumn(),
      'elapsed',
      rich_progress.TimeRemainingColumn(),
      'left',
      console=console,
      expand=True,
      get_time=clock,
      speed_estimate_period=_SPEED_SECONDS,
    )
    self._progress.add_task('', start=False, total=total_environment_steps)
    (self._task,) = self._progress.tasks
    self._table = self._make_table()
    # Rich alone would draw into pipes if the environment asks for colours (FORCE_COLOR, common in CI).
    self._is_live = self._stream.isatty() and console.is_interactive
    if self._is_live:
      self._start_live(console)
    else:
      self._print(
        f'{title}: {total_environment_steps:,} environment steps, cost limit '
        f'{", ".join(f"{limit:g}" for limit in tables.as_floats(cost_limit))}'
      )

  def progress(self, environment_steps: int) -> None:
    """Updates the progress. Cheap enough for every step."""
    now = self._clock()
    if now >= self._next_progress:
      self._next_progress = now + _PROGRESS_SECONDS
      self._advance(environment_steps)

  def write(self, kind: str, row: dict[str, Any]) -> None:
    self._advance(int(row['environment_steps']))
    if kind == 'episode':
      self._episodes.append(row)
    elif kind == 'evaluation':
      self._evaluation = row
    elif kind == 'learner':
      self._calibration = self._describe_held_out(row)
    else:
      return
    if self._is_live:
      self._table = self._make_table()
    elif kind == 'evaluation':
      self._pending_line = None  # It is older than the evaluation.
      self._print(self._line('evaluation', row, ()))
      for line in self._calibration:
        self._print(line)
    elif kind == 'episode':
      line = self._line(f'episode {row.get("episode", "")}'.rstrip(), row, self._episodes)
      if self._clock() >= self._next_line:
        self._next_line = self._clock() + self._interval
        self._pending_line = None
        self._print(line)
      else:
        self._pending_line = line

  def close(self) -> None:
    """Leaves the last state on the screen, and releases the terminal."""
    atexit.unregister(self.close)
    if self._pending_line:
      self._print(self._pending_line)
      self._pending_line = None
    # A terminal that went away can't be restored.
    with contextlib.suppress(OSError):
      self._stack.close()

  def _start_live(self, console: rich_console.Console) -> None:
    stdout, stderr = sys.stdout, sys.stderr
    # A stream that the user redirected to a file must not be drawn above the view.
    live = rich_live.Live(
      console=console,
      get_renderable=self._render,
      refresh_per_second=2,
      redirect_stdout=stdout.isatty(),
      redirect_stderr=stderr.isatty(),
    )
    live.start(refresh=True)
    self._stack.callback(live.stop)
    atexit.register(self.close)
    # Log handlers keep the stream that they started with, and would write across the view.
    for handler in [logging.get_absl_handler().python_handler, *python_logging.getLogger().handlers]:
      for old, new in ((stdout, sys.stdout), (stderr, sys.stderr)):
        if new is not old and isinstance(handler, python_logging.StreamHandler) and handler.stream is old:
          handler.setStream(new)
          self._stack.callback(handler.setStream, old)

  def _advance(self, environment_steps: int) -> None:
    if not self._task.started:
      # The first call says where this process starts, which is not 0 in a resumed run.
      self._progress.reset(self._task.id, completed=environment_steps)
    elif environment_steps > self._task.completed:
      self._progress.update(self._task.id, completed=environment_steps)

  def _speed(self) -> str:
    return f'{self._task.speed:.0f} steps/s' if self._task.speed else ''

  def _steps(self) -> str:
    return f'{int(self._task.completed):,} of {self._task.total:,}'

  def _render(self) -> rich_console.RenderableType:
    # Called by the thread that refreshes the view: reads what `write` has prepared, and nothing that it mutates.
    status = '  '.join(filter(None, [f'{self._steps()} environment steps', self._speed()]))
    group = rich_console.Group(self._progress, text.Text(status, 'dim'), '', self._table)
    return panel.Panel(
      group,
      title=text.Text(self._title, 'bold'),
      border_style='blue',
      padding=(0, 1),
      width=min(self._progress.console.width, 100),
    )

  def _make_table(self) -> rich_console.RenderableType:
    columns = {}
    if self._episodes:
      columns['last episode'] = _means([self._episodes[-1]])
      columns[f'mean of last {len(self._episodes)}'] = _means(self._episodes)
    if self._evaluation:
      columns[f'evaluation at {self._evaluation["environment_steps"]:,}'] = _means([self._evaluation])
    if not columns:
      return text.Text('No episode has ended yet.', 'dim')
    table = rich_table.Table.grid(padding=(0, 3), pad_edge=False)
    for index in range(len(columns) + 2):
      table.add_column(justify='right' if index else 'left')
    table.add_row('', *columns, 'limit', style='dim')
    table.add_row('return', *(f'{episode_return:.2f}' for episode_return, _ in columns.values()))
    count = len(next(iter(columns.values()))[1])
    limits = tables.cost_limits(self._cost_limit, count)
    for i, (label, limit) in enumerate(zip(tables.cost_labels(self._constraint_names, count), limits)):
      cells = []
      for _, cost_return in columns.values():
        color = 'green' if tables.within(cost_return[i], limit) else 'red'
        cells.append(text.Text(f'{cost_return[i]:.1f}', f'bold {color}'))
      table.add_row(label, *cells, f'{limit:g}')
    newest = self._episodes[-1] if self._episodes else self._evaluation
    if newest and (regret := _regret(newest)):
      table.add_row('cost regret', regret)
    return rich_console.Group(table, *(text.Text(line, 'dim') for line in self._calibration))

  def _describe_held_out(self, row: dict[str, Any]) -> list[str]:
    count = max(np.size(self._cost_limit), len(self._constraint_names))
    found = [held_out.summarize(row, i) for i in range(count)]
    label = lambda i: f', {self._constraint_names[i]}' if len(self._constraint_names) > 1 else ''
    return [f'new episodes{label(i)}: {held_out.describe(figures)}' for i, figures in enumerate(found) if figures]

  def _line(self, what: str, row: dict[str, Any], recent: Sequence[dict[str, Any]]) -> str:
    """Describes a row in a line, with means over recent rows of its kind if there are any. ASCII, for any file."""
    episode_return, cost_return = _means([row])
    mean_return, mean_cost_return = _means(recent or [row])
    parts = [f'return {episode_return:.2f}' + (f' (mean {mean_return:.2f})' if recent else '')]
    limits = tables.cost_limits(self._cost_limit, len(cost_return))
    for i, (label, limit) in enumerate(zip(tables.cost_labels(self._constraint_names, len(limits)), limits)):
      sign = '<=' if tables.within(cost_return[i], limit) else '>'
      mean = f' (mean {mean_cost_return[i]:.1f})' if recent else ''
      parts.append(f'{label} {cost_return[i]:.1f} {sign} {limit:g}{mean}')
    if regret := _regret(row):
      parts.append(f'cost regret {regret}')
    if failed := row.get('failed_episodes', 0):
      parts.append(f'{failed} episodes failed')
    if tables.has_failed(row):
      parts = [f'no score, since all {failed} episodes failed']
    left = self._task.time_remaining
    pace = ', '.join(filter(None, [self._speed(), f'{datetime.timedelta(seconds=int(left))} left' if left else '']))
    return ' | '.join(
      filter(None, [f'{self._task.percentage:5.1f}%', f'step {self._steps()}', f'{what}: {", ".join(parts)}', pace])
    )

  def _print(self, line: str) -> None:
    if not self._watched:
      return
    try:
      print(line, file=self._stream, flush=True)
    except OSError as error:  # The reader of a pipe is gone, or the disk is full: no reason to end a run.
      self._watched = False
      logging.warning('Progress is no longer shown: %s', error)


def _means(rows: Iterable[dict[str, Any]]) -> tuple[float, np.ndarray]:
  """Returns the mean return and the mean cost return [C] of rows."""
  returns = [tables.as_floats(row['episode_return']) for row in rows]
  cost_returns = [tables.as_floats(row['cost_return']) for row in rows]
  return float(np.mean(returns)), np.mean(cost_returns, axis=0)


def _regret(row: dict[str, Any]) -> str:
  return ' '.join(f'{value:.4f}' for value in tables.as_floats(row.get('cost_regret')) if not np.isnan(value))
