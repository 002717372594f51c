"""Studies as tables and figures."""

import io
import os
from typing import Sequence

import matplotlib.figure
import numpy as np
from rich import box
from rich import console as rich_console
from rich import table as rich_table

from lambda_kit.experiments import study
from lambda_kit.reports import tables


def study_table(outcomes: Sequence[study.Outcome], reference: study.Reference) -> str:
  """A line for each run, in plain text: what it delivers, what its last evaluations found, what training cost."""
  table = rich_table.Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
  for title in ('variant', 'seed', 'return', 'of the way', f'cost return\nlimit {reference.cost_limit:g}', '',
                'at step', 'last\nreturn', 'last\ncost', 'cost regret', 'environment\nsteps', 'minutes'):
    table.add_column(title, justify='left' if title in ('variant', '') else 'right')
  for outcome in outcomes:
    safe = tables.within(outcome.delivered_cost, reference.cost_limit)
    table.add_row(outcome.variant, str(outcome.seed), f'{outcome.delivered_return:.2f}',
                  f'{reference.share(outcome.delivered_return):.0%}', f'{outcome.delivered_cost:.1f}',
                  'ok' if safe else 'over', f'{outcome.delivered_step:,}', f'{outcome.episode_return:.2f}',
                  f'{outcome.cost_return:.1f}', f'{outcome.cost_regret:.4f}', f'{outcome.environment_steps:,}',
                  f'{outcome.minutes:.1f}')
  output = io.StringIO()
  rich_console.Console(file=output, width=200).print(table)
  lines = [line.rstrip() for line in output.getvalue().splitlines()]
  return '\n'.join(lines).strip('\n') + (
      f'\nRandom actions: {reference.random_return:.2f}. Optimum within the limit: {reference.optimal_return:.2f}.\n')


def study_figure(outcomes: Sequence[study.Outcome], reference: study.Reference, path: str | os.PathLike) -> None:
  """Returns, costs and cost regret over steps: a colour for each variant, a line for each seed."""
  figure = matplotlib.figure.Figure(figsize=(12, 3.6), layout='constrained')
  returns, costs, regrets = figure.subplots(1, 3)
  variants = list(dict.fromkeys(outcome.variant for outcome in outcomes))
  for outcome in outcomes:
    index = variants.index(outcome.variant)
    is_first = outcome is next(other for other in outcomes if other.variant == outcome.variant)
    style = dict(color=f'C{index}', alpha=0.8, linewidth=1.2, label=outcome.variant if is_first else None)
    steps = [row['environment_steps'] for row in outcome.evaluations]
    for axes, name in ((returns, 'episode_return'), (costs, 'cost_return'), (regrets, 'cost_regret')):
      axes.plot(steps, [np.sum(row[name]) for row in outcome.evaluations], **style)
  returns.axhline(reference.optimal_return, color='black', linestyle=':', label='optimum within the limit')
  costs.axhline(reference.cost_limit, color='red', label='limit')
  for axes, title in ((returns, 'evaluation return'), (costs, 'evaluation cost return'),
                      (regrets, 'cost regret of training')):
    axes.set(title=title, xlabel='environment steps')
  returns.legend(fontsize=8)
  costs.legend(fontsize=8)
  figure.savefig(path, dpi=110)
