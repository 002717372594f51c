"""The race of epochs and bare steps, tiny; `launchers/benchmark.py --parts=baselines` runs it on PointGoal1."""

import pytest

from benchmarks import baseline_speed
from lambda_kit import components  # noqa: F401 (registers)
from tests.benchmarks import tiny_sizes


def test_epochs_race_bare_steps():
  result = baseline_speed.measure(
    'trpo_lagrangian',
    tiny_sizes.ROOT,
    ('gin/tasks/grid.gin',),
    (
      'GridCmdp.episode_length = 20',
      'GaussianPolicy.hidden_sizes = (8,)',
      'ObservationCritic.hidden_sizes = (8,)',
      'OnPolicyAgent.critic_iterations = 2',
      'RolloutLoop.steps_per_epoch = 80',
    ),
    num_environments=4,
    rounds=1,
  )
  assert result['share'] == pytest.approx(result['steps_per_second'] / result['bare_steps_per_second'])
  # 80 steps in bare_seconds / share, of which the update is a part.
  assert 0 < result['update_seconds'] < 80 / result['steps_per_second']
  assert result['update_cpu_seconds'] > 0
  _, headings, rows = baseline_speed.table({'trpo_lagrangian': result})
  assert [len(row) for row in rows] == [len(headings)]
