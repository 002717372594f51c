"""Capacity planning at tiny size; `launchers/benchmark.py --parts=capacity` compiles the sizes of use."""

import pytest

from lambda_kit.benchmarks import capacity
from tests.benchmarks import tiny_sizes


@pytest.fixture(scope='module', name='result')
def _result():
  points = (capacity.Point(2, 3, 5), capacity.Point(2, 3, 12, 'WholeGradient'))
  return list(capacity.measure(tiny_sizes.ROOT, tiny_sizes.VECTORS, points))[-1]


@pytest.mark.slow
def test_memory_is_the_compilers(result):
  selected, whole = result['points']
  assert (selected['num_starts'], whole['num_starts']) == (5, 12)
  assert selected['state_bytes'] == whole['state_bytes'] > result['posterior']['bytes'] > 0
  for row in (selected, whole):
    # The state is donated, so that a second one is never there; the batch is small.
    assert (
      row['state_bytes'] + row['temporary_bytes']
      < row['peak_bytes']
      < (1.1 * row['state_bytes'] + row['temporary_bytes'])
    )
  assert selected['gflop'] < whole['gflop'] and selected['temporary_bytes'] < whole['temporary_bytes']
  # K = 2 columns and a variance of the P that are sampled, and a mean of all.
  assert result['posterior']['columns'] == 2
  assert result['posterior']['bytes'] > 4 * 4 * result['posterior']['parameters']


def test_replay_of_the_papers_runs():
  images = {(row['environment_steps'], row['num_actions']): row['image'] for row in capacity.replay_bytes()}
  # 500,000 steps and a moment more for each of 1,000 episodes: a picture, 2 actions, reward, cost, terminal.
  assert images[1_000_000, 2] == 501_000 * (64 * 64 * 3 + 4 * 5)
  assert images[2_000_000, 12] == 1_002_000 * (64 * 64 * 3 + 4 * 15)


@pytest.mark.parametrize('count, expected', [(1, 14.0), (2, 7.0), (3, 5.0), (9, 4.0)])
def test_longest_runs_go_first(count, expected):
  # On three machines: 4 + 1, 3 + 2, 2 + 2.
  assert capacity.makespan([1, 2, 3, 4, 2, 2], count) == expected


def test_the_benchmark_by_hand():
  rows = capacity.plan_benchmark(1e12, {1_000_000: 100, 2_000_000: 200})
  row = next(row for row in rows if row['gpus'] == 1 and row['tflops'] == 5)
  # 9M steps in all; 1.4 times as many with evaluations. 900 updates of 0.2 s, 4.5M agent steps of 8 ms, 9M of 0.5 ms.
  seconds = 900 * 0.2 + 1.4 * 4.5e6 * 8e-3 + 1.4 * 9e6 * 0.5e-3
  assert row['runs'] == 6 * 8 * 5
  assert row['gpu_hours'] == pytest.approx(seconds * 20 / 3600) == pytest.approx(24 * row['days'])
  assert row['busy'] == pytest.approx(1.0)
  many = next(row for row in rows if row['gpus'] == 64 and row['tflops'] == 5)
  assert many['days'] < row['days'] / 50 and many['busy'] < 1


@pytest.mark.slow
def test_the_page(result, tmp_path):
  large = dict(result['points'][0], peak_bytes=int(8e9))
  capacity.write(result | {'points': [*result['points'], large]}, tmp_path)
  page = (tmp_path / 'capacity.md').read_text('utf-8')
  lines = [line for line in page.splitlines() if line.startswith('| SelectedGradient')]
  assert lines[-1].endswith('| 8.00 | - | 1 | 2 | 9 |')  # Of 8, 16, 24 and 80 GB, 90% can be used.
  assert '| 1,000,000 | 2 | 6.17 |' in page and '240 runs' in page
  assert max(map(len, page.splitlines())) <= 160
