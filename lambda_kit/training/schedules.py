"""When the learner learns."""

from typing import Protocol

import gin


class UpdateSchedule(Protocol):
  """The number of updates due. A function of the data so far, so that a resumed run takes the same updates."""

  def __call__(self, environment_steps: int) -> int:
    """Returns the total number of updates due after `environment_steps`."""


@gin.register
class PeriodicUpdates:
  """Some data first, then updates at regular intervals of environment steps (algorithm 2).

  Args:
    first: Environment steps before the first update. With 0, the first updates come before the first step: from an
      offline dataset, and without random actions.
    initial_updates: Number of updates then.
    every: Environment steps between two rounds of updates.
    updates: U, the number of updates in each round.
    early_rounds: Rounds at first that take `early_updates` instead. While a policy knows little, its episodes cost much
      and teach little: then updates are worth more than data.
    early_updates: Updates in each of these rounds.
  """

  def __init__(
    self,
    first: int = 5000,
    initial_updates: int = 100,
    every: int = 1000,
    updates: int = 100,
    early_rounds: int = 0,
    early_updates: int = 0,
  ):
    if min(first, initial_updates, updates, early_rounds, early_updates) < 0 or every < 1:
      raise ValueError(
        f'PeriodicUpdates: first={first}, initial_updates={initial_updates}, updates={updates}, '
        f'early_rounds={early_rounds} and early_updates={early_updates} must not be negative, and every={every} must '
        'be at least 1.'
      )
    self._first, self._initial_updates, self._every, self._updates = first, initial_updates, every, updates
    self._early_rounds, self._early_updates = early_rounds, early_updates

  def __call__(self, environment_steps: int) -> int:
    if environment_steps < self._first:
      return 0
    rounds = (environment_steps - self._first) // self._every
    early = min(rounds, self._early_rounds)
    return self._initial_updates + self._early_updates * early + self._updates * (rounds - early)
