"""Studies as tables and figures."""

from collections.abc import Sequence
import io
from typing import Any

from matplotlib import figure as mpl_figure
import numpy as np
from rich import box
from rich import console as rich_console
from rich import table as rich_table

from lambda_kit.analysis import drawing
from lambda_kit.analysis import tables

Study = Any  # A `training.study.Study`.

_DOT_COLOR = '#2f6fbb'


def study_table(done: Study) -> str:
  """A line for each run, in plain text: what it delivers, what its last evaluations found, what training cost."""
  reference = done.reference
  table = rich_table.Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
  for title in (
    'variant',
    'seed',
    'return',
    'of the way',
    f'cost return\nlimit {reference.cost_limit:g}',
    '',
    'at step',
    'last\nreturn',
    'last\ncost',
    'cost regret',
    'environment\nsteps',
    'minutes',
  ):
    table.add_column(title, justify='left' if title in ('variant', '') else 'right')
  for outcome in done.outcomes:
    safe = tables.within(outcome.delivered_cost, reference.cost_limit)
    table.add_row(
      outcome.variant,
      str(outcome.seed),
      f'{outcome.delivered_return:.2f}',
      f'{reference.share(outcome.delivered_return):.0%}',
      f'{outcome.delivered_cost:.1f}',
      'ok' if safe else 'over',
      f'{outcome.delivered_step:,}',
      f'{outcome.episode_return:.2f}',
      f'{outcome.cost_return:.1f}',
      f'{outcome.cost_regret:.4f}',
      f'{outcome.environment_steps:,}',
      f'{outcome.minutes:.1f}',
    )
  output = io.StringIO()
  rich_console.Console(file=output, width=200).print(table)
  lines = [line.rstrip() for line in output.getvalue().splitlines()]
  return '\n'.join(lines).strip('\n') + (
    f'\nRandom actions: {reference.random_return:.2f}. Optimum within the limit: {reference.optimal_return:.2f}.\n'
  )


def summary(studies: Sequence[Study]) -> str:
  """Markdown with a line for each variant of each experiment: means over seeds and their standard deviations."""
  head = (
    'experiment',
    'variant',
    'seeds',
    'last evaluations: return',
    'cost return',
    'within the limit',
    'best safe checkpoint: return',
    'of the way',
    'cost return',
    'cost regret of training',
    'minutes a run',
  )
  rows = [head, ('---',) * len(head)]
  for one in studies:
    for variant in one.variants:
      outcomes = one.of_variant(variant)
      spread = lambda name, digits, outcomes=outcomes: _mean_and_deviation(
        [getattr(outcome, name) for outcome in outcomes], digits
      )
      safe = sum(tables.within(outcome.cost_return, one.reference.cost_limit) for outcome in outcomes)
      share = one.reference.share(np.mean([outcome.delivered_return for outcome in outcomes]))
      rows.append(
        (
          one.experiment,
          variant,
          str(len(outcomes)),
          spread('episode_return', 2),
          spread('cost_return', 1),
          f'{safe} of {len(outcomes)}',
          spread('delivered_return', 2),
          f'{share:.0%}',
          spread('delivered_cost', 1),
          spread('cost_regret', 4),
          f'{np.mean([outcome.minutes for outcome in outcomes]):.1f}',
        )
      )
  lines = ['| ' + ' | '.join(row) + ' |' for row in rows]
  notes = [
    f'{one.experiment}: random actions {one.reference.random_return:.2f}, optimum within the limit of '
    f'{one.reference.cost_limit:g} {one.reference.optimal_return:.2f}.'
    for one in studies
  ]
  return '\n'.join(lines) + '\n\n' + '\n'.join(notes) + '\n'


def study_figure(studies: Sequence[Study]) -> mpl_figure.Figure:
  """A row of panels for each experiment: last evaluations and cost regret by variant, a dot for each seed."""
  num_lines = max(len(one.variants) for one in studies)
  figure = drawing.new_figure(10.0, len(studies) * (1.2 + 0.28 * num_lines))
  grid = figure.subplots(len(studies), 3, squeeze=False, sharex='col')
  for one, row in zip(studies, grid):
    panels = (
      ('episode_return', f'{one.experiment}: return', one.reference.optimal_return, 'optimum within the limit'),
      ('cost_return', 'cost return', one.reference.cost_limit, 'limit'),
      ('cost_regret', 'cost regret of training', None, None),
    )
    for axes, (name, title, mark, label) in zip(row, panels):
      for line, variant in enumerate(one.variants):
        values = [getattr(outcome, name) for outcome in one.of_variant(variant)]
        axes.plot(values, [line] * len(values), 'o', color=_DOT_COLOR, alpha=0.55, markersize=5, markeredgewidth=0)
        axes.plot([np.mean(values)], [line], '|', color=drawing.TEXT_COLOR, markersize=12, markeredgewidth=2)
      if mark is not None:
        color = drawing.LIMIT_COLOR if name == 'cost_return' else drawing.TEXT_COLOR
        axes.axvline(mark, color=color, linestyle=':' if name == 'episode_return' else '-', linewidth=1.2)
        axes.text(mark, -0.75, label, color=color, fontsize=7, ha='right' if name == 'episode_return' else 'left')
      drawing.style(axes, title=title)
      axes.set_ylim(len(one.variants) - 0.4, -1.1)
      axes.set_yticks(range(len(one.variants)), one.variants if axes is row[0] else [''] * len(one.variants))
  return figure


def _mean_and_deviation(values: Sequence[float], digits: int) -> str:
  return f'{np.mean(values):.{digits}f} ± {np.std(values):.{digits}f}'
