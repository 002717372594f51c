"""Statistics over seeds and tasks, after Agarwal et al. (2021): interquartile means, performance profiles, and
confidence intervals by stratified bootstrap.

The scores of an algorithm are a list with an array [S_m] for each task; tasks may have different numbers of seeds.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

Scores = Sequence[np.ndarray]  # M tasks, [S_m] each.
# From samples [..., S] to a statistic of each [...].
Statistic = Callable[[np.ndarray], np.ndarray]

_CHUNK = 1 << 22  # Numbers to compare at a time, which bounds memory.


class Estimate(NamedTuple):
  """A statistic and its confidence interval."""

  value: np.ndarray
  low: np.ndarray
  high: np.ndarray


def interquartile_mean(samples: np.ndarray) -> np.ndarray:
  """Mean of samples [..., S] without the lowest and the highest quarter."""
  count = samples.shape[-1]
  cut = int(0.25 * count)
  return np.sort(samples, axis=-1)[..., cut : count - cut].mean(axis=-1)


def mean(samples: np.ndarray) -> np.ndarray:
  return samples.mean(axis=-1)


def median(samples: np.ndarray) -> np.ndarray:
  return np.median(samples, axis=-1)


def optimality_gap(samples: np.ndarray) -> np.ndarray:
  """Mean shortfall of normalised scores [..., S] below 1."""
  return np.maximum(1.0 - samples, 0.0).mean(axis=-1)


def estimate(
  scores: Scores, statistic: Statistic, seed: int = 0, repetitions: int = 2000, confidence: float = 0.95
) -> Estimate:
  """Estimates a statistic of all scores, with the percentile interval of a stratified bootstrap."""
  resampled = statistic(_resample(scores, np.random.default_rng(seed), repetitions))
  low, high = np.quantile(resampled, _tails(confidence), axis=0)
  return Estimate(statistic(np.concatenate(scores)), low, high)


def performance_profile(
  scores: Scores, thresholds: np.ndarray, seed: int = 0, repetitions: int = 500, confidence: float = 0.95
) -> Estimate:
  """Fraction of runs with a score above each threshold [T], with pointwise confidence intervals."""
  pooled = np.concatenate(scores)
  samples = np.sort(_resample(scores, np.random.default_rng(seed), repetitions), axis=-1)
  rows = max(1, _CHUNK // max(1, samples.shape[1] * len(thresholds)))
  shares = np.concatenate(
    [(samples[i : i + rows, :, np.newaxis] > thresholds).mean(axis=1) for i in range(0, repetitions, rows)]
  )
  low, high = np.quantile(shares, _tails(confidence), axis=0)
  return Estimate((pooled[:, np.newaxis] > thresholds).mean(axis=0), low, high)


def band(curves: np.ndarray) -> Estimate:
  """Median and 5-95 percentiles over seeds of curves [S, R]."""
  low, high = np.percentile(curves, (5.0, 95.0), axis=0)
  return Estimate(np.median(curves, axis=0), low, high)


def _resample(scores: Scores, rng: np.random.Generator, repetitions: int) -> np.ndarray:
  """Draws as many seeds as there are, with replacement, within each task: [repetitions, S_1 + ... + S_M]."""
  if not scores or any(len(task) == 0 for task in scores):
    raise ValueError('Each task needs at least one score.')
  return np.concatenate([task[rng.integers(len(task), size=(repetitions, len(task)))] for task in scores], axis=1)


def _tails(confidence: float) -> tuple[float, float]:
  return (1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0
