"""How an update of the learner grows: time, FLOP and memory against N, B, L, H and the networks' width.

From a small base one number at a time is changed. The programs of a number's values are compiled first and then take
turns, so that they meet the same noise; then they are dropped, since a process may map only so many pieces of machine
code (vm.max_map_count: 17 of these programs were too many).

An update's work has a part that posterior samples share (the model's update, critics) and one that each of them has on
its own (imagination and its gradient), so time against N is a line that doesn't go through 0: growth is below N. Start
states are all B L states of a batch, as in the paper: so imagination grows with B and L, too.

At the paper's size programs are compiled, which tells their memory, and are not run.
"""

from collections.abc import Mapping, Sequence
from concurrent import futures
import dataclasses
import pathlib
import time
from typing import Any

import jax
from matplotlib import figure as mpl_figure
import numpy as np

from benchmarks import learner_pieces
from benchmarks import stand_ins

# From vectors, with networks of one width.
SIZE = stand_ins.Size(
  ('gin/sg6_pointgoal1.gin', 'gin/parts/observe_vector.gin', 'gin/sizes/narrow.gin'), {'vector': (60,)}
)
# What each number is called, and the macro or parameter that it is bound to.
NUMBERS = {
  'N': 'LambdaAgent.num_samples',
  'B': 'LambdaAgent.batch_size',
  'L': 'EpisodeBuffer.sequence_length',
  'H': 'LambdaAgent.horizon',
  'width': 'WIDTH',
}
BASE = {'N': 3, 'B': 8, 'L': 16, 'H': 8, 'width': 128}
SWEEPS = {'N': (1, 2, 3, 5, 7, 10), 'B': (4, 8, 16, 32), 'L': (8, 16, 32), 'H': (4, 8, 16), 'width': (64, 128, 256)}
PAPER_SWEEPS = {'N': (1, 5, 10)}
_COMPILERS = 2  # Programs that are compiled at once: a core each, as compiling hardly uses more.
_COLUMNS = {'seconds': 's', 'cpu_seconds': 'CPU s', 'gflop': 'GFLOP', 'temporary_mb': 'temporary MB'}
_COLORS = ('#2f6fbb', '#e08214', '#1b8a5a')
_LABELS = {'cpu_seconds': 'CPU seconds', 'gflop': 'FLOP', 'temporary_mb': 'temporary memory'}


def measure(
  search_paths: Sequence[str],
  size: stand_ins.Size = SIZE,
  base: Mapping[str, int] | None = None,
  sweeps: Mapping[str, Sequence[int]] | None = None,
  rounds: int = 5,
) -> dict[str, Any]:
  """Measures updates around a base.

  Args:
    search_paths: Folders where gin files are looked up.
    size: The rest of the learner.
    base: N, B, L, H and width. Default: `BASE`.
    sweeps: Values for some of them. Default: `SWEEPS`.
    rounds: Timed updates of each program, in turns, after one that is not.

  Returns:
    `base`; `sweeps`: for each number, a row for each of its values, with `value`, the medians `seconds` and
    `cpu_seconds`, `gflop` and `temporary_mb`; `exponents`: for each number, the p of the power law value^p that fits
    each figure best.
  """
  base, sweeps = dict(base or BASE), sweeps or SWEEPS
  rows = {name: _measure_sweep(size, base, name, values, search_paths, rounds) for name, values in sweeps.items()}
  return dict(
    base=base,
    rounds=rounds,
    sweeps=rows,
    exponents={name: {column: _exponent(sweep, column) for column in _COLUMNS} for name, sweep in rows.items()},
  )


def measure_memory(
  size: stand_ins.Size, search_paths: Sequence[str], sweeps: Mapping[str, Sequence[int]] | None = None
) -> dict[str, list[dict[str, float]]]:
  """Compiles updates of a size with other numbers. Returns rows like those of `measure`, without times."""
  rows = {}
  for name, values in (sweeps or PAPER_SWEEPS).items():
    sizes = [_changed(size, {name: value}) for value in values]
    rows[name] = [dict(value=value, **program.plan) for value, program in zip(values, _compile(sizes, search_paths))]
  return rows


def table(result: dict[str, Any]) -> tuple[str, list[str], list[list[str]]]:
  """Title, headings and rows for the figures of `measure`, and of `measure_memory` under 'paper'."""
  rows = []
  for name, sweep in result['sweeps'].items():
    rows += [[f'{name} = {row["value"]}', *(f'{row[column]:.3g}' for column in _COLUMNS)] for row in sweep]
    rows.append([f'grows as {name}^p, p =', *(f'{result["exponents"][name][column]:.2f}' for column in _COLUMNS)])
  for name, sweep in result.get('paper', {}).items():
    rows += [
      [f"paper's size, vectors, {name} = {row['value']}", '', '', f'{row["gflop"]:.0f}', f'{row["temporary_mb"]:.0f}']
      for row in sweep
    ]
  base = ', '.join(f'{name} = {value}' for name, value in result['base'].items())
  return f'An update of the learner around {base}', ['changed', *_COLUMNS.values()], rows


