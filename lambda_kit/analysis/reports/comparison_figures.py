"""Figures that compare algorithms: learning curves, the trade-off of metrics, sample efficiency."""

from collections.abc import Mapping, Sequence

from matplotlib import figure as mpl_figure
from matplotlib import lines
from matplotlib import patches
import numpy as np

from lambda_kit.analysis import drawing
from lambda_kit.analysis.metrics import efficiency
from lambda_kit.analysis.metrics import normalization
from lambda_kit.analysis.metrics import protocols
from lambda_kit.analysis.reports import collection as collection_lib
from lambda_kit.analysis.reports import reference
from lambda_kit.analysis.reports import summary as summary_lib

_CURVES = (('episode_return', 'return'), ('cost_return', 'cost return'), ('cost_regret', 'cost regret'))
_OURS = 'LAMBDA'


def learning_curves(
  collected: collection_lib.Collection, tasks: Sequence[str], colors: drawing.Colors
) -> mpl_figure.Figure | None:
  """Draws medians and 5-95 percentiles over seeds, the limit in red, and published results of long training dashed.

  There is a column for each task, with panels for return, cost return and cost regret.
  """
  tasks = [
    task
    for task in tasks
    if any(len(run.curves['episode_return']) for group in collected.of_task(task) for run in group.runs)
  ]
  if not tasks:
    return None
  figure = drawing.new_figure(max(6.0, 3.1 * len(tasks)), 7.2)
  grid = figure.subplots(3, len(tasks), squeeze=False, sharex='col')
  shown, dashed = set(), set()
  for column, task in zip(grid.T, tasks):
    groups = collected.of_task(task)
    published = groups[0].protocol == protocols.paper_protocol(task) and task in protocols.SG6_TASKS
    for i, (axes, (name, title)) in enumerate(zip(column, _CURVES)):
      for group in groups:
        found = drawing.group_band(group, name)
        if found is not None:
          drawing.draw_band(axes, *found, colors[group.algorithm])
          shown.add(group.algorithm)
      for algorithm, row in reference.after_long_training(task).items() if published else ():
        axes.axhline(row.metrics.values[i], color=colors[algorithm], linestyle='--', linewidth=1.0)
        dashed.add(algorithm)
      drawing.style(axes, f'{task}\n{title}' if i == 0 else title)
    drawing.style_steps(column)
    limits = groups[0].protocol.cost_limit
    if len(limits) == 1:  # Curves are sums over constraints, which several limits don't bound.
      column[1].axhline(limits[0], color=drawing.LIMIT_COLOR, linewidth=1.5, gid='limit')
    for axes in column[1:]:  # Costs aren't negative.
      axes.set_ylim(bottom=0.0)
  handles = [
    lines.Line2D([], [], color=colors[name], label=_label(collected, name, tasks))
    for name in collection_lib.order_algorithms(shown)
  ]
  handles += [
    lines.Line2D([], [], color=colors[name], linestyle='--', label=f'{name}, long training (paper)')
    for name in collection_lib.order_algorithms(dashed)
  ]
  handles.append(lines.Line2D([], [], color=drawing.LIMIT_COLOR, label='limit'))
  drawing.legend(figure, handles)
  return figure


def trade_off(summary: summary_lib.Summary, colors: drawing.Colors) -> mpl_figure.Figure | None:
  """Draws normalised metrics, averaged over tasks and scaled to [0, 1]: 1 is the best algorithm, 0 the worst."""
  averages = {name: values for name, values in summary.averages(normalized=True).items() if not np.isnan(values).any()}
  if len(averages) < 2:
    return None
  figure = drawing.new_figure(6.4, 3.8)
  axes = figure.subplots()
  scaled = np.stack(
    [
      normalization.scale_to_unit(column, higher)
      for column, higher in zip(np.transpose(list(averages.values())), summary_lib.HIGHER_IS_BETTER)
    ]
  )  # [3, A].
  width = 0.8 / len(averages)
  for i, name in enumerate(averages):
    positions = np.arange(3) + (i - (len(averages) - 1) / 2) * width
    hatch = '//' if name.endswith(reference.SUFFIX) else None
    axes.bar(
      positions,
      np.maximum(scaled[:, i], 0.008),
      0.9 * width,
      color=colors[name],
      hatch=hatch,
      edgecolor='white',
      linewidth=0,
      label=name,
    )
  drawing.style(axes, f'{summary.name}: trade-off of metrics', ylabel='scaled: best is 1, worst is 0')
  axes.set_xticks(range(3), ['return', 'cost return\n(over the limit)', 'cost regret'])
  axes.grid(axis='x', visible=False)
  axes.set_ylim(0.0, 1.05)
  drawing.legend(figure, axes.get_legend_handles_labels()[0])
  return figure


