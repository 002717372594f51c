"""Tests of what is reported about one run: the learning curve and the table of evaluations."""

import os
import re
import sys

import matplotlib
import numpy as np
from PIL import Image
import pytest

from lambda_kit.analysis import curves
from lambda_kit.analysis import tables
from lambda_kit.logs import loggers


def _episode(steps: int, episode_return: float = 1.0, cost_return=(10.0,), cost_regret=0.05):
  return {
    'environment_steps': steps,
    'episode_return': episode_return,
    'cost_return': list(cost_return),
    'cost_regret': cost_regret,
  }


def _evaluation(steps: int, episode_returns, cost_returns, cost_regret=0.02):
  """A row of the means over E episodes: returns [E], cost returns [E, C]."""
  return {
    'environment_steps': steps,
    'episode_return': np.mean(episode_returns),
    'episode_returns': episode_returns,
    'cost_return': np.mean(cost_returns, axis=0).tolist(),
    'cost_returns': cost_returns,
    'cost_regret': cost_regret,
  }


def _all_failed(steps: int):
  """A row of two episodes that failed."""
  row = {'environment_steps': steps, 'episode_return': None, 'cost_return': [None], 'cost_regret': [0.5]}
  return row | {'failed_episodes': 2, 'episode_returns': [], 'cost_returns': []}


def _lines(axes, marker: str) -> list[np.ndarray]:
  """Points [R, 2] of the lines with a marker and a stroke; without a stroke for 'dots'."""
  dots = marker == 'dots'
  return [
    np.column_stack(line.get_data())
    for line in axes.lines
    if line.get_marker() == 'o' and (line.get_linestyle() == 'None') == dots
  ]


def _limits(axes) -> list[tuple[float, str]]:
  return [(line.get_ydata()[0], line.get_color()) for line in axes.lines if line.get_gid() == 'limit']


