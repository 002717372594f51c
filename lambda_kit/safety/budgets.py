"""What a solver compares cost values with, given limits of episodes' cost returns.

A limit d bounds the undiscounted costs of an episode. A cost value is discounted, and one of its steps is an agent
step: `action_repeat` simulator steps, whose costs are summed.
"""

import numpy as np

import gin
from lambda_kit import core
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit.environments import spec as spec_lib


@gin.register
def raw_budget(spec: core.EnvironmentSpec, discount: float) -> np.ndarray:
  """The limits themselves [C], as in the paper.

  Much is admitted by that: at discount 0.995 and action repeat 2, a constant rate of cost with a value of 25 adds up to
  62.5 in an episode of 1,000 simulator steps.
  """
  _check(discount)
  return np.asarray(spec.cost_limits, np.float64)


@gin.register
@ranges.checked
class EpisodicBudget:
  """The value of a policy that spends its limit evenly over the episode.

  Critics bootstrap through time limits, so what they estimate is the value of going on for ever: with T' =
  episode_length / action_repeat agent steps an even rate of d / T' is worth d / ((1 - g) T').

  Args:
    until_time_limit: Whether values end with the episode, as those of a planner or of critics that know the time. The
      value at the start of an episode is then d (1 - g^T') / ((1 - g) T'), which tends to d as the discount g tends to
      1. Where the action repeat does not divide the length, the last agent step is shorter, as it is in the
      environment.
    share: Of the limit that imagined costs may reach. Less than 1 leaves room for models that expect less of the policy
      that was trained on them than comes (`launchers/evaluate.py --calibrate` tells).
  """

  def __init__(self, share: ranges.Share = 1.0, until_time_limit: bool = False):
    self._share = share
    self._until_time_limit = until_time_limit

  def __call__(self, spec: core.EnvironmentSpec, discount: float) -> np.ndarray:
    """Budgets [C] for the limits of `spec`."""
    _check(discount)
    limits, length = self._share * np.asarray(spec.cost_limits), spec_lib.known_episode_length(spec, 'EpisodicBudget')
    if not self._until_time_limit:
      if discount == 1.0:
        raise errors.SetupError(
          'Undiscounted costs add up for ever, and no budget fits them: set LambdaAgent.cost_discount below 1, or '
          'EpisodicBudget.until_time_limit = True if values end with the episode.'
        )
      return limits * spec.action_repeat / (length * (1.0 - discount))
    starts = np.arange(0, length, spec.action_repeat)  # Of agent steps, in simulator steps.
    durations = np.minimum(spec.action_repeat, length - starts)
    # The geometric sum term by term: exact for a discount of 1, too.
    return limits * np.sum(float(discount) ** np.arange(len(starts)) * durations) / length


def _check(discount: float) -> None:
  if not 0.0 <= discount <= 1.0:
    raise ValueError(f'A discount must be between 0 and 1, got {discount}.')
