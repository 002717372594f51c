"""The sweeps at tiny size; `launchers/benchmark.py --parts=scaling` runs them at those of use."""

import pytest

from benchmarks import scaling
from tests.benchmarks import tiny_sizes

_BASE = {'N': 3, 'B': 2, 'L': 6, 'H': 4, 'width': 16}  # That of `tiny_sizes`.


@pytest.fixture(scope='module')
def result():
  return scaling.measure(tiny_sizes.ROOT, tiny_sizes.VECTORS, _BASE, {'N': (1, 3)}, rounds=1)


@pytest.mark.slow
def test_rows_are_there_and_flop_grow_as_they_must(result):
  one, three = result['sweeps']['N']
  assert (one['value'], three['value']) == (1, 3)
  assert one['gflop'] < three['gflop'] < 3 * one['gflop']  # Samples share the model's update and the critics.
  assert one['temporary_mb'] > 0 and three['seconds'] > 0
  assert 0 < result['exponents']['N']['gflop'] < 1


def test_memory_comes_from_the_compiler():
  rows = scaling.measure_memory(tiny_sizes.VECTORS, tiny_sizes.ROOT, {'H': (4,)})
  assert rows['H'][0].keys() == {'value', 'gflop', 'temporary_mb'}


def test_exponents_are_those_of_power_laws():
  rows = [dict(value=value, seconds=0.3 * value**1.5) for value in (1, 2, 4, 8)]
  assert scaling._exponent(rows, 'seconds') == pytest.approx(1.5)


@pytest.mark.slow
def test_table_and_figure_are_written(result, tmp_path):
  scaling.write(result | {'paper': {'N': [dict(value=5, gflop=1200.0, temporary_mb=4000.0)]}}, tmp_path)
  lines = (tmp_path / 'scaling.md').read_text('utf-8').splitlines()
  assert lines[0].startswith('An update of the learner around N = 3')
  assert lines[2].startswith('| changed |') and len({line.count('|') for line in lines[2:]}) == 1
  assert "| paper's size, vectors, N = 5 |  |  | 1200 | 4000 |" in lines
  assert (tmp_path / 'scaling.png').stat().st_size > 10_000
