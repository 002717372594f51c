"""Differences between two algorithms, paired by seed: runs of a seed share the environment's episodes.

Few seeds can't say much: with S of them, the smallest p-value of a sign-flip test is 2^(1 - S), 0.0625 for 5.
"""

import itertools
from typing import NamedTuple

import numpy as np
from scipy import stats

_MAX_EXACT = 16  # Seeds for which all sign flips are counted.
_DRAWS = 1 << 16  # Flips drawn for more of them.


class Difference(NamedTuple):
  """The mean of paired differences."""

  value: float
  low: float  # The 95% interval of Student's t; NaN for a single pair.
  high: float
  p: float  # Of the two-sided sign-flip test that differences are symmetric around 0.


def difference(first: np.ndarray, second: np.ndarray, confidence: float = 0.95) -> Difference:
  """The mean of `first` - `second`, both [S], one entry for each seed."""
  pairs = np.asarray(first, np.float64) - np.asarray(second, np.float64)
  if pairs.ndim != 1 or not len(pairs):
    raise ValueError(f'Differences need at least one pair of numbers, got the shape {pairs.shape}.')
  mean = float(pairs.mean())
  if len(pairs) == 1:
    return Difference(mean, np.nan, np.nan, 1.0)
  reach = stats.t.ppf((1.0 + confidence) / 2.0, len(pairs) - 1) * pairs.std(ddof=1) / np.sqrt(len(pairs))
  return Difference(mean, mean - float(reach), mean + float(reach), sign_flip_p(pairs))


def sign_flip_p(pairs: np.ndarray) -> float:
  """The share of sign flips of the differences [S] whose mean is at least as far from 0 as theirs.

  Exact for up to 16 pairs. Beyond, flips are drawn with a fixed seed, and theirs counts as one of them.
  """
  if len(pairs) <= _MAX_EXACT:
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=len(pairs))))
  else:
    signs = np.random.default_rng(0).choice((1.0, -1.0), (_DRAWS, len(pairs)))
    signs[0] = 1.0
  sums, own = np.abs(signs @ pairs), abs(pairs.sum())
  # The same numbers in another order may round to another sum.
  return float(np.mean(sums >= own - 1e-9 * np.abs(pairs).sum()))
