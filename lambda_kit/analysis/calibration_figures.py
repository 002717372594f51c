"""Figures of calibration: reliability, costs by steps ahead, coverage, and the ranks of costs among drawn ones."""

from collections.abc import Sequence
from typing import Any

from matplotlib import axes as mpl_axes
from matplotlib import figure as mpl_figure
import numpy as np

from lambda_kit.analysis import drawing

_COLOR, _OTHER_COLOR, _IDEAL_COLOR = '#2f6fbb', '#e08214', '#999999'

_Interval = Sequence[float | None]  # Value, low, high.


def calibration(result: dict[str, Any], title: str) -> mpl_figure.Figure:
  """Draws four panels for each constraint, with 90% intervals. What is dotted is ideal.

  Costs that came by what was forecast of them; costs of a step by how far it is ahead, forecast, bounded and observed;
  coverage of intervals by their level; and a histogram of the ranks of costs among those that the models draw, which is
  flat if they are calibrated, rises on the right if costs are higher than the models know, and is a cup if the models
  are too sure.

  Args:
    result: From `calibration.write_calibration`.
    title: Title above the panels.
  """
  constraints = result['constraints']
  figure = drawing.new_figure(8.0, 6.4 * len(constraints))
  panels = figure.subplots(2 * len(constraints), 2, squeeze=False)
  for i, (name, scores) in enumerate(constraints.items()):
    (reliability, by_step), (coverage, ranks) = panels[2 * i : 2 * i + 2]
    _draw_reliability(reliability, scores['bins'])
    drawing.style(reliability, name, f'forecast cost of {result["horizon"]} steps', 'cost that came')
    _draw_steps(by_step, scores['steps'])
    drawing.style(by_step, name, 'steps ahead', 'cost of a step')
    _draw_coverage(coverage, scores)
    drawing.style(coverage, name, 'level', 'share of costs inside')
    _draw_ranks(ranks, scores['ranks'])
    drawing.style(ranks, name, 'rank of the cost among those drawn', 'share')
    for axes in (reliability, by_step, coverage):
      axes.legend(fontsize=8, frameon=False)
  figure.suptitle(f'{title}: calibration in {result["episodes"]} new episodes', fontsize=10)
  return figure


def _draw_reliability(axes: mpl_axes.Axes, bins: Sequence[dict[str, Any]]) -> None:
  forecast, observed = [part['forecast'] for part in bins], [part['observed'] for part in bins]
  end = max(*forecast, *(value for value, _, _ in observed), 1e-3)
  axes.plot([0, end], [0, end], color=_IDEAL_COLOR, linestyle=':', label='as forecast')
  _draw_points(axes, forecast, observed, _COLOR, 'tenths of start states')
  for scale in (axes.set_xscale, axes.set_yscale):  # Most forecasts are close to 0.
    scale('symlog', linthresh=0.1)


def _draw_steps(axes: mpl_axes.Axes, steps: Sequence[dict[str, Any]]) -> None:
  ahead = range(1, len(steps) + 1)
  column = lambda name: [step[name] for step in steps]
  axes.plot(ahead, column('observed'), color=_IDEAL_COLOR, linestyle=':', label='observed')
  axes.plot(ahead, column('forecast'), color=_COLOR, marker='o', markersize=4, label='forecast')
  if column('raw_forecast') != column('forecast'):
    axes.plot(ahead, column('raw_forecast'), color=_COLOR, linestyle='--', label='forecast, not corrected')
  axes.plot(ahead, column('bound'), color=_OTHER_COLOR, marker='o', markersize=4, label='bound')
  axes.set_ylim(bottom=0)


def _draw_coverage(axes: mpl_axes.Axes, scores: dict[str, Any]) -> None:
  axes.plot([0, 1], [0, 1], color=_IDEAL_COLOR, linestyle=':', label='as promised')
  for name, color, label in (('upper', _COLOR, 'below a quantile'), ('central', _OTHER_COLOR, 'central interval')):
    levels, covered = [row['level'] for row in scores[name]], [row['covered'] for row in scores[name]]
    _draw_points(axes, levels, covered, color, label)
  bound = scores['bound']
  _draw_points(axes, [bound['promised']], [bound['covered']], drawing.TEXT_COLOR, 'the bound', marker='s')


def _draw_ranks(axes: mpl_axes.Axes, ranks: Sequence[_Interval]) -> None:
  width = 1.0 / len(ranks)
  positions = (np.arange(len(ranks)) + 0.5) * width
  values, errors = _with_errors(ranks)
  axes.bar(positions, values, 0.9 * width, yerr=errors, color=_COLOR, alpha=0.6, ecolor=drawing.TEXT_COLOR)
  axes.axhline(width, color=_IDEAL_COLOR, linestyle=':')


def _draw_points(
  axes: mpl_axes.Axes, x: Sequence[float], intervals: Sequence[_Interval], color: str, label: str, marker: str = 'o'
) -> None:
  values, errors = _with_errors(intervals)
  axes.errorbar(x, values, errors, color=color, marker=marker, markersize=4, capsize=2, linewidth=1.2, label=label)


def _with_errors(intervals: Sequence[_Interval]) -> tuple[np.ndarray, np.ndarray]:
  """Values [n], and how far intervals reach below and above, [2, n]; not at all where they are unknown."""
  values, low, high = np.array(intervals, np.float64).T
  return values, np.maximum(np.nan_to_num([values - low, high - values]), 0.0)
