"""Throughput of actors in Ray's processes, at tiny size; `launchers/benchmark.py --parts=actors` is the whole."""

import pytest

from benchmarks import actor_speed
from tests.benchmarks import tiny_sizes


def test_actors_are_measured():
  pytest.importorskip('ray')
  rows = actor_speed.measure(tiny_sizes.ROOT, counts=(2,), episodes=4, bindings=tiny_sizes.VECTORS.bindings)
  assert [row['actors'] for row in rows] == [0, 2]
  assert all(row['steps_per_second'] > 0 for row in rows)


def test_the_table_compares_with_one_actor():
  rows = [
    dict(actors=0, steps_per_second=80.0),
    dict(actors=1, steps_per_second=50.0),
    dict(actors=4, steps_per_second=175.0),
  ]
  _, headings, lines = actor_speed.table(rows)
  assert len(headings) == 3
  assert lines == [['none: the synchronous loop', '80', '1.60'], ['1', '50', '1.00'], ['4', '175', '3.50']]
