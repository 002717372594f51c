"""Pictures of open-loop predictions: truth, model and error over time."""

from matplotlib import axes as mpl_axes
from matplotlib import figure as mpl_figure
from matplotlib import ticker
import numpy as np

from lambda_kit import types
from lambda_kit.analysis import drawing

_COLUMNS = 10  # Pictures in a row of a strip.
_GAP = 2  # Pixels between them.
_MAX_PIXEL_ERROR = 0.5  # End of the colour scale.
_MAX_DEVIATION = 3.0  # Likewise for vectors, in standard deviations.
_NAMES = ('truth', 'model', 'error')


def strip(prediction: types.OpenLoop, num_seen: int, title: str = '') -> mpl_figure.Figure:
  """Draws rows of truth, model and absolute error over time: pictures, or heat maps of vectors.

  Args:
    prediction: Of m time steps.
    num_seen: Number of time steps that the model had seen before.
    title: Title above.
  """
  parts = sorted(prediction.truth)
  heights = [_height(prediction, part) for part in parts]
  figure = drawing.new_figure(9.0, 0.5 + sum(heights))
  blocks = figure.subfigures(len(parts), 1, squeeze=False, height_ratios=heights)[:, 0]
  for block, part in zip(blocks, parts):
    rows = block.subplots(3, 1, sharex=True)
    (_draw_pictures if part == 'image' else _draw_vectors)(rows, prediction.truth[part], prediction.model[part])
    for axes, name in zip(rows, _NAMES):
      axes.set_ylabel(name, color=drawing.TEXT_COLOR, fontsize=9)
      axes.tick_params(color='#b0b0b0', labelcolor=drawing.TEXT_COLOR, labelsize=8)
    rows[-1].set_xlabel(
      f'agent steps after the {num_seen} time steps that were seen', color=drawing.TEXT_COLOR, fontsize=9
    )
  figure.suptitle(title, color=drawing.TEXT_COLOR, fontsize=10, fontweight='bold')
  return figure


def errors(truth: np.ndarray, expected: np.ndarray) -> np.ndarray:
  """Mean absolute error of each time step [m], for observations [m, ...] and predictions that broadcast to them."""
  return np.abs(truth - expected).reshape(len(truth), -1).mean(axis=1)


def _height(prediction: types.OpenLoop, part: str) -> float:
  """Inches."""
  return 3.1 if part == 'image' else 1.8 + 3 * 0.02 * np.clip(prediction.truth[part].shape[-1], 10, 60)


def _draw_pictures(rows: list[mpl_axes.Axes], truth: np.ndarray, model: np.ndarray) -> None:
  """Draws truth and model [m, height, width, 3] in [-0.5, 0.5] at ten time steps, and errors averaged over RGB."""
  shown = np.unique(np.linspace(0, len(truth) - 1, _COLUMNS).round().astype(int))

  def mosaic(frames, fill):
    padding = ((0, 0), (0, 0), (0, _GAP), *[(0, 0)] * (frames.ndim - 3))
    return np.concatenate(list(np.pad(frames, padding, constant_values=fill)), axis=1)

  to_unit = lambda frames: np.clip(frames[shown] + 0.5, 0.0, 1.0)
  rows[0].imshow(mosaic(to_unit(truth), 1.0))
  rows[1].imshow(mosaic(to_unit(model), 1.0))
  error = np.abs(truth[shown] - model[shown]).mean(axis=-1)
  image = rows[2].imshow(mosaic(error, np.nan), cmap='magma', vmin=0.0, vmax=_MAX_PIXEL_ERROR)
  rows[2].figure.colorbar(image, ax=list(rows), shrink=0.4, anchor=(0.0, 0.0), aspect=12).ax.tick_params(labelsize=8)
  width = truth.shape[2]
  for axes in rows:
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.set_xticks((width + _GAP) * np.arange(len(shown)) + width / 2, [f'+{i + 1}' for i in shown])


def _draw_vectors(rows: list[mpl_axes.Axes], truth: np.ndarray, model: np.ndarray) -> None:
  """Draws truth and model [m, D] as heat maps with a row for each entry."""
  extent = (0.5, len(truth) + 0.5, truth.shape[1] - 0.5, -0.5)
  for axes, values in zip(rows, (truth, model)):
    image = axes.imshow(
      values.T,
      aspect='auto',
      interpolation='nearest',
      extent=extent,
      cmap='RdBu_r',
      vmin=-_MAX_DEVIATION,
      vmax=_MAX_DEVIATION,
    )
  rows[0].figure.colorbar(image, ax=list(rows[:2]), aspect=15).ax.tick_params(labelsize=8)
  image = rows[2].imshow(
    np.abs(truth - model).T,
    aspect='auto',
    interpolation='nearest',
    extent=extent,
    cmap='magma',
    vmin=0.0,
    vmax=_MAX_DEVIATION,
  )
  rows[2].figure.colorbar(image, ax=rows[2], aspect=8).ax.tick_params(labelsize=8)
  for axes in rows:
    axes.yaxis.set_major_locator(ticker.MaxNLocator(4, integer=True))
