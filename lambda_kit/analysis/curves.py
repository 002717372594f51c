"""The learning curve of one run: return, cost return and cost regret against environment steps."""

from collections.abc import Mapping, Sequence
import itertools
import pathlib
from typing import Any

from absl import logging
from matplotlib import artist
from matplotlib import axes as mpl_axes
from matplotlib import figure as mpl_figure
from matplotlib import layout_engine
from matplotlib import lines
from matplotlib import patches
from matplotlib import ticker
import numpy as np

from lambda_kit import files
from lambda_kit.analysis import rows as rows_lib
from lambda_kit.analysis import tables

# One for each constraint. Colour-blind readers can tell them apart, and none is like the red of limits.
_COLORS = ('#2f6fbb', '#e08214', '#1b8a5a', '#8e44ad', '#00838f')
_NEUTRAL_COLOR = '#666666'
_LIMIT_COLOR = '#d62728'
_TEXT_COLOR = '#333333'
_FAINT_COLOR = '#e6e6e6'
_PERCENTILES = (5, 95)
_MEAN_EPISODES = 10

Rows = Sequence[dict[str, Any]]


def learning_curve(
  workdir: pathlib.Path,
  path: pathlib.Path,
  cost_limit: float | Sequence[float],
  constraint_names: Sequence[str] = (),
  title: str = '',
) -> pathlib.Path:
  """Draws the learning curve of a workdir to a PNG, which appears once it is complete. Returns its path.

  Args:
    workdir: Folder that a `JsonlLogger` wrote to.
    path: Where to write.
    cost_limit: One limit for all constraints, or one for each.
    constraint_names: Names of the C costs, shown if there are several.
    title: Title above the panels.
  """
  logs = {kind: workdir / f'{kind}.jsonl' for kind in ('episode', 'evaluation')}
  rows = {kind: _read(log, len(constraint_names)) for kind, log in logs.items() if log.exists()}
  figure = make_figure(rows, cost_limit, constraint_names, title)
  with files.replacing(path) as partial:
    figure.savefig(partial, format='png')
  return path


def make_figure(
  rows: Mapping[str, Rows], cost_limit: float | Sequence[float], constraint_names: Sequence[str] = (), title: str = ''
) -> mpl_figure.Figure:
  """Returns a figure of rows by kind ('episode', 'evaluation'), with panels for return, cost return and cost regret.

  Evaluations are a line through their means, in a band from the 5th to the 95th percentile over evaluation episodes.
  Training episodes are faint dots and their running mean a thin line. Either may be missing.
  """
  episodes, evaluations = (
    sorted(rows.get(kind, ()), key=lambda row: row['environment_steps']) for kind in ('episode', 'evaluation')
  )
  everything = sorted([*episodes, *evaluations], key=lambda row: row['environment_steps'])
  count = np.size(everything[0]['cost_return']) if everything else np.size(cost_limit)
  # Not pyplot: its registry of figures is global, and it chooses a back end for the whole process.
  layout = layout_engine.ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
  figure = mpl_figure.Figure(figsize=(12, 3.9), layout=layout, dpi=150)
  return_axes, cost_axes, regret_axes = figure.subplots(1, 3)

  colors = list(itertools.islice(itertools.cycle(_COLORS), count))
  # With several constraints, the return's colour must not look like one of theirs.
  main_color = colors[0] if count == 1 else _NEUTRAL_COLOR
  _draw_episodes(return_axes, episodes, 'episode_return', [main_color])
  _draw_evaluations(return_axes, evaluations, 'episode_return', 'episode_returns', [main_color])
  _draw_episodes(cost_axes, episodes, 'cost_return', colors)
  _draw_evaluations(cost_axes, evaluations, 'cost_return', 'cost_returns', colors)
  for limit in sorted(set(tables.cost_limits(cost_limit, count))):
    cost_axes.axhline(limit, color=_LIMIT_COLOR, linewidth=1.5, zorder=4, gid='limit')
    cost_axes.annotate(
      f'{limit:g}',
      (1.0, limit),
      (4, 0),
      xycoords=('axes fraction', 'data'),
      textcoords='offset points',
      va='center',
      color=_LIMIT_COLOR,
      fontsize=9,
    )
  steps, regret = _columns(everything, 'cost_regret')
  for values, color in zip(regret.T, [main_color] if regret.shape[1] == 1 else colors):
    regret_axes.plot(steps, values, color=color, linewidth=1.8, marker='o' if len(steps) == 1 else '')

  last_step = max((row['environment_steps'] for row in everything), default=0)
  for axes, name in ((return_axes, 'Return'), (cost_axes, 'Cost return'), (regret_axes, 'Cost regret')):
    _style(axes, name, last_step)
  return_axes.set_ylabel('reward per episode')
  cost_axes.set_ylabel('cost per episode')
  regret_axes.set_ylabel('mean cost per training step')
  for axes in (cost_axes, regret_axes):  # Costs aren't negative.
    axes.set_ylim(bottom=0.0)
  _add_legend(
    figure,
    bool(episodes),
    bool(evaluations),
    main_color,
    dict(zip(tables.cost_labels(constraint_names, count), colors)),
  )
  if title:
    figure.suptitle(title, color=_TEXT_COLOR, fontsize=13, fontweight='bold')
  return figure


