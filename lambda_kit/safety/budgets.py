"""What a solver compares cost values with, given limits of episodes' cost returns.

A limit d bounds the undiscounted costs of an episode. A cost value is discounted, and one of its steps is an agent
step: `action_repeat` simulator steps, whose costs are summed.
"""

from typing import Sequence

import gin
import numpy as np


def _check(limits: Sequence[float], discount: float, action_repeat: int) -> np.ndarray:
  limits = np.asarray(limits, np.float64)
  if limits.ndim != 1:
    raise ValueError(f'Expected one cost limit for each constraint, [C], got {limits.tolist()}.')
  if not np.all(np.isfinite(limits) & (limits >= 0)):
    raise ValueError(f'Cost limits must be finite and not negative, got {limits.tolist()}.')
  if not 0.0 <= discount <= 1.0:
    raise ValueError(f'A discount must be between 0 and 1, got {discount}.')
  if action_repeat < 1:
    raise ValueError(f'action_repeat must be at least 1, got {action_repeat}.')
  return limits


@gin.register
def raw_budget(limits: Sequence[float], discount: float, action_repeat: int) -> np.ndarray:
  """The limits themselves [C], as in the paper.

  Much is admitted by that: at discount 0.995 and action repeat 2, a constant rate of cost with a value of 25 adds up to
  62.5 in an episode of 1,000 simulator steps.
  """
  return _check(limits, discount, action_repeat)


@gin.register
class EpisodicBudget:
  """The value, at the start of an episode, of a policy that spends its limit evenly over the episode.

  With T' = episode_length / action_repeat agent steps the budget is d (1 - g^T') / ((1 - g) T'). It tends to d as the
  discount g tends to 1. Where the action repeat does not divide the length, the last agent step is shorter, as it is
  in the environment.

  Args:
    episode_length: Simulator steps of an episode.
    share: Of the limit that imagined costs may reach. Less than 1 leaves room for models that expect less of the policy
      that was trained on them than comes (`launchers/evaluate.py --calibrate` tells).
  """

  def __init__(self, episode_length: int = 1000, share: float = 1.0):
    if episode_length < 1 or not 0.0 <= share <= 1.0:
      raise ValueError(f'EpisodicBudget: episode_length={episode_length} must be at least 1, and share={share} between '
                       '0 and 1.')
    self._episode_length = episode_length
    self._share = share

  def __call__(self, limits: Sequence[float], discount: float, action_repeat: int) -> np.ndarray:
    """Converts `limits` [C] into budgets [C]."""
    limits = self._share * _check(limits, discount, action_repeat)
    starts = np.arange(0, self._episode_length, action_repeat)  # Of agent steps, in simulator steps.
    durations = np.minimum(action_repeat, self._episode_length - starts)
    # The geometric sum term by term: exact for a discount of 1, too.
    return limits * np.sum(float(discount)**np.arange(len(starts)) * durations) / self._episode_length
