"""Which of several checkpoints is the best: the one with the highest return among those that were safe.

A score is what the evaluation of a checkpoint found: `episode_return`, a number, `cost_return`, one number for each
constraint, and `cost_limit`, what each of them may be. It is stored with the checkpoint, so that what is best can be
told from the folders alone.
"""

from collections.abc import Mapping
import math
from typing import Any

_KEYS = frozenset({'episode_return', 'cost_return', 'cost_limit'})


def check(score: Mapping[str, Any] | None) -> dict[str, Any] | None:
  """Copies a score, as numbers that JSON knows. Raises a ValueError if it is none."""
  if score is None:
    return None
  if score.keys() != _KEYS:
    raise ValueError(f'A score has {sorted(_KEYS)}, got {sorted(score)}.')
  costs, limits = ([float(value) for value in score[key]] for key in ('cost_return', 'cost_limit'))
  if len(costs) != len(limits):
    raise ValueError(f'A score has a limit for each cost, got {len(costs)} costs and {len(limits)} limits.')
  return {'episode_return': float(score['episode_return']), 'cost_return': costs, 'cost_limit': limits}


def rank_safe(scores: Mapping[int, Mapping[str, Any] | None]) -> list[int]:
  """Orders the safe ones of several checkpoints, the best first.

  Args:
    scores: By step. None for a checkpoint that was not evaluated, which hence is not known to be safe.

  Returns:
    Steps. Of two equal returns the later step comes first.
  """
  safe = [step for step, score in scores.items() if score is not None and _is_safe(score)]
  return sorted(safe, key=lambda step: (scores[step]['episode_return'], step), reverse=True)


def _is_safe(score: Mapping[str, Any]) -> bool:
  # A cost that is NaN is below no limit. A return that is NaN can't be ordered.
  below = all(cost <= limit for cost, limit in zip(score['cost_return'], score['cost_limit'], strict=True))
  return below and not math.isnan(score['episode_return'])
