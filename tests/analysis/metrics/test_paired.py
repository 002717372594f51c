"""Paired differences, against scipy and against counting by hand."""

import numpy as np
import pytest
from scipy import stats

from lambda_kit.analysis.metrics import paired


def test_the_interval_is_students():
  rng = np.random.default_rng(0)
  first, second = rng.normal(3.0, 1.0, 7), rng.normal(0.0, 1.0, 7)
  found, expected = paired.difference(first, second), stats.ttest_rel(first, second).confidence_interval()
  assert found.value == pytest.approx(np.mean(first - second))
  assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize(
  'pairs, p',
  [
    ([1.0, 2.0, 3.0, 4.0, 5.0], 2 / 32),  # Only all signs, or none, reach so far.
    ([-0.1, -0.2, -0.3], 2 / 8),
    ([1.0, -1.0], 1.0),
    ([3.0, -1.0], 1.0),  # |3 - 1| or more: 3 + 1 twice, and 3 - 1 twice.
    ([1.0, 2.0, -1.0], 6 / 8),  # |2| or more: all but 2 - 1 - 1 and its mirror image.
    ([0.0, 0.0], 1.0),
  ],
)
def test_p_is_the_share_of_sign_flips_that_are_as_extreme(pairs, p):
  assert paired.difference(np.array(pairs), np.zeros(len(pairs))).p == pytest.approx(p)


def test_many_pairs_are_flipped_at_random():
  """Of -1 or 1 each: a sum of 10 or more of 20 takes at least 15 of one kind, 2 P(Binomial(20, 1/2) >= 15)."""
  pairs = np.repeat([1.0, -1.0], [15, 5])
  assert paired.sign_flip_p(pairs) == pytest.approx(2 * stats.binom.sf(14, 20, 0.5), abs=0.003)


def test_a_single_pair_says_nothing_about_chance():
  found = paired.difference(np.array([2.0]), np.array([1.0]))
  assert found.value == 1.0 and np.isnan(found.low) and found.p == 1.0
  with pytest.raises(ValueError, match='at least one pair'):
    paired.difference(np.zeros(0), np.zeros(0))
