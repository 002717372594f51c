"""Tests of figures: what they draw, and that they are complete files."""

import numpy as np
import pytest

from benchmarks import synthetic_runs
from lambda_kit.analysis import drawing
from lambda_kit.analysis.reports import collection
from lambda_kit.analysis.reports import comparison_figures
from lambda_kit.analysis.reports import learner_figures
from lambda_kit.analysis.reports import runs
from lambda_kit.analysis.reports import statistics_figures
from lambda_kit.analysis.reports import summary

_COLORS = drawing.algorithm_colors(['LAMBDA', 'PPO'])


@pytest.fixture(scope='module')
def collected(tmp_path_factory):
  """LAMBDA ends with returns 10, 11 and 12, PPO with 20, 21 and 22, CPO is under way."""
  folder = tmp_path_factory.mktemp('runs')
  for seed in range(3):
    synthetic_runs.write_run(folder / f'lambda-{seed}', seed=seed)
    synthetic_runs.write_run(folder / f'ppo-{seed}', algorithm='PPO', seed=seed, episode_return=20.0, cost_return=40.0)
    synthetic_runs.write_run(folder / f'cpo-{seed}', algorithm='CPO', seed=seed, stop_after=1 + seed)
  return collection.collect(*runs.read_runs(folder))


def _texts(figure):
  return [text.get_text() for text in figure.legends[0].get_texts()]


class TestLearningCurves:
  def test_medians_bands_and_limit(self, collected):
    figure = comparison_figures.learning_curves(collected, ['PointGoal1'], _COLORS)
    returns, costs, regrets = figure.axes
    assert costs.get_ylim()[0] == regrets.get_ylim()[0] == 0.0
    (line,) = [line for line in returns.lines if line.get_color() == _COLORS['LAMBDA']]
    np.testing.assert_allclose(line.get_data(), [[250_000, 500_000, 750_000, 1_000_000], [2.75, 5.5, 8.25, 11.0]])
    assert [line.get_ydata()[0] for line in costs.lines if line.get_gid() == 'limit'] == [25.0]
    dashed = [line.get_ydata()[0] for line in returns.lines if line.get_linestyle() == '--']
    assert any(value == pytest.approx(24.6350742) for value in dashed)  # CPO's published return after 10M steps.
    texts = _texts(figure)
    assert 'LAMBDA (3 seeds)' in texts and 'CPO (3 seeds, unfinished)' in texts and 'limit' in texts

  def test_unfinished_runs_are_drawn_as_far_as_all_of_them_are(self, collected):
    (cpo,) = [group for group in collected.groups if group.algorithm == 'CPO']
    steps, band = drawing.group_band(cpo, 'episode_return')
    assert steps.tolist() == [250_000] and band.value.tolist() == [2.75]

  def test_seeds_that_logged_at_different_steps(self, tmp_path):
    synthetic_runs.write_run(tmp_path / 'a', evaluations=4)
    synthetic_runs.write_run(tmp_path / 'b', evaluations=2, seed=1)
    groups = collection.collect(*runs.read_runs(tmp_path)).groups
    assert len(groups) == 2  # Evaluated at other steps: other configurations, which are not averaged.


