"""Intervals of ratios of sums over episodes."""

import numpy as np
import pytest

from lambda_kit.analysis.metrics import ratios


def test_ratios_are_those_of_sums():
  numerators = np.array([[1.0, 4.0], [3.0, 0.0]])
  found = ratios.ratio_of_sums(numerators, np.array([[1.0], [4.0]]))
  np.testing.assert_allclose(found.value, [4 / 5, 4 / 5])
  # Of two episodes the bootstrap draws the first twice, the second twice, or both: 1/1, 3/4, 4/5; and 4/1, 0/4, 4/5.
  np.testing.assert_allclose(found.low, [3 / 4, 0.0])
  np.testing.assert_allclose(found.high, [1.0, 4.0])


def test_a_single_episode_has_no_interval():
  found = ratios.ratio_of_sums(np.array([2.0]), np.array([4.0]))
  assert found.value == 0.5 and np.isnan(found.low) and np.isnan(found.high)


def test_nothing_to_divide_by_is_unknown_or_without_limit():
  found = ratios.ratio_of_sums(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 0.0]]))
  assert found.value[0] == 2.0 and found.low[0] == 1.0 and found.high[0] == np.inf
  assert np.isnan([found.value[1], found.low[1], found.high[1]]).all()
  # Draws of episodes that say nothing are left out.
  found = ratios.ratio_of_sums(np.array([2.0, 0.0]), np.array([1.0, 0.0]))
  assert found == (2.0, 2.0, 2.0)


@pytest.mark.parametrize('num_episodes', [5, 20])
def test_intervals_hold_the_truth_nine_times_in_ten(num_episodes):
  rng, hits = np.random.default_rng(0), 0
  repetitions = 400
  for i in range(repetitions):
    risk = rng.gamma(2.0, 0.5, num_episodes)  # Episodes differ.
    numerators, denominators = rng.poisson(30.0 * risk), rng.poisson(60.0 * risk)
    found = ratios.ratio_of_sums(numerators, denominators, seed=i)
    hits += found.low <= 0.5 <= found.high
  # Two standard errors of 400 draws are 0.03.
  assert 0.87 <= hits / repetitions <= 0.93
