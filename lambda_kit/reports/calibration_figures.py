"""Bounds on costs beside what followed."""

from typing import Any

from matplotlib import figure as mpl_figure

from lambda_kit.reports import drawing


def reliability(result: dict[str, Any], title: str) -> mpl_figure.Figure:
  """Of moments with like bounds, the mean bound and the mean cost that followed: a panel for each constraint.

  Args:
    result: As `experiments/calibration.py` has it.
    title: Above the panels.
  """
  constraints = result['constraints']
  figure = drawing.new_figure(3.6 * len(constraints), 3.6)
  for i, (name, row) in enumerate(constraints.items()):
    axes = figure.add_subplot(1, len(constraints), i + 1)
    bound, realised = ([part[key] for part in row['bins']] for key in ('bound', 'realised'))
    end = max(*bound, *realised, 1e-3)
    axes.plot([0, end], [0, end], color='#999999', linestyle=':', label='as forecast')
    axes.plot(bound, realised, color='#2f6fbb', marker='o', markersize=4, label='tenths of all moments')
    drawing.style(axes, name, f'bound on the cost of {result["horizon"]} steps', 'cost that followed')
    axes.legend(fontsize=8, frameon=False)
  figure.suptitle(f'{title}: pessimism', fontsize=10)
  return figure
