"""Tests of statistics over seeds and tasks: by hand, and against rliable."""

import numpy as np
import pytest

from lambda_kit.analysis.metrics import efficiency
from lambda_kit.analysis.metrics import statistics

# 6 tasks of 5 runs, and what rliable 1.2.0 says about them: library.get_interval_estimates with 50,000 repetitions of
# metrics.aggregate_iqm, aggregate_mean and aggregate_optimality_gap, library.create_performance_profile with 20,000.
_SCORES = [
  np.array(task)
  for task in (
    [2.056, 1.142, 0.026, 0.305, 0.437],
    [0.895, 0.731, 1.064, 0.078, 0.465],
    [2.171, 0.923, 2.66, 1.525, 0.132],
    [0.279, 0.854, 0.162, 1.5, 0.563],
    [0.615, 1.774, 1.813, 0.259, 0.303],
    [0.902, 0.566, 1.75, 0.169, 0.887],
  )
]
_RLIABLE = {
  statistics.interquartile_mean: (0.7595, 0.5145, 1.0834),
  statistics.mean: (0.9002, 0.6737, 1.1304),
  statistics.optimality_gap: (0.3483, 0.2302, 0.4704),
}
_THRESHOLDS = np.array([0.25, 0.5, 1.0, 1.5])
_RLIABLE_PROFILE = (
  [0.8333333, 0.6333333, 0.3333333, 0.2333333],
  [0.7, 0.4666667, 0.1666667, 0.1],
  [0.9666667, 0.8, 0.5, 0.3666667],
)


class TestAgainstRliable:
  @pytest.mark.parametrize('statistic', list(_RLIABLE), ids=lambda function: function.__name__)
  def test_aggregates(self, statistic):
    value, low, high = _RLIABLE[statistic]
    estimate = statistics.estimate(_SCORES, statistic, repetitions=20_000)
    np.testing.assert_allclose(estimate.value, value, atol=1e-9)
    np.testing.assert_allclose([estimate.low, estimate.high], [low, high], atol=0.01)

  def test_performance_profile(self):
    profile = statistics.performance_profile(_SCORES, _THRESHOLDS, repetitions=4000)
    np.testing.assert_allclose(profile.value, _RLIABLE_PROFILE[0], atol=1e-6)
    # Shares of 30 runs: the quantiles may differ by one of them.
    np.testing.assert_allclose(profile.low, _RLIABLE_PROFILE[1], atol=1.01 / 30)
    np.testing.assert_allclose(profile.high, _RLIABLE_PROFILE[2], atol=1.01 / 30)


class TestByHand:
  def test_interquartile_mean(self):
    # Of 8 values 2 are cut off at either end: the mean of 2, 3, 4 and 7.
    values = np.array([100.0, 1.0, 3.0, 2.0, 4.0, 7.0, -9.0, 8.0])
    np.testing.assert_allclose(statistics.interquartile_mean(values), 4.0)
    # Of 5 values one is, of 3 none.
    np.testing.assert_allclose(statistics.interquartile_mean(np.array([5.0, 1.0, 2.0, 3.0, 4.0])), 3.0)
    np.testing.assert_allclose(statistics.interquartile_mean(np.array([[0.0, 0.0, 9.0], [1.0, 1.0, 1.0]])), [3.0, 1.0])

  def test_bootstrap_is_stratified(self):
    # Drawn within tasks, the mean is always that of 0 and 10. Drawn from the pool it would vary from 0 to 10.
    estimate = statistics.estimate([np.zeros(3), np.full(3, 10.0)], statistics.mean)
    assert estimate == (5.0, 5.0, 5.0)

  def test_bootstrap_of_two_runs(self):
    # The mean of two draws from 0 and 1 is 0, 0.5 or 1, with probabilities 1/4, 1/2 and 1/4.
    wide = statistics.estimate([np.array([0.0, 1.0])], statistics.mean, confidence=0.95)
    assert wide == (0.5, 0.0, 1.0)
    narrow = statistics.estimate([np.array([0.0, 1.0])], statistics.mean, confidence=0.4)
    assert narrow == (0.5, 0.5, 0.5)

  def test_tasks_may_have_different_numbers_of_seeds(self):
    estimate = statistics.estimate([np.array([1.0]), np.array([2.0, 2.0, 3.0])], statistics.mean)
    assert estimate.value == 2.0 and estimate.low < 2.0 < estimate.high
    with pytest.raises(ValueError, match='needs at least one score'):
      statistics.estimate([np.array([])], statistics.mean)

  def test_band(self):
    # 0, ..., 100 has its 5th and 95th percentiles at 5 and 95.
    curves = np.arange(101.0)[:, np.newaxis] + np.array([0.0, 10.0])
    band = statistics.band(curves)
    np.testing.assert_allclose(band, [[50.0, 60.0], [5.0, 15.0], [95.0, 105.0]])

  def test_profile_of_few(self):
    profile = statistics.performance_profile([np.array([0.5, 1.0]), np.array([1.5, 2.0])], np.array([0.0, 1.0, 2.0]))
    np.testing.assert_allclose(profile.value, [1.0, 0.5, 0.0])  # Above 1.0 are 1.5 and 2.0.


class TestEfficiency:
  def test_measured(self):
    steps = [np.array([10, 20, 30])] * 2
    # 5 is reached at 20 and at 30: 25 steps on average, 2.5 times 10. The costs are then 20 and 40, 30 in the middle.
    found = efficiency.measure(
      steps, [np.array([1, 5, 6]), np.array([1, 2, 5])], [np.array([9, 20, 9]), np.array([9, 9, 40])], 5.0, 10, 25.0
    )
    assert found == efficiency.Efficiency(2.5, '=', False) and str(found) == '2.5×'

  def test_a_seed_that_never_gets_there_leaves_a_bound(self):
    found = efficiency.measure(
      [np.array([10, 20]), np.array([10, 40])],
      [np.array([1, 5]), np.array([1, 2])],
      [np.array([9, 20]), np.array([9, 20])],
      5.0,
      10,
      25.0,
    )
    assert found == efficiency.Efficiency(2.0, '>', True) and str(found) == '> 2×'

  def test_bounds_from_points(self):
    points = [(10, 1.0, True), (100, 6.0, False)]
    assert efficiency.bound(points, 5.0, 10) == efficiency.Efficiency(10.0, '<=', False)
    assert efficiency.bound(points, 0.5, 10) == efficiency.Efficiency(1.0, '<=', True)
    assert efficiency.bound(points, 7.0, 10) == efficiency.Efficiency(10.0, '>', False)