class TestOtherFigures:
  def test_trade_off(self, collected):
    figure = comparison_figures.trade_off(summary.sg6_summary([]), _COLORS)
    bars = [bar.get_height() for bar in figure.axes[0].patches]
    assert len(bars) == 15 and max(bars) == 1.0  # Five published algorithms, three metrics.
    (sg6,) = summary.summarize(collected)
    assert 'LAMBDA' not in _texts(comparison_figures.trade_off(sg6, _COLORS))  # One task is no average.

  def test_sample_efficiency(self, collected):
    (sg6,) = summary.summarize(collected)
    ratios = comparison_figures.sample_efficiencies(collected, sg6)
    # LAMBDA ends with 11. PPO's seeds have 5, 10, 15, 20 / 5.25, 10.5, 15.75, 21 / 5.5, 11, ...: at 750k, 750k, 500k.
    assert ratios['PointGoal1']['PPO'].ratio == pytest.approx((0.75 + 0.75 + 0.5) / 3)
    assert ratios['PointGoal1']['PPO'].relation == '=' and not ratios['PointGoal1']['PPO'].safe
    assert ratios['PointGoal1']['TRPO-Lagrangian (paper)'].relation == '<='  # 8.9 after 1M, 19.2 after 10M.
    assert ratios['DoggoGoal1']['TRPO-Lagrangian (paper)'].relation == '>'  # Never 5.9.
    figure = comparison_figures.sample_efficiency(ratios, _COLORS)
    marks = [text.get_text() for text in figure.axes[0].texts]
    assert '✓' in marks and '✗' in marks

  def test_runs_of_another_protocol_are_not_compared_with_published_ones(self, tmp_path):
    synthetic_runs.write_run(tmp_path / 'lambda', 'PointGoal2')
    synthetic_runs.write_run(tmp_path / 'ppo', algorithm='PPO', limit=10.0)  # On PointGoal1.
    collected = collection.collect(*runs.read_runs(tmp_path))
    sg6, others = summary.summarize(collected)
    assert 'PPO' not in comparison_figures.sample_efficiencies(collected, sg6)['PointGoal1']
    assert not comparison_figures.sample_efficiencies(collected, others)  # There is no LAMBDA to compare with.

  def test_statistics(self, collected):
    (sg6,) = summary.summarize(collected)
    scores = summary.normalized_scores(collected, sg6)
    assert list(scores) == ['PPO', 'LAMBDA']
    np.testing.assert_allclose(scores['LAMBDA'], [np.array([10.0, 11.0, 12.0]) / 17.47603575])
    assert len(statistics_figures.aggregates(scores, _COLORS).axes) == 4
    assert len(statistics_figures.profiles(scores, _COLORS).axes[0].lines) == 2

  def test_learners(self, collected):
    figure = learner_figures.predicted_cost(collected, _COLORS)
    values = {line.get_linestyle(): line.get_ydata()[0] for line in figure.axes[0].lines}
    assert values == {'-': pytest.approx(0.1), '--': pytest.approx(0.06)}  # Imagined, and 30 in 500 steps.
    assert len(learner_figures.multipliers(collected, _COLORS).axes) == 2
    assert len(learner_figures.disagreement(collected, _COLORS).axes) == 3

  def test_nothing_to_draw(self):
    nothing = collection.collect([])
    assert comparison_figures.learning_curves(nothing, ['PointGoal1'], _COLORS) is None
    assert comparison_figures.sample_efficiency({}, _COLORS) is None
    assert statistics_figures.aggregates({}, _COLORS) is None and statistics_figures.profiles({}, _COLORS) is None
    assert learner_figures.predicted_cost(nothing, _COLORS) is None

  def test_files(self, collected, tmp_path):
    figure = learner_figures.multipliers(collected, _COLORS)
    png = drawing.save(figure, tmp_path / 'new', 'figure')
    assert png.startswith(b'\x89PNG') and (tmp_path / 'new' / 'figure.png').read_bytes() == png
    svg = (tmp_path / 'new' / 'figure.svg').read_text()
    assert svg.rstrip().endswith('</svg>') and 'multiplier' in svg
    drawing.save(learner_figures.multipliers(collected, _COLORS), tmp_path / 'again', 'figure')
    assert (tmp_path / 'again' / 'figure.svg').read_text() == svg
    assert len(list((tmp_path / 'new').iterdir())) == 2

  def test_colors_stay_with_their_algorithms(self):
    more = drawing.algorithm_colors(['PPO', 'LAMBDA', 'Another', *map(str, range(20))])
    assert more['PPO'] == _COLORS['PPO'] == more['PPO (paper)'] and len({more[str(i)] for i in range(20)}) == 20
