"""Reliability diagrams of bounds on costs."""

from typing import Any

from matplotlib import figure as mpl_figure

from lambda_kit.analysis import drawing

_COLOR = '#2f6fbb'


def reliability(result: dict[str, Any], title: str) -> mpl_figure.Figure:
  """Draws two panels for each constraint: costs by their bound, and costs by the number of steps ahead.

  The first shows mean bound and mean cost that followed, for time steps with similar bounds. The second shows the
  cost that was expected of each step ahead, and the one observed. If models forget what is ahead, the expected cost
  decays with the horizon even when the recorded actions are given. If it decays only without them, the policy avoids
  in imagination what it runs into in reality.

  Args:
    result: From `calibration.write_calibration`.
    title: Title above the panels.
  """
  constraints = result['constraints']
  figure = drawing.new_figure(7.2, 3.6 * len(constraints))
  panels = figure.subplots(len(constraints), 2, squeeze=False)
  for (by_bound, by_step), (name, row) in zip(panels, constraints.items()):
    bound, realised = ([part[key] for part in row['bins']] for key in ('bound', 'realised'))
    end = max(*bound, *realised, 1e-3)
    by_bound.plot([0, end], [0, end], color='#999999', linestyle=':', label='as forecast')
    by_bound.plot(bound, realised, color=_COLOR, marker='o', markersize=4, label='tenths of all time steps')
    drawing.style(by_bound, name, f'bound on the cost of {result["horizon"]} steps', 'cost that followed')
    steps = range(1, len(row['steps']) + 1)
    by_step.plot(steps, [step['realised'] for step in row['steps']], color='#999999', linestyle=':', label='observed')
    by_step.plot(
      steps, [step['expected'] for step in row['steps']], color=_COLOR, marker='o', markersize=4, label='expected'
    )
    by_step.plot(
      steps,
      [step['given_actions'] for step in row['steps']],
      color=_COLOR,
      linestyle='--',
      label='expected, given the actions',
    )
    by_step.set_ylim(bottom=0)
    drawing.style(by_step, name, 'steps ahead', 'cost of a step')
    for axes in (by_bound, by_step):
      axes.legend(fontsize=8, frameon=False)
  figure.suptitle(f'{title}: pessimism', fontsize=10)
  return figure