def _read(log: pathlib.Path, num_constraints: int) -> Rows:
  """Returns the rows of a log that can be drawn. Others are told: a damaged row must not end a run."""
  rows = rows_lib.read_jsonl(log)
  sizes = [_num_costs(row) for row in rows]
  count = num_constraints or next((size for size in sizes if size), 0)
  if num_bad := sum(size != count for size in sizes):
    logging.warning(
      '%s: %d of %d rows have no numbers to draw, and are left out of the curve.', log, num_bad, len(rows)
    )
  return [row for row, size in zip(rows, sizes, strict=True) if size == count]


def _num_costs(row: dict[str, Any]) -> int | None:
  """Returns C of a row; None if numbers are missing, of another kind, or don't fit together."""
  try:
    shape = tables.as_floats(row['cost_return']).shape
    fits = tables.as_floats(row['episode_return']).shape == (1,)
    fits &= row.get('cost_regret') is None or tables.as_floats(row['cost_regret']).shape == shape
    if row.get('episode_returns') or row.get('cost_returns'):
      num_episodes = len(row['episode_returns'])
      fits &= np.shape(np.asarray(row['episode_returns'], np.float64)) == (num_episodes,)
      fits &= np.shape(np.asarray(row['cost_returns'], np.float64)) == (num_episodes, *shape)
  except (KeyError, TypeError, ValueError, OverflowError):
    return None
  return shape[0] if fits and len(shape) == 1 else None


def _columns(rows: Rows, name: str) -> tuple[np.ndarray, np.ndarray]:
  """Environment steps [R] and values [R, C] of the rows that have them."""
  rows = [row for row in rows if row.get(name) is not None]
  steps = np.array([row['environment_steps'] for row in rows], np.float64)
  values = np.array([tables.as_floats(row[name]) for row in rows], np.float64)
  return steps, values.reshape(len(rows), -1 if rows else 0)


def _draw_episodes(axes: mpl_axes.Axes, rows: Rows, name: str, colors: Sequence[str]) -> None:
  steps, values = _columns(rows, name)
  alpha = np.clip(60 / max(len(steps), 1), 0.15, 0.5)  # Thousands of dots would hide the line.
  for column, color in zip(values.T, colors):
    axes.plot(
      steps,
      column,
      linestyle='',
      marker='o',
      markersize=2.5 if len(steps) > 100 else 4,
      markeredgewidth=0,
      color=color,
      alpha=alpha,
    )
    if len(steps) >= _MEAN_EPISODES:
      means = np.convolve(column, np.full(_MEAN_EPISODES, 1 / _MEAN_EPISODES), mode='valid')
      axes.plot(steps[_MEAN_EPISODES - 1 :], means, color=color, alpha=0.45, linewidth=0.9)


