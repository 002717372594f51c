"""The measure itself, and that powers of lidars help, small; `launchers/benchmark.py --parts=lidars` is the whole."""

import numpy as np
import pytest

from lambda_kit.benchmarks import lidar_resolution


def test_the_area_against_all_pairs():
  rng = np.random.default_rng(0)
  scores, is_positive = rng.integers(0, 10, 50).astype(float), rng.random(50) < 0.3
  pairs = scores[is_positive][:, None] - scores[~is_positive][None]
  assert lidar_resolution.auc(scores, is_positive) == pytest.approx(np.mean((pairs > 0) + 0.5 * (pairs == 0)))
  with pytest.raises(ValueError, match='both'):
    lidar_resolution.auc(scores, np.zeros(50, bool))


@pytest.mark.slow
def test_powers_tell_costs_in_layouts_that_were_not_seen():
  small = dict(num_train=8, num_test=6, updates=150, seeds=(0,))
  plain, powers = (lidar_resolution.measure(powers, **small) for powers in ((), (8, 24)))
  assert powers['test_auc'][0] > 0.95 and powers['test_auc'][0] > plain['test_auc'][0] + 0.1, (plain, powers)
  _, headings, rows = lidar_resolution.table({'none': plain, '8, 24': powers})
  assert [len(row) for row in rows] == [len(headings)] * 2
