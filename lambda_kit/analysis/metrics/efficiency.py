"""Sample efficiency: the steps that an algorithm needs to match another one's final return (the paper's appendix)."""

from collections.abc import Sequence
import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Efficiency:
  """Steps that an algorithm needs, in units of the other's."""

  ratio: float
  relation: str  # '=' if it was measured, '<=' or '>' if only a bound is known.
  safe: bool  # Whether costs were within the limit by then, or at the end if the return was never matched.

  def __str__(self) -> str:
    sign = {'=': '', '<=': '≤ ', '>': '> '}[self.relation]
    return f'{sign}{self.ratio:.2g}×'


def measure(
  steps: Sequence[np.ndarray],
  returns: Sequence[np.ndarray],
  costs: Sequence[np.ndarray],
  target: float,
  target_steps: int,
  cost_limit: float,
) -> Efficiency:
  """Compares learning curves with a return that another algorithm has after `target_steps`.

  Args:
    steps: Steps of evaluations, [R] for each seed.
    returns: Likewise, returns.
    costs: Likewise, cost returns.
    target: The return to match.
    target_steps: Steps that the other algorithm needed for it.
    cost_limit: d.

  Returns:
    The mean over seeds of the first step with such a return. If some seed never reached it: a lower bound, from the
    steps that all seeds took. Safety is that of the median cost over seeds.
  """
  reached = [np.flatnonzero(values >= target) for values in returns]
  if all(len(indices) for indices in reached):
    first = [indices[0] for indices in reached]
    needed = np.mean([values[i] for values, i in zip(steps, first)])
    cost = np.median([values[i] for values, i in zip(costs, first)])
    return Efficiency(float(needed / target_steps), '=', bool(cost <= cost_limit))
  shortest = min(values[-1] for values in steps)
  cost = np.median([values[-1] for values in costs])
  return Efficiency(float(shortest / target_steps), '>', bool(cost <= cost_limit))


def bound(points: Sequence[tuple[int, float, bool]], target: float, target_steps: int) -> Efficiency:
  """Bounds the steps by single points of a curve, at least one: (steps, return, safe) in the order of steps."""
  for steps, value, safe in points:
    if value >= target:
      return Efficiency(steps / target_steps, '<=', safe)
  last_steps, _, safe = points[-1]
  return Efficiency(last_steps / target_steps, '>', safe)
