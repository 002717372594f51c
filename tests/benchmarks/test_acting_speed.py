"""The measurement at tiny size; `launchers/benchmark.py --parts=acting` runs it at the paper's."""

import pytest

from benchmarks import acting_speed
from tests.benchmarks import tiny_sizes


@pytest.mark.parametrize('size', [tiny_sizes.VECTORS, pytest.param(tiny_sizes.IMAGES, marks=pytest.mark.slow)])
def test_the_figures_fit_together(size):
  result = acting_speed.measure(size, tiny_sizes.ROOT, counts=(1, 3), rounds=2, calls=5)
  for row in (result['single'], *result['batched'].values()):
    assert 0 < row['median_ms'] <= row['p95_ms']
    assert row['cpu_ms'] > 0
  assert result['batched']['3']['ms_per_action'] == pytest.approx(result['batched']['3']['median_ms'] / 3)
  title, headings, rows = acting_speed.table({'tiny': result})
  assert '3 ms' in title
  assert [row[0] for row in rows] == ['tiny, one environment', 'tiny, k = 1', 'tiny, k = 3']
  assert all(len(row) == len(headings) for row in rows)
