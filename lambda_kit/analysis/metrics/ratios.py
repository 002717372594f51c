"""Ratios of sums over episodes, with confidence intervals.

Steps of an episode depend on each other, episodes do not: the bootstrap draws whole episodes.
"""

import functools

import numpy as np

from lambda_kit.analysis.metrics import statistics

CONFIDENCE = 0.9

_REPETITIONS = 2000


def ratio_of_sums(
  numerators: np.ndarray, denominators: np.ndarray, seed: int = 0, confidence: float = CONFIDENCE
) -> statistics.Estimate:
  """Estimates sum(numerators) / sum(denominators) over E episodes.

  Percentiles are moved outwards as far as Student's t is wider than a Normal (Hesterberg 2015, the expanded percentile
  interval): few episodes would else give intervals that are too narrow.

  Args:
    numerators: Sums within each episode, [E, ...].
    denominators: Likewise, of a shape that broadcasts.
    seed: Of the bootstrap.
    confidence: Of the interval.

  Returns:
    Arrays [...]. NaN where there is nothing to divide by or, for the interval, with a single episode; an infinite end
    where some draws of episodes have a denominator of 0.
  """
  from scipy import stats  # Here, since it is slow to import.

  numerators, denominators = np.broadcast_arrays(numerators, denominators)
  count, shape = len(numerators), numerators.shape[1:]
  numerators, denominators = (np.asarray(x, np.float64).reshape(count, -1) for x in (numerators, denominators))
  value = _divide(numerators.sum(axis=0), denominators.sum(axis=0))
  low, high = np.full((2, len(value)), np.nan)
  if count > 1:
    weights = _resample(count, seed)
    resampled = _divide(weights @ numerators, weights @ denominators)
    student = stats.t.ppf((1.0 + confidence) / 2.0, count - 1)
    tail = stats.norm.cdf(-student * np.sqrt(count / (count - 1)))
    for i, column in enumerate(resampled.T):
      column = np.sort(column[~np.isnan(column)])
      if len(column):
        last = len(column) - 1
        low[i], high[i] = column[int(np.floor(tail * last))], column[int(np.ceil((1.0 - tail) * last))]
  return statistics.Estimate(*(x.reshape(shape) for x in (value, low, high)))


@functools.lru_cache(maxsize=4)
def _resample(count: int, seed: int) -> np.ndarray:
  """How often each of E episodes is drawn, [repetitions, E]."""
  return np.random.default_rng(seed).multinomial(count, np.full(count, 1.0 / count), _REPETITIONS)


def _divide(numerators: np.ndarray, denominators: np.ndarray) -> np.ndarray:
  with np.errstate(divide='ignore', invalid='ignore'):
    return numerators / denominators
