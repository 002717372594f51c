"""Bounds on costs beside what followed."""

from typing import Any

from matplotlib import figure as mpl_figure

from lambda_kit.analysis import drawing

_COLOR = '#2f6fbb'


def reliability(result: dict[str, Any], title: str) -> mpl_figure.Figure:
  """Two panels for each constraint: by what was forecast, and by how far ahead.

  The first has, of moments with like bounds, the mean bound and the mean cost that followed. The second has what was
  expected of each step ahead, and what came: models that forget what comes expect less of later steps, even if they
  are told which actions follow; if they are not, the policy avoids in imagination what it runs into.

  Args:
    result: As `analysis/calibration.py` has it.
    title: Above the panels.
  """
  constraints = result['constraints']
  figure = drawing.new_figure(7.2, 3.6 * len(constraints))
  panels = figure.subplots(len(constraints), 2, squeeze=False)
  for (by_bound, by_step), (name, row) in zip(panels, constraints.items()):
    bound, realised = ([part[key] for part in row['bins']] for key in ('bound', 'realised'))
    end = max(*bound, *realised, 1e-3)
    by_bound.plot([0, end], [0, end], color='#999999', linestyle=':', label='as forecast')
    by_bound.plot(bound, realised, color=_COLOR, marker='o', markersize=4, label='tenths of all moments')
    drawing.style(by_bound, name, f'bound on the cost of {result["horizon"]} steps', 'cost that followed')
    steps = range(1, len(row['steps']) + 1)
    by_step.plot(steps, [step['realised'] for step in row['steps']], color='#999999', linestyle=':', label='came')
    by_step.plot(
      steps, [step['expected'] for step in row['steps']], color=_COLOR, marker='o', markersize=4, label='expected'
    )
    by_step.plot(
      steps,
      [step['given_actions'] for step in row['steps']],
      color=_COLOR,
      linestyle='--',
      label='expected, actions told',
    )
    by_step.set_ylim(bottom=0)
    drawing.style(by_step, name, 'steps ahead', 'cost of a step')
    for axes in (by_bound, by_step):
      axes.legend(fontsize=8, frameon=False)
  figure.suptitle(f'{title}: pessimism', fontsize=10)
  return figure