def _draw_evaluations(
  axes: mpl_axes.Axes, rows: Rows, mean_name: str, episodes_name: str, colors: Sequence[str]
) -> None:
  steps, means = _columns(rows, mean_name)
  for i, (column, color) in enumerate(zip(means.T, colors)):
    axes.plot(
      steps,
      column,
      color=color,
      linewidth=2.0,
      marker='o',
      markersize=4.5,
      markeredgecolor='white',
      markeredgewidth=0.8,
      zorder=5,
    )
    with_episodes = [row for row in rows if row.get(episodes_name)]
    if with_episodes:
      bands = [np.percentile(_episodes(row[episodes_name])[:, i], _PERCENTILES) for row in with_episodes]
      low, high = np.transpose(bands)
      band_steps = [row['environment_steps'] for row in with_episodes]
      axes.fill_between(band_steps, low, high, color=color, alpha=0.18, linewidth=0, zorder=3)
      if len(band_steps) == 1:  # The band has no width.
        axes.vlines(band_steps, low, high, color=color, alpha=0.4, linewidth=3, zorder=3)


def _episodes(values: Any) -> np.ndarray:
  """Values of single episodes, [E] or [E, C], as [E, C]."""
  values = np.asarray(values, np.float64)
  return values[:, np.newaxis] if values.ndim == 1 else values


def _style(axes: mpl_axes.Axes, name: str, last_step: int) -> None:
  axes.set_title(name, loc='left', color=_TEXT_COLOR, fontsize=11, fontweight='bold')
  axes.set_xlabel('environment steps', color=_TEXT_COLOR)
  axes.set_xlim(0, 1.02 * last_step or 1)
  axes.xaxis.set_major_locator(ticker.MaxNLocator(6, integer=True, steps=[1, 2, 2.5, 5, 10]))
  axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=''))  # 250k, 1M.
  axes.yaxis.label.set_color(_TEXT_COLOR)
  axes.grid(color=_FAINT_COLOR, linewidth=0.8)
  axes.set_axisbelow(True)
  axes.spines[['top', 'right']].set_visible(False)
  axes.spines[['left', 'bottom']].set_color('#b0b0b0')
  axes.tick_params(color='#b0b0b0', labelcolor=_TEXT_COLOR, labelsize=9)
  if not axes.has_data():
    axes.text(0.5, 0.5, 'no data yet', transform=axes.transAxes, ha='center', color='#999999')


def _add_legend(
  figure: mpl_figure.Figure,
  has_episodes: bool,
  has_evaluations: bool,
  main_color: str,
  constraint_colors: Mapping[str, str],
) -> None:
  handles: list[artist.Artist] = []
  if has_evaluations:
    handles.append(
      lines.Line2D([], [], color=main_color, linewidth=2.0, marker='o', markersize=4.5, label='evaluation, mean')
    )
    handles.append(
      patches.Patch(
        color=main_color, alpha=0.18, linewidth=0, label=f'evaluation episodes, {_PERCENTILES[0]}-{_PERCENTILES[1]}%'
      )
    )
  if has_episodes:
    handles.append(
      lines.Line2D(
        [],
        [],
        color=main_color,
        alpha=0.45,
        linewidth=0.9,
        marker='o',
        markersize=3,
        markeredgewidth=0,
        label=f'training episodes, running mean of {_MEAN_EPISODES}',
      )
    )
  handles.append(lines.Line2D([], [], color=_LIMIT_COLOR, linewidth=1.5, label='cost limit'))
  if len(constraint_colors) > 1:
    handles += [patches.Patch(color=color, label=label) for label, color in constraint_colors.items()]
  figure.legend(
    handles=handles,
    loc='outside lower center',
    ncols=min(len(handles), 6),
    frameon=False,
    fontsize=9,
    labelcolor=_TEXT_COLOR,
  )