def sample_efficiencies(
  collected: collection_lib.Collection, summary: summary_lib.Summary
) -> dict[str, dict[str, efficiency.Efficiency]]:
  """Returns, by task and algorithm, the steps to match LAMBDA's final return, in units of LAMBDA's steps.

  Baselines that were run are measured on their curves. Published ones have two known points, which give bounds.
  """
  ratios: dict[str, dict[str, efficiency.Efficiency]] = {}
  for task in summary.tasks:
    # Runs with another protocol are not in the summary.
    groups = {group.algorithm: group for group in collected.of_task(task) if (task, group.algorithm) in summary.metrics}
    ours = _OURS if (task, _OURS) in summary.metrics else _OURS + reference.SUFFIX
    protocol = groups[ours].protocol if ours in groups else protocols.paper_protocol(task)
    if (task, ours) not in summary.metrics or protocol is None:
      continue
    target = summary.metrics[task, ours].episode_return
    found: dict[str, efficiency.Efficiency] = {}
    for algorithm, group in groups.items():
      curves = [run.curves for run in group.scored]
      if not algorithm.startswith(_OURS) and curves and len(protocol.cost_limit) == 1:
        found[algorithm] = efficiency.measure(
          [curve['episode_return'].steps for curve in curves],
          [curve['episode_return'].values for curve in curves],
          [curve['cost_return'].values for curve in curves],
          target,
          protocol.environment_steps,
          protocol.cost_limit[0],
        )
    if protocol == protocols.paper_protocol(task) and task in protocols.SG6_TASKS:
      for algorithm, row in reference.after_long_training(task).items():
        short = reference.at_protocol(task)[algorithm]
        points = [
          (protocol.environment_steps, short.episode_return, short.safe),
          (row.environment_steps, row.metrics.episode_return, row.metrics.safe),
        ]
        found[algorithm + reference.SUFFIX] = efficiency.bound(points, target, protocol.environment_steps)
    if found:
      ratios[task] = found
  return ratios


def sample_efficiency(
  ratios: Mapping[str, Mapping[str, efficiency.Efficiency]], colors: drawing.Colors
) -> mpl_figure.Figure | None:
  """Draws bars of ratios, with a check mark if costs were within the limit by then, and a cross if not."""
  if not ratios:
    return None
  bars = [(task, name, value) for task, found in ratios.items() for name, value in found.items()]
  figure = drawing.new_figure(7.5, 0.8 + 0.21 * len(bars) + 0.12 * len(ratios))
  axes = figure.subplots()
  position, ticks = 0.0, []
  for task, found in ratios.items():
    ticks.append((position + (len(found) - 1) / 2, task))
    for name, value in found.items():
      is_bound = value.relation != '='
      axes.barh(
        position,
        value.ratio,
        0.85,
        color=colors[name],
        alpha=0.45 if is_bound else 1.0,
        hatch='//' if is_bound else None,
        edgecolor='white',
        linewidth=0,
      )
      axes.annotate(f'{value}  ', (value.ratio, position), (4, 0), textcoords='offset points', va='center', fontsize=8)
      axes.annotate(
        '✓' if value.safe else '✗',
        (value.ratio, position),
        (38, 0),
        textcoords='offset points',
        va='center',
        fontsize=9,
        fontweight='bold',
        color='#1b8a5a' if value.safe else drawing.LIMIT_COLOR,
      )
      position += 1.0
    position += 0.6
  axes.set_yticks(*zip(*ticks))
  axes.set_ylim(position - 0.6, -1.0)  # The first task on top.
  axes.set_xscale('log')
  axes.axvline(1.0, color=drawing.TEXT_COLOR, linewidth=1.0)
  drawing.style(axes, f'Steps to match the return of {_OURS}', f'steps in units of those of {_OURS}')
  axes.set_xlim(right=axes.get_xlim()[1] * 3.0)  # Room for the marks.
  names = list(dict.fromkeys(name for _, name, _ in bars))
  handles = [
    patches.Patch(facecolor=colors[name], alpha=0.45 if name.endswith(reference.SUFFIX) else 1.0, label=name)
    for name in names
  ]
  drawing.legend(figure, handles)
  return figure


def _label(collected: collection_lib.Collection, algorithm: str, tasks: Sequence[str]) -> str:
  """An algorithm's name with the number of seeds behind its medians."""
  groups = [group for group in collected.groups if group.algorithm == algorithm and group.task in tasks]
  counts = sorted({len(group.drawn) for group in groups})
  seeds = f'{counts[0]}' if len(counts) == 1 else f'{counts[0]} to {counts[-1]}'
  unfinished = '' if any(group.scored for group in groups) else ', unfinished'
  return f'{algorithm} ({seeds} seed{"" if counts == [1] else "s"}{unfinished})'
