"""When the learner learns."""

from typing import Protocol

import gin
from lambda_kit import ranges


class UpdateSchedule(Protocol):
  """The number of updates due. A function of the data so far, so that a resumed run takes the same updates."""

  def __call__(self, environment_steps: int) -> int:
    """Returns the total number of updates due after `environment_steps`."""


@gin.register
@ranges.checked
class PeriodicUpdates:
  """Some data first, then updates at regular intervals of environment steps (algorithm 2).

  Args:
    first: Environment steps before the first update. With 0, the first updates come before the first step: from an
      offline dataset, and without random actions.
    initial_updates: Number of updates then.
    every: Environment steps between two rounds of updates.
    updates: U, the number of updates in each round.
  """

  def __init__(
    self,
    first: ranges.Whole = 5000,
    initial_updates: ranges.Whole = 100,
    every: ranges.Count = 1000,
    updates: ranges.Whole = 100,
  ):
    self._first, self._initial_updates, self._every, self._updates = first, initial_updates, every, updates

  def __call__(self, environment_steps: int) -> int:
    if environment_steps < self._first:
      return 0
    return self._initial_updates + self._updates * ((environment_steps - self._first) // self._every)
