"""Differences between algorithms in reports."""

import numpy as np
import pytest

from benchmarks import synthetic_runs
from lambda_kit.analysis.reports import collection
from lambda_kit.analysis.reports import paired_table
from lambda_kit.analysis.reports import report
from lambda_kit.analysis.reports import runs


@pytest.fixture
def folder(tmp_path):
  """LAMBDA with seeds 0, 1, 2 and PPO with seeds 1, 2, 3: they have two in common."""
  for algorithm, seeds, last, cost in (('LAMBDA', (0, 1, 2), 12.0, 20.0), ('PPO', (1, 2, 3), 20.0, 50.0)):
    for seed in seeds:
      # PPO's lead is not that of each seed.
      extra = 2.0 if (algorithm, seed) == ('PPO', 2) else 0.0
      name = f'{algorithm}-{seed}'
      synthetic_runs.write_run(
        tmp_path / 'runs' / name, algorithm=algorithm, seed=seed, episode_return=last + extra, cost_return=cost
      )
  return tmp_path / 'runs'


def test_differences_are_those_of_common_seeds(folder):
  collected = collection.collect(*runs.read_runs(folder))
  head, _, line, *_ = paired_table.to_markdown(collected).splitlines()
  cells = line.strip('| ').split(' | ')
  assert head.startswith('| task | algorithm | minus |') and cells[:4] == ['PointGoal1', 'PPO', 'LAMBDA', '2']
  curves = {(run.identity.algorithm, run.identity.seed): run.curves for group in collected.groups for run in group.runs}
  difference = lambda name, last: np.mean(
    [np.subtract(*(curves[algorithm, seed][name].values[-last:] for algorithm in ('PPO', 'LAMBDA'))) for seed in (1, 2)]
  )
  returns, costs, regrets = difference('episode_return', 3), difference('cost_return', 3), difference('cost_regret', 1)
  assert returns > 5.0 and costs > 10.0
  assert cells[4].startswith(f'{returns:+.2f} (') and cells[5] == '0.5'
  assert cells[6] == f'{costs:+.1f} ({costs:+.1f} to {costs:+.1f})'  # Costs do not depend on the seed.
  assert cells[8].startswith(f'{regrets:+.4f} (')


def test_reports_and_pages_have_them(folder, tmp_path):
  report.write_report(folder, tmp_path / 'out')
  text = (tmp_path / 'out' / 'tables' / 'paired.md').read_text()
  assert text.count('| PointGoal1 |') == 1 and 'sign-flip' in text
  assert 'tables/paired.md' in (tmp_path / 'out' / 'index.html').read_text()


def test_without_common_seeds_there_is_nothing(tmp_path):
  synthetic_runs.write_run(tmp_path / 'runs' / 'lambda', seed=0)
  synthetic_runs.write_run(tmp_path / 'runs' / 'ppo', algorithm='PPO', seed=1)
  collected = collection.collect(*runs.read_runs(tmp_path / 'runs'))
  assert paired_table.to_markdown(collected) == paired_table.to_html(collected) == ''