class TestLearningCurve:
  def test_panels_show_the_rows(self):
    # 0, ..., 100 has its 5th and 95th percentiles at 5 and 95; the costs are twice as large.
    numbers = np.arange(101.0)
    evaluations = [
      _evaluation(steps, (numbers + offset).tolist(), (2.0 * numbers)[:, np.newaxis].tolist())
      for steps, offset in ((20_000, 1.0), (10_000, 0.0))
    ]  # Out of order.
    episodes = [_episode(5000, 3.0, [30.0], 0.5), _episode(15_000, 4.0, [40.0], 0.25)]
    figure = curves.make_figure({'episode': episodes, 'evaluation': evaluations}, 25.0)
    return_axes, cost_axes, regret_axes = figure.axes

    (means,) = _lines(return_axes, 'line')
    np.testing.assert_allclose(means, [[10_000, 50.0], [20_000, 51.0]])
    (dots,) = _lines(return_axes, 'dots')
    np.testing.assert_allclose(dots, [[5000, 3.0], [15_000, 4.0]])
    (band,) = return_axes.collections
    vertices = band.get_paths()[0].vertices
    for steps, low, high in ((10_000, 5.0, 95.0), (20_000, 6.0, 96.0)):
      edges = vertices[vertices[:, 0] == steps, 1]
      np.testing.assert_allclose([edges.min(), edges.max()], [low, high])

    (means,) = _lines(cost_axes, 'line')
    np.testing.assert_allclose(means, [[10_000, 100.0], [20_000, 100.0]])
    assert _limits(cost_axes) == [(25.0, curves._LIMIT_COLOR)] and not _limits(return_axes)
    (regret,) = regret_axes.lines
    np.testing.assert_allclose(
      np.column_stack(regret.get_data()), [[5000, 0.5], [10_000, 0.02], [15_000, 0.25], [20_000, 0.02]]
    )

  def test_axes_have_names_and_short_numbers(self):
    figure = curves.make_figure({'episode': [_episode(500_000), _episode(1_000_000)]}, 25.0, title='A run')
    figure.draw_without_rendering()
    for axes in figure.axes:
      assert axes.get_xlabel() == 'environment steps' and axes.get_ylabel()
      assert [label.get_text() for label in axes.get_xticklabels()][:6] == ['0', '200k', '400k', '600k', '800k', '1M']
    assert figure.get_suptitle() == 'A run'

  def test_running_mean_of_training_episodes(self):
    figure = curves.make_figure({'episode': [_episode(1000 * i, float(i)) for i in range(1, 13)]}, 25.0)
    (mean,) = [line for line in figure.axes[0].lines if line.get_marker() != 'o']
    # Means of 1..10, 2..11, 3..12, at the last episode of each.
    np.testing.assert_allclose(np.column_stack(mean.get_data()), [[10_000, 5.5], [11_000, 6.5], [12_000, 7.5]])

  def test_each_constraint_has_a_line_and_a_limit(self):
    rows = {
      'evaluation': [
        _evaluation(1000, [1.0, 2.0], [[1.0, 10.0], [3.0, 30.0]]),
        _evaluation(2000, [1.0, 2.0], [[2.0, 20.0], [4.0, 40.0]]),
      ]
    }
    figure = curves.make_figure(rows, [25.0, 5.0], ('hazards', 'vases'))
    first, second = _lines(figure.axes[1], 'line')
    np.testing.assert_allclose([first[:, 1], second[:, 1]], [[2.0, 3.0], [20.0, 30.0]])
    assert [limit for limit, _ in _limits(figure.axes[1])] == [5.0, 25.0]
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {'cost return, hazards', 'cost return, vases'} <= set(texts)
    # More constraints than colours: all are drawn.
    many = curves.make_figure({'evaluation': [_evaluation(1000, [1.0], [list(range(8))])]}, 25.0)
    assert len(_lines(many.axes[1], 'line')) == 8

  @pytest.mark.parametrize(
    'rows',
    [
      {},
      {'episode': [_episode(1000)]},
      {'evaluation': [_evaluation(1000, [1.0], [[3.0]])]},
      {'evaluation': [{'environment_steps': 0, 'episode_return': 1.0, 'cost_return': [2.0]}]},
      {
        'episode': [_episode(1000, None, [None], None), _episode(2000)],
        'evaluation': [{**_evaluation(1000, [1.0, 2.0], [[3.0], [4.0]]), 'cost_returns': [[None], [4.0]]}],
      },
      {'evaluation': [_all_failed(1000)]},
      {'evaluation': [_all_failed(1000), _evaluation(2000, [1.0], [[3.0]])], 'episode': [_episode(1000)]},
    ],
    ids=[
      'nothing',
      'one episode',
      'one evaluation',
      'means only',
      'not finite',
      'all failed',
      'some evaluations failed',
    ],
  )
  @pytest.mark.filterwarnings('error')
  def test_little_data(self, tmp_path, rows):
    curves.make_figure(rows, 25.0).savefig(tmp_path / 'curve.png')
    with Image.open(tmp_path / 'curve.png') as image:
      assert image.format == 'PNG' and image.size == (1800, 585)

  def test_reads_what_the_logger_wrote(self, tmp_path):
    logger = loggers.JsonlLogger(tmp_path)
    logger.write('episode', _episode(1000))
    logger.write('evaluation', _evaluation(1000, [float('nan'), 1.0], [[30.0], [20.0]]))
    logger.close()
    path = curves.learning_curve(tmp_path, tmp_path / 'curve.png', 25.0)
    pixels = np.asarray(Image.open(path).convert('RGB'))
    limit_color = np.array([0xD6, 0x27, 0x28])
    assert (pixels == limit_color).all(axis=-1).any(axis=0).sum() > 300  # The limit crosses its panel.
    assert sorted(os.listdir(tmp_path)) == ['curve.png', 'episode.jsonl', 'evaluation.jsonl']

  def test_damaged_rows_are_left_out_and_told(self, tmp_path, caplog):
    logger = loggers.JsonlLogger(tmp_path)
    good = _evaluation(2000, [1.0, 2.0], [[30.0], [20.0]])
    bad = ['cost_return', 'text'], ['cost_return', [1.0, 2.0]], ['episode_return', {}], ['cost_regret', [1.0, 2.0]]
    for name, value in (*bad, ['episode_returns', [1.0]], ['cost_returns', [[1.0], [2.0, 3.0]]]):
      logger.write('evaluation', {**good, name: value})
    logger.write('evaluation', {name: value for name, value in good.items() if name != 'cost_return'})
    logger.write('evaluation', good)
    logger.write('evaluation', _all_failed(3000))
    logger.write('episode', _episode(1000))
    logger.close()
    path = curves.learning_curve(tmp_path, tmp_path / 'curve.png', 25.0, ('hazards',))
    assert path.read_bytes().startswith(b'\x89PNG')
    assert '7 of 9 rows have no numbers to draw' in caplog.text and caplog.text.count('left out') == 1

  def test_leaves_matplotlib_as_it_was(self, tmp_path):
    had_pyplot, settings = 'matplotlib.pyplot' in sys.modules, matplotlib.rcParams.copy()
    curves.make_figure({'episode': [_episode(1000)]}, 25.0).savefig(tmp_path / 'curve.png')
    assert ('matplotlib.pyplot' in sys.modules) == had_pyplot
    assert matplotlib.rcParams.copy() == settings