def to_markdown(result: dict[str, Any]) -> str:
  """The table of `table` in Markdown."""
  title, headings, rows = table(result)
  lines = [headings, ['---'] * len(headings), *rows]
  return '\n'.join([title, '', *(f'| {" | ".join(line)} |' for line in lines), ''])


def draw(result: dict[str, Any]) -> mpl_figure.Figure:
  """A panel for each number: figures relative to those at its first value, on logarithmic axes, and a linear growth."""
  figure = mpl_figure.Figure(figsize=(3.2 * len(result['sweeps']), 3.4), layout='constrained')
  panels = np.atleast_1d(figure.subplots(1, len(result['sweeps']), sharey=True))
  for panel, (name, sweep) in zip(panels, result['sweeps'].items()):
    values = np.array([row['value'] for row in sweep])
    panel.plot(values, values / values[0], color='#999999', linestyle=':', label='linear')
    for color, (column, label) in zip(_COLORS, _LABELS.items()):
      figures = np.array([row[column] for row in sweep])
      panel.plot(values, figures / figures[0], color=color, marker='o', markersize=3, label=label)
    panel.set_xscale('log', base=2)
    panel.set_yscale('log', base=2)
    panel.set_xticks(values, [str(value) for value in values])
    panel.minorticks_off()
    panel.set_xlabel(name)
    panel.grid(color='#e6e6e6')
  panels[0].set_ylabel('times that at the first value')
  panels[0].legend(fontsize='small')
  figure.suptitle(table(result)[0])
  return figure


def write(result: dict[str, Any], folder: pathlib.Path) -> None:
  """Writes scaling.md and scaling.png."""
  folder.mkdir(parents=True, exist_ok=True)
  (folder / 'scaling.md').write_text(to_markdown(result), encoding='utf-8')
  draw(result).savefig(folder / 'scaling.png', dpi=100)


class _Program:
  """A compiled update with its state and batch, and what it took so far."""

  def __init__(self, subject: learner_pieces.Subject, compiled: Any):
    self._state, self._batch = subject.state, subject.batch
    self._update = compiled
    self._times: list[tuple[float, float]] = []
    self.plan = dict(gflop=subject.flop / 1e9, temporary_mb=compiled.memory_analysis().temp_size_in_bytes / 1e6)

  def run(self) -> None:
    begin, cpu_begin = time.perf_counter(), time.process_time()
    self._state, _ = jax.block_until_ready(self._update(self._state, self._batch))
    self._times.append((time.perf_counter() - begin, time.process_time() - cpu_begin))

  def figures(self) -> dict[str, float]:
    """The first run doesn't count."""
    seconds, cpu_seconds = np.median(self._times[1:], axis=0)
    return dict(seconds=float(seconds), cpu_seconds=float(cpu_seconds), **self.plan)


def _changed(size: stand_ins.Size, numbers: Mapping[str, int]) -> stand_ins.Size:
  """A size with other numbers."""
  bindings = (f'{NUMBERS[name]} = {value}' for name, value in numbers.items())
  return dataclasses.replace(size, bindings=(*size.bindings, *bindings))


def _compile(sizes: Sequence[stand_ins.Size], search_paths: Sequence[str]) -> list[_Program]:
  with futures.ThreadPoolExecutor(_COMPILERS) as executor:
    pending = []
    for size in sizes:  # Made one after the other: gin has one configuration for all threads.
      subject = learner_pieces.make_subject(size, search_paths)
      lowered = subject.update.lower(subject.state, subject.batch)
      pending.append((subject, executor.submit(lowered.compile)))
    return [_Program(subject, compiled.result()) for subject, compiled in pending]


def _measure_sweep(
  size: stand_ins.Size,
  base: Mapping[str, int],
  name: str,
  values: Sequence[int],
  search_paths: Sequence[str],
  rounds: int,
) -> list[dict[str, float]]:
  """A row for each value of one number."""
  programs = _compile([_changed(size, {**base, name: value}) for value in values], search_paths)
  for _ in range(rounds + 1):
    for program in programs:
      program.run()
  return [dict(value=value, **program.figures()) for value, program in zip(values, programs)]


def _exponent(sweep: Sequence[Mapping[str, float]], column: str) -> float:
  values, figures = (np.log([row[key] for row in sweep]) for key in ('value', column))
  return float(np.polyfit(values, figures, 1)[0])
