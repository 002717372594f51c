"""What all figures share: colours, axes, bands over seeds, and writing to files."""

from collections.abc import Iterable, Mapping, Sequence
import colorsys
import io
import pathlib

from matplotlib import axes as mpl_axes
from matplotlib import figure as mpl_figure
from matplotlib import rc_context
from matplotlib import ticker
import numpy as np

from lambda_kit import files
from lambda_kit.analysis.metrics import statistics
from lambda_kit.analysis.reports import collection
from lambda_kit.analysis.reports import reference

Colors = Mapping[str, str]  # By algorithm.

LIMIT_COLOR = '#d62728'
TEXT_COLOR = '#333333'
# Colour-blind readers can tell them apart, and none is like the red of limits.
_COLORS = ('#2f6fbb', '#e08214', '#1b8a5a', '#8e44ad', '#00838f', '#b8860b', '#7cb342', '#a1887f', '#607d8b', '#7986cb')
_FAINT_COLOR = '#e6e6e6'
_MAX_POINTS = 200  # In a curve.


def algorithm_colors(algorithms: Iterable[str]) -> dict[str, str]:
  """Returns a colour for each algorithm and each published one. Published numbers have their algorithm's colour."""
  published = sorted({row.algorithm for row in reference.published_rows()})
  # The paper's algorithms come first, so that their colours don't depend on what they are compared with.
  names = ['LAMBDA', *(name for name in published if name != 'LAMBDA')]
  names += [name for name in collection.order_algorithms(algorithms) if name not in names]
  colors = dict(zip(names, _COLORS))
  for i, name in enumerate(names[len(_COLORS) :]):
    red, green, blue = colorsys.hls_to_rgb(i * 0.618 % 1.0, 0.4, 0.5)
    colors[name] = f'#{int(255 * red):02x}{int(255 * green):02x}{int(255 * blue):02x}'
  return colors | {name + reference.SUFFIX: color for name, color in colors.items()}


def new_figure(width: float, height: float) -> mpl_figure.Figure:
  """Returns a figure without pyplot, whose registry is global and which chooses a back end for the whole process."""
  return mpl_figure.Figure(figsize=(width, height), layout='constrained', dpi=110)


def style(axes: mpl_axes.Axes, title: str = '', xlabel: str = '', ylabel: str = '') -> None:
  axes.set_title(title, loc='left', color=TEXT_COLOR, fontsize=10, fontweight='bold')
  axes.set_xlabel(xlabel, color=TEXT_COLOR, fontsize=9)
  axes.set_ylabel(ylabel, color=TEXT_COLOR, fontsize=9)
  axes.grid(color=_FAINT_COLOR, linewidth=0.8)
  axes.set_axisbelow(True)
  axes.spines[['top', 'right']].set_visible(False)
  axes.spines[['left', 'bottom']].set_color('#b0b0b0')
  axes.tick_params(color='#b0b0b0', labelcolor=TEXT_COLOR, labelsize=8)


def style_steps(column: Sequence[mpl_axes.Axes], label: str = 'environment steps') -> None:
  """Styles the x axes of a column of panels as steps: 250k, 1M. Only the lowest one has a label."""
  for axes in column:
    axes.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=''))
    axes.set_xlim(left=0)
  column[-1].set_xlabel(label, color=TEXT_COLOR, fontsize=9)


def legend(figure: mpl_figure.Figure, handles: Sequence) -> None:
  """Adds a legend below the panels, in as many columns as fit."""
  if handles:
    width = 0.75 + 0.075 * max(len(handle.get_label()) for handle in handles)  # Approximate inches of a column.
    columns = int(np.clip(figure.get_figwidth() / width, 1, len(handles)))
    figure.legend(
      handles=handles, loc='outside lower center', ncols=columns, frameon=False, fontsize=9, labelcolor=TEXT_COLOR
    )


def group_band(group: collection.Group, name: str) -> tuple[np.ndarray, statistics.Estimate] | None:
  """Returns steps [R] that all of a group's seeds have reached, and the median and 5-95 percentiles over seeds there.

  Curves are interpolated if seeds logged at different steps. None if no seed has the curve.
  """
  curves = [run.curves[name] for run in group.drawn if len(run.curves.get(name, ()))]
  if not curves:
    return None
  start, end = max(curve.steps[0] for curve in curves), min(curve.steps[-1] for curve in curves)
  steps = np.unique(np.concatenate([curve.steps for curve in curves]))
  steps = steps[(steps >= start) & (steps <= end)]
  if not len(steps):  # One seed's curve ends before another's begins.
    return None
  if len(steps) > _MAX_POINTS:
    steps = steps[np.linspace(0, len(steps) - 1, _MAX_POINTS).astype(int)]
  return steps, statistics.band(np.stack([np.interp(steps, curve.steps, curve.values) for curve in curves]))


def draw_band(axes: mpl_axes.Axes, steps: np.ndarray, estimate: statistics.Estimate, color: str, **line) -> None:
  marker = 'o' if len(steps) == 1 else ''
  axes.plot(steps, estimate.value, **{'color': color, 'linewidth': 1.6, 'marker': marker, 'markersize': 4, **line})
  axes.fill_between(steps, estimate.low, estimate.high, color=color, alpha=0.18, linewidth=0)


def save(figure: mpl_figure.Figure, folder: pathlib.Path, name: str) -> bytes:
  """Writes `name`.png and `name`.svg, each complete or not at all. Returns the PNG."""
  data = {}
  # The layout is computed once for both formats. Left in place, the engine would also draw everything twice.
  if (engine := figure.get_layout_engine()) is not None:
    engine.execute(figure)
    figure.set_layout_engine(None)
  with rc_context({'svg.fonttype': 'none', 'svg.hashsalt': name}):  # Text stays text; equal input makes equal files.
    for form in ('png', 'svg'):
      buffer = io.BytesIO()
      figure.savefig(buffer, format=form, metadata={'Date': None} if form == 'svg' else None)
      data[form] = buffer.getvalue()
      files.write_atomically(folder / f'{name}.{form}', data[form])
  return data['png']
