"""The best of several checkpoints: the one with the highest return among those that were safe.

A score is the result of a checkpoint's evaluation: `episode_return`, a number, and `cost_return` and `cost_limit`, one
number for each constraint. It is stored with the checkpoint, so that the folders alone show which one is best.
"""

from collections.abc import Mapping
import math
from typing import Any

_KEYS = frozenset({'episode_return', 'cost_return', 'cost_limit'})


def check(score: Mapping[str, Any] | None) -> dict[str, Any] | None:
  """Returns a copy of a score as numbers that JSON can hold. Raises a ValueError if it is invalid."""
  if score is None:
    return None
  if score.keys() != _KEYS:
    raise ValueError(f'A score has the keys {sorted(_KEYS)}, got {sorted(score)}.')
  costs, limits = ([float(value) for value in score[key]] for key in ('cost_return', 'cost_limit'))
  if len(costs) != len(limits):
    raise ValueError(f'A score has a limit for each cost, got {len(costs)} costs and {len(limits)} limits.')
  return {'episode_return': float(score['episode_return']), 'cost_return': costs, 'cost_limit': limits}


def rank_safe(scores: Mapping[int, Mapping[str, Any] | None]) -> list[int]:
  """Ranks the safe checkpoints among several.

  Args:
    scores: By step. None for a checkpoint that was not evaluated, and so is not known to be safe.

  Returns:
    Steps, the best first. Of equal returns the later step comes first.
  """
  safe = [(score['episode_return'], step) for step, score in scores.items() if score is not None and _is_safe(score)]
  return [step for _, step in sorted(safe, reverse=True)]


def _is_safe(score: Mapping[str, Any]) -> bool:
  # A NaN cost is below no limit. A NaN return can't be ordered.
  below = all(cost <= limit for cost, limit in zip(score['cost_return'], score['cost_limit'], strict=True))
  return below and not math.isnan(score['episode_return'])
