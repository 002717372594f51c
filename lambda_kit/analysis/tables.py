"""Evaluations as a plain-text table, and how all reports name costs and compare them with limits."""

from collections.abc import Sequence
import io
from typing import Any

import numpy as np
from rich import box
from rich import console as rich_console
from rich import table as rich_table

from lambda_kit import types


def evaluation_table(
  rows: Sequence[dict[str, Any]], cost_limit: float | Sequence[float], constraint_names: Sequence[str] = ()
) -> str:
  """Returns a table with one line for each evaluation.

  Args:
    rows: Rows of kind 'evaluation'. Standard deviations are over evaluation episodes, and left out for rows that don't
      hold single episodes. If any episode failed, a column has their number.
    cost_limit: One limit for all constraints, or one for each.
    constraint_names: Names of the C costs, shown if there are several.
  """
  if not rows:
    return 'No evaluations.\n'
  count = np.size(rows[0]['cost_return'])
  limits = cost_limits(cost_limit, count)
  table = rich_table.Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
  table.add_column('environment\nsteps', justify='right')
  table.add_column('return', justify='right')
  for label, limit in zip(cost_labels(constraint_names, count), limits):
    table.add_column(f'{label}\nlimit {limit:g}', justify='right')
    table.add_column()  # The mark: ok or over.
  table.add_column('cost regret', justify='right')
  failed = [row.get('failed_episodes', 0) for row in rows]
  if any(failed):
    table.add_column('failed\nepisodes', justify='right')
  for row, num_failed in zip(rows, failed, strict=True):
    cost_return = as_floats(row['cost_return'])
    deviations = _deviations(row.get('cost_returns'), (count,))
    costs = []
    for cost, deviation, limit in zip(cost_return, deviations, limits):
      costs.append(_mean_and_deviation(cost, deviation, 1))
      costs.append('ok' if within(cost, limit) else 'unknown' if has_failed(row) else 'over')
    episode_return = _mean_and_deviation(
      as_floats(row['episode_return'])[0], _deviations(row.get('episode_returns'), ()), 2
    )
    regret = '  '.join(f'{value:.4f}' for value in as_floats(row.get('cost_regret')))
    failures = [str(num_failed or '')] if any(failed) else []
    table.add_row(f'{row["environment_steps"]:,}', episode_return, *costs, regret, *failures)
  output = io.StringIO()
  # Wider than any table, so that lines are never wrapped.
  console = rich_console.Console(file=output, width=1000, force_terminal=False, legacy_windows=False, color_system=None)
  console.print(table)
  return '\n'.join(line.rstrip() for line in output.getvalue().splitlines()).strip('\n') + '\n'


def cost_labels(constraint_names: Sequence[str], count: int) -> list[str]:
  """Returns labels for the C cost returns; a single one needs no name."""
  if constraint_names and len(constraint_names) != count:
    raise ValueError(f'{count} costs, but constraint_names has {len(constraint_names)}: {tuple(constraint_names)}.')
  if count == 1:
    return ['cost return']
  return [f'cost return, {name}' for name in constraint_names or range(count)]


def cost_limits(cost_limit: float | Sequence[float], count: int) -> np.ndarray:
  """Returns the limits [C], from one for all constraints or one for each."""
  limits = np.asarray(cost_limit, np.float64)
  if limits.ndim and limits.shape != (count,):
    raise ValueError(f'{count} costs, but cost_limit has shape {limits.shape}: {cost_limit}.')
  return np.broadcast_to(limits, (count,))


def within(cost_return: float, limit: float) -> bool:
  """Whether a cost return respects its limit. NaN doesn't."""
  return bool(cost_return <= limit)


def has_failed(row: dict[str, Any]) -> bool:
  """Whether all episodes of an evaluation failed, so that its row has no score."""
  return row['episode_return'] is None and row.get('failed_episodes', 0) > 0


def as_floats(value: Any) -> np.ndarray:
  """Returns a scalar or vector of a row as a vector, with NaN for missing and non-finite values."""
  return np.atleast_1d(np.asarray(value, np.float64))


def _deviations(episodes: Any, shape: tuple[int, ...]) -> types.Array:
  return np.std(np.asarray(episodes, np.float64), axis=0) if episodes else np.full(shape, np.nan)


def _mean_and_deviation(mean: float, deviation: float, digits: int) -> str:
  return f'{mean:.{digits}f}' if np.isnan(deviation) else f'{mean:.{digits}f} ± {deviation:.{digits}f}'
