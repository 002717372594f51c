"""Figures of learner metrics: predicted costs, their calibration, multipliers, disagreement, prediction errors."""

from collections.abc import Sequence
from typing import Literal

from matplotlib import figure as mpl_figure
from matplotlib import lines

from lambda_kit.analysis import drawing
from lambda_kit.analysis.reports import collection as collection_lib
from lambda_kit.analysis.reports import predictions

_LINESTYLES: tuple[Literal['-', '--'], ...] = ('-', '--')  # Of the first and second metric of a panel.


def predicted_cost(collected: collection_lib.Collection, colors: drawing.Colors) -> mpl_figure.Figure | None:
  """Draws the cost of an agent step, as imagined by the model (solid) and as observed in training (dashed)."""
  return _metric_figure(
    collected,
    colors,
    [('cost of an agent step', ('imagined_cost', 'realised_cost'))],
    ('imagined', 'realised in episodes'),
  )


def multipliers(collected: collection_lib.Collection, colors: drawing.Colors) -> mpl_figure.Figure | None:
  """Draws multipliers, and the penalty in the policy's loss."""
  return _metric_figure(collected, colors, [('multiplier', ('multiplier',)), ('penalty', ('penalty',))])


def disagreement(collected: collection_lib.Collection, colors: drawing.Colors) -> mpl_figure.Figure | None:
  """Draws how much posterior samples differ: in weights, values and cost values."""
  return _metric_figure(
    collected,
    colors,
    [
      ('spread of weights', ('posterior_spread',)),
      ('spread of values', ('value_spread',)),
      ('spread of cost values', ('cost_value_spread',)),
    ],
  )


def held_out(collected: collection_lib.Collection, colors: drawing.Colors) -> mpl_figure.Figure | None:
  """Draws how well costs of new episodes were forecast during training, and what that changed."""
  return _metric_figure(
    collected,
    colors,
    [
      ('forecast, bound / observed', ('forecast_over_observed', 'bound_over_observed')),
      ('covered by the bound', ('bound_covered',)),
      ('posterior scale', ('posterior_scale',)),
      ('correction, budget share', ('correction', 'budget_share')),
    ],
    ('forecast / observed, correction', 'bound / observed, budget share'),
  )


def prediction_error(collected: collection_lib.Collection, colors: drawing.Colors) -> mpl_figure.Figure | None:
  """Draws errors of open-loop predictions by step (solid), and of the last observation, repeated (dashed)."""
  parts = [
    part
    for part in predictions.PARTS
    if any(f'prediction_error/{part}' in run.curves for group in collected.groups for run in group.runs)
  ]
  rows = [
    (f'{part}: error {predictions.UNITS[part]}', (f'prediction_error/{part}', f'last_seen_error/{part}'))
    for part in parts
  ]
  return _metric_figure(collected, colors, rows, ('model', 'last observation, repeated'), 'predicted agent steps')


def _metric_figure(
  collected: collection_lib.Collection,
  colors: drawing.Colors,
  rows: Sequence[tuple[str, Sequence[str]]],
  styles: Sequence[str] = (),
  steps: str = 'environment steps',
) -> mpl_figure.Figure | None:
  """Draws a column for each task, and a panel in it for each of `rows`: a title and the metrics to draw over `steps`.

  The first metric of a panel is a solid line, the second one dashed; `styles` names them.
  """
  first = {names[0] for _, names in rows}  # Agents without a model or multipliers have none of them.
  groups = [group for group in collected.groups if any(first & run.curves.keys() for run in group.runs)]
  tasks = collection_lib.order_tasks(group.task for group in groups)
  if not tasks:
    return None
  figure = drawing.new_figure(max(6.0, 3.1 * len(tasks)), 0.9 + 2.2 * len(rows))
  grid = figure.subplots(len(rows), len(tasks), squeeze=False, sharex='col')
  for task, column in zip(tasks, grid.T):
    for i, (axes, (title, names)) in enumerate(zip(column, rows)):
      for group in collected.of_task(task):
        if group not in groups:
          continue
        for name, linestyle in zip(names, _LINESTYLES):
          found = drawing.group_band(group, name)
          if found is not None:
            drawing.draw_band(axes, *found, colors[group.algorithm], linestyle=linestyle)
      drawing.style(axes, f'{task}\n{title}' if i == 0 else title)
    drawing.style_steps(column, steps)
  names = collection_lib.order_algorithms(group.algorithm for group in groups)
  handles = [lines.Line2D([], [], color=colors[name], label=name) for name in names]
  handles += [
    lines.Line2D([], [], color=drawing.TEXT_COLOR, linestyle=linestyle, label=label)
    for linestyle, label in zip(_LINESTYLES, styles)
  ]
  drawing.legend(figure, handles)
  return figure
