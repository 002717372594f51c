"""A small version of the benchmark; `launchers/benchmark.py` runs it whole."""

import pytest

from benchmarks import contenders
from benchmarks import environment_speed


def _counting(factor):
  """Work that takes 10 ms, or a multiple of it, for each of two steps."""
  import time

  def work(seed):
    time.sleep(0.02 * factor)
    return 2

  return work


def _failing():
  raise ValueError('no such task')


def test_contenders_take_turns_and_their_ratio_is_found():
  times = contenders.take_turns({'slow': (_counting, dict(factor=4)), 'fast': (_counting, dict(factor=1))}, rounds=3)
  assert times['fast'].shape == (3,)
  assert contenders.ratio(times['slow'], times['fast']) == pytest.approx(4.0, rel=0.25)


def test_a_contender_that_fails_is_named():
  with pytest.raises(RuntimeError, match='bad failed: ValueError: no such task'):
    contenders.take_turns({'bad': (_failing, {})}, rounds=1)


@pytest.mark.slow
def test_the_environment_is_faster_than_safety_gymnasium():
  """Far below what is measured (see docs/speed.md), so that noise can't fail it."""
  result = environment_speed.measure('SafetyPointGoal1-v0', rounds=1, agent_steps=100)
  assert result['images']['times_faster'] > 2.5
  assert result['vectors']['times_faster'] > 1.5
  assert result['resets']['ours_ms'] < result['resets']['theirs_ms'] / 10
