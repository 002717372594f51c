"""The measurement with few runs; `launchers/benchmark.py --parts=report` runs it with a thousand."""

import pytest

from benchmarks import report_speed


@pytest.mark.slow
def test_the_figures_fit_together():
  figures = report_speed.measure(num_seeds=1, log_lengths=(10, 1000))
  few, many = figures
  assert few['runs'] == many['runs'] == 40  # 8 tasks, 5 algorithms.
  assert many['log_bytes'] > 20 * few['log_bytes']
  assert many['peak_rss_bytes'] < 1.2 * few['peak_rss_bytes']
  for row in figures:
    assert row['seconds'] > 0 and row['cpu_seconds'] > 0 and row['page_bytes'] > 100_000
  _, headings, lines = report_speed.table(figures)
  assert [line[:2] for line in lines] == [['40', '10'], ['40', '1,000']]
  assert all(len(line) == len(headings) for line in lines)
