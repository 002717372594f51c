"""Statistics over seeds and tasks: interquartile means and performance profiles, with bootstrap intervals."""

from collections.abc import Mapping

from matplotlib import figure as mpl_figure
from matplotlib import lines
from matplotlib import ticker
import numpy as np

from lambda_kit.analysis import drawing
from lambda_kit.analysis.metrics import statistics

_STATISTICS = (
  ('interquartile mean', statistics.interquartile_mean),
  ('mean', statistics.mean),
  ('median', statistics.median),
  ('optimality gap', statistics.optimality_gap),
)


def aggregates(scores: Mapping[str, statistics.Scores], colors: drawing.Colors) -> mpl_figure.Figure | None:
  """Draws statistics of normalised returns by algorithm, with 95% intervals. Only the optimality gap is a loss."""
  if not scores:
    return None
  figure = drawing.new_figure(11.0, 1.2 + 0.36 * len(scores))
  for axes, (title, statistic) in zip(figure.subplots(1, len(_STATISTICS), sharey=True), _STATISTICS):
    for i, (name, values) in enumerate(scores.items()):
      estimate = statistics.estimate(values, statistic)
      axes.barh(i, estimate.high - estimate.low, 0.6, left=estimate.low, color=colors[name], alpha=0.35, linewidth=0)
      axes.vlines(estimate.value, i - 0.3, i + 0.3, color=colors[name], linewidth=2.5)
    drawing.style(axes, title)
    axes.use_sticky_edges = False
    axes.margins(x=0.15)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(4))
    axes.set_yticks(range(len(scores)), list(scores))
    axes.set_ylim(len(scores) - 0.4, -0.6)
  figure.supxlabel("return in units of PPO's, 95% stratified bootstrap", color=drawing.TEXT_COLOR, fontsize=9)
  return figure


def profiles(scores: Mapping[str, statistics.Scores], colors: drawing.Colors) -> mpl_figure.Figure | None:
  """Draws performance profiles: the fraction of runs with a normalised return above each threshold."""
  if not scores:
    return None
  pooled = np.concatenate([task for values in scores.values() for task in values])
  low, high = np.quantile(pooled, (0.0, 0.99))
  thresholds = np.linspace(min(0.0, low), max(1.0, high), 101)
  figure = drawing.new_figure(6.4, 3.8)
  axes = figure.subplots()
  for name, values in scores.items():
    profile = statistics.performance_profile(values, thresholds)
    drawing.draw_band(axes, thresholds, profile, colors[name])
  drawing.style(axes, 'Performance profiles', "τ: return in units of PPO's", 'fraction of runs with a return above τ')
  axes.set_ylim(-0.02, 1.02)
  drawing.legend(figure, [lines.Line2D([], [], color=colors[name], label=name) for name in scores])
  return figure
