"""Shares of a tiny run; `launchers/benchmark.py --parts=shares` measures one on PointGoal1."""

import time

import pytest

from benchmarks import run_shares
from lambda_kit import components  # noqa: F401 (registers)
from tests.benchmarks import tiny_sizes


@pytest.mark.slow
def test_shares_of_a_run_add_up():
  result = run_shares.measure(
    tiny_sizes.ROOT,
    ('gin/tasks/grid.gin',),
    tiny_sizes.VECTORS.bindings
    + (
      'experiment.environment_steps = 700',
      'experiment.evaluate_every = 1000',
      'experiment.evaluation_episodes = 1',
      'experiment.with_video = False',
      'PeriodicUpdates.first = 200',
      'PeriodicUpdates.initial_updates = 2',
      'PeriodicUpdates.every = 100',
      'PeriodicUpdates.updates = 2',
      'LambdaAgent.updates_per_call = 1',
    ),
    paper_seconds=1.0,
  )
  assert result['cycles'] == 4  # Updates at steps 200, 300, ..., 700; the first two are left out.
  shares = result['shares']
  assert all(0 < share < 1 for share in shares.values())
  assert sum(shares[name] for name in ('learner', 'environment', 'acting', 'everything else')) == pytest.approx(1)
  assert shares['storing'] < shares['everything else']
  # 100 updates of a second, beside which nothing else matters.
  assert result['paper_shares']['learner'] > 0.98
  _, headings, rows = run_shares.table(result)
  assert len(rows) == 5 and all(len(row) == len(headings) for row in rows)


def test_the_clock_tells_cycles_and_activities_apart():
  clock = run_shares.Clock()
  with clock.running('learner'):
    time.sleep(0.05)
  clock.end_cycle()
  with clock.running('environment'):
    time.sleep(0.02)
  time.sleep(0.01)
  with clock.running('learner'):
    time.sleep(0.03)
  clock.end_cycle()
  (cycle,) = clock.cycles()
  assert cycle['environment'][0] == pytest.approx(0.02, abs=0.01)
  assert cycle['learner'][0] == pytest.approx(0.03, abs=0.01)
  assert cycle['total'][0] > 0.06 > cycle['total'][1]  # Sleeping takes no time of a core.
