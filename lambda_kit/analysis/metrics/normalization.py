"""The paper's normalisation by unconstrained PPO, which makes scores of different tasks comparable (appendix):

  J(pi) / J^PPO,   max(0, J_c(pi) - d) / max(1e-6, J_c^PPO - d),   rho_c(pi) / rho_c^PPO,

all after the same number of environment steps.
"""

from collections.abc import Sequence
import dataclasses

import numpy as np

_MIN_EXCESS = 1e-6


@dataclasses.dataclass(frozen=True)
class Metrics:
  """The three metrics of an algorithm on a task."""

  episode_return: float
  cost_return: float  # Summed over constraints.
  cost_regret: float  # Likewise.
  excess: float  # J_c - d, summed over constraints. Negative if costs are within their limits.
  violation: float  # max(0, J_c - d), summed over constraints.
  safe: bool  # Whether each cost return is within its limit.
  seeds: int = 0  # Number of seeds behind the median; 0 if unknown.

  @property
  def values(self) -> tuple[float, float, float]:
    return self.episode_return, self.cost_return, self.cost_regret


def make_metrics(
  episode_return: float,
  cost_return: Sequence[float],
  cost_regret: Sequence[float],
  cost_limit: Sequence[float],
  seeds: int = 0,
) -> Metrics:
  """Makes metrics of J(pi), J_c(pi) [C], rho_c(pi) [C] and d [1 or C]."""
  excess = np.asarray(cost_return, np.float64) - np.asarray(cost_limit, np.float64)
  return Metrics(
    float(episode_return),
    float(np.sum(cost_return)),
    float(np.sum(cost_regret)),
    float(excess.sum()),
    float(np.maximum(excess, 0.0).sum()),
    bool(np.all(excess <= 0.0)),
    seeds,
  )


def normalize(metrics: Metrics, ppo: Metrics) -> tuple[float, float, float]:
  """Returns the three metrics in units of PPO's. NaN if PPO's return or regret is not positive."""
  ratio = lambda value, unit: value / unit if unit > 0.0 else float('nan')
  return (
    ratio(metrics.episode_return, ppo.episode_return),
    metrics.violation / max(_MIN_EXCESS, ppo.excess),
    ratio(metrics.cost_regret, ppo.cost_regret),
  )


def scale_to_unit(values: Sequence[float], higher_is_better: bool) -> np.ndarray:
  """Scales a metric of several algorithms so that the best one has 1 and the worst 0; all have 1 if they are equal."""
  signed = np.asarray(values, np.float64) * (1.0 if higher_is_better else -1.0)
  low, high = np.nanmin(signed), np.nanmax(signed)
  return np.where(np.isnan(signed), np.nan, 1.0) if high == low else (signed - low) / (high - low)