def _cells(table: str) -> list[list[str]]:
  """The lines of a table below its head, split where two blanks or more are."""
  body = table.splitlines()
  start = next(i for i, line in enumerate(body) if '──' in line)
  return [re.split('  +', line.strip()) for line in body[start + 1 :]]


class TestEvaluationTable:
  def test_means_deviations_and_marks(self):
    rows = [
      _evaluation(25_000, [1.0, 3.0], [[20.0], [40.0]], cost_regret=0.0312),  # Cost 30, over.
      _evaluation(1_000_000, [10.0, 10.0], [[24.0], [26.0]], cost_regret=0.025),
    ]  # Cost 25: at the limit is ok.
    table = tables.evaluation_table(rows, 25.0)
    assert 'limit 25' in table and '\x1b' not in table
    assert _cells(table) == [
      ['25,000', '2.00 ± 1.00', '30.0 ± 10.0', 'over', '0.0312'],
      ['1,000,000', '10.00 ± 0.00', '25.0 ± 1.0', 'ok', '0.0250'],
    ]

  def test_constraints_have_their_own_limits_and_names(self):
    table = tables.evaluation_table([_evaluation(1000, [1.0], [[10.0, 6.0]])], [25.0, 5.0], ('hazards', 'vases'))
    assert 'cost return, hazards' in table and 'cost return, vases' in table
    assert 'limit 25' in table and 'limit 5' in table
    assert _cells(table) == [['1,000', '1.00 ± 0.00', '10.0 ± 0.0', 'ok', '6.0 ± 0.0', 'over', '0.0200']]

  def test_a_cost_that_is_not_finite_is_not_ok(self):
    row = {'environment_steps': 1, 'episode_return': None, 'cost_return': [None]}  # As read back from JSON.
    assert _cells(tables.evaluation_table([row], 25.0)) == [['1', 'nan', 'nan', 'over', 'nan']]

  def test_failed_episodes_have_a_column_and_no_score_is_invented(self):
    some = {**_evaluation(1, [1.0], [[10.0]]), 'failed_episodes': 1}
    table = tables.evaluation_table([some, _all_failed(2)], 25.0)
    assert _cells(table) == [
      ['1', '1.00 ± 0.00', '10.0 ± 0.0', 'ok', '0.0200', '1'],
      ['2', 'nan', 'nan', 'unknown', '0.5000', '2'],
    ]

  def test_no_evaluations(self):
    assert tables.evaluation_table([], 25.0) == 'No evaluations.\n'

  def test_names_and_limits_must_fit_the_costs(self):
    with pytest.raises(ValueError, match='2 costs, but constraint_names has 1'):
      tables.evaluation_table([_evaluation(1, [1.0], [[1.0, 2.0]])], 25.0, ('hazards',))
    with pytest.raises(ValueError, match='2 costs, but cost_limit has shape'):
      tables.evaluation_table([_evaluation(1, [1.0], [[1.0, 2.0]])], [25.0])
