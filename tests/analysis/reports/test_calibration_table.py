"""Calibration in reports: what is read from workdirs, shown in tables and figures, and kept."""

import json

import pytest

from benchmarks import synthetic_runs
from lambda_kit.analysis import certificate
from lambda_kit.analysis import drawing
from lambda_kit.analysis.reports import archive
from lambda_kit.analysis.reports import calibration_table
from lambda_kit.analysis.reports import collection
from lambda_kit.analysis.reports import learner_figures
from lambda_kit.analysis.reports import problems as problems_lib
from lambda_kit.analysis.reports import report
from lambda_kit.analysis.reports import runs


def _certify(workdir):
  interval = certificate.Interval
  constraint = certificate.Constraint(
    limit=25.0,
    cost_return=interval(21.5, 11.0, 32.0),
    raw_forecast_over_observed=interval(0.6, 0.5, 0.7),
    forecast_over_observed=interval(0.9, 0.8, 1.1),
    bound_over_observed=interval(1.2, 1.0, 1.4),
    bound_covered=interval(0.93, 0.9, 0.96),
    bound_promised=0.95,
    level=2 / 3,
    covered_at_level=interval(0.6, 0.5, 0.7),
    covered_at_90=interval(0.82, 0.8, 0.84),
  )
  (workdir / 'evaluation').mkdir()
  episode_return = interval(20.0, 19.0, 21.0)
  found = certificate.Certificate('PointGoal1', 0, 1_000_000, 20, 10, 2, episode_return, {'a <b>|cost': constraint})
  certificate.write(workdir / 'evaluation', found)
  return found


@pytest.fixture
def folder(tmp_path):
  synthetic_runs.write_run(tmp_path / 'runs' / 'ppo', algorithm='PPO')
  _certify(synthetic_runs.write_run(tmp_path / 'runs' / 'lambda', held_out=True))
  return tmp_path / 'runs'


def test_runs_tell_their_certificate_and_their_last_scores(folder):
  found, problems = runs.read_runs(folder)
  with_models, without = sorted(found, key=lambda run: run.certificate is None)
  assert not problems and with_models.certificate == certificate.read(folder / 'lambda' / 'evaluation')
  assert with_models.held_out.environment_steps == 1_000_000
  (figures,) = with_models.held_out.figures
  assert figures['forecast_over_observed'] == pytest.approx(2 / 3) and figures['budget_share'] == 0.7
  assert with_models.curves['bound_over_observed'].values[-1] == pytest.approx(0.9)
  assert without.certificate is None and without.held_out is None and 'correction' not in without.curves


def test_a_damaged_certificate_is_a_problem_and_nothing_else(folder):
  path = folder / 'lambda' / 'evaluation' / 'calibration.json'
  path.write_text(json.dumps(dict(constraints={}, horizon=10)))
  found, (problem,) = runs.read_runs(folder)
  assert len(found) == 2 and all(run.certificate is None for run in found)
  assert problem.kind == problems_lib.UNREADABLE and problem.where == 'lambda/evaluation/calibration.json'


def test_each_certificate_and_each_run_has_its_line(folder):
  lines = calibration_table.to_markdown(collection.collect(*runs.read_runs(folder))).splitlines()
  assert lines[2:4] == [
    r'| PointGoal1 | LAMBDA | 0 | a <b>\|cost | 1,000,000 | 20 | 0.9 (0.8 to 1.1) | 0.6 (0.5 to 0.7) | '
    '1.2 (1 to 1.4) | 0.93 (0.9 to 0.96) | 0.95 | 0.82 (0.8 to 0.84) | 20 (19 to 21) | 21.5 (11 to 32) | 25 | — | — |',
    '| PointGoal1 | LAMBDA | 0 | 0 | 1,000,000 | in training | 0.667 | 0.5 | 0.9 | 0.8 | — | — | — | — | — | 11 '
    '| 0.7 |',
  ]
  assert (
    calibration_table.to_markdown(collection.collect([])) == calibration_table.to_html(collection.collect([])) == ''
  )


def test_reports_and_archives_have_it(folder, tmp_path):
  out = tmp_path / 'out'
  collected = report.write_report(folder, out)
  page = (out / 'index.html').read_text()
  assert '0.9 (0.8 to 1.1)' in page and 'a &lt;b&gt;|cost' in page and '<b>|cost' not in page
  assert '1.2 (1 to 1.4)' in (out / 'tables' / 'calibration.md').read_text()
  assert (out / 'figures' / 'held_out.svg').exists()
  assert 'calibration.md' in archive.write_archive(collected, out, tmp_path / 'kept')
  (folder / 'lambda' / 'evaluation' / 'calibration.json').unlink()
  (folder / 'lambda' / 'learner.jsonl').unlink()
  collected = report.write_report(folder, out)
  assert not (out / 'tables' / 'calibration.md').exists() and not (out / 'figures' / 'held_out.svg').exists()
  assert 'No run has forecasts of costs yet.' in (out / 'index.html').read_text()
  assert 'calibration.md' not in archive.write_archive(collected, out, tmp_path / 'kept_without')


def test_scores_of_training_are_drawn(folder):
  collected = collection.collect(*runs.read_runs(folder))
  figure = learner_figures.held_out(collected, drawing.algorithm_colors(['LAMBDA', 'PPO']))
  ends = [[line.get_ydata()[-1] for line in axes.lines] for axes in figure.axes]
  assert ends == [pytest.approx(values) for values in ([2 / 3, 0.9], [0.8], [11.0], [4 / 3, 0.7])]
