"""Tests of open-loop predictions in reports: what is drawn, what is read, and what is shown."""

import json

import numpy as np
import pytest

from benchmarks import synthetic_runs
from lambda_kit import types
from lambda_kit.analysis import drawing
from lambda_kit.analysis import prediction_figures
from lambda_kit.analysis.reports import collection
from lambda_kit.analysis.reports import learner_figures
from lambda_kit.analysis.reports import media
from lambda_kit.analysis.reports import predictions
from lambda_kit.analysis.reports import problems as problems_lib
from lambda_kit.analysis.reports import report
from lambda_kit.analysis.reports import runs

_SVG = '<svg xmlns="http://www.w3.org/2000/svg"><text>{}</text></svg>'


def _write_prediction(folder, scale=1.0):
  """Three steps, whose errors grow with `scale`; standing still is twice as wrong."""
  errors = np.array([0.1, 0.2, 0.3]) * scale
  content = dict(
    environment_steps=1000, num_seen=5, errors=dict(vector=dict(model=errors.tolist(), last_seen=(2 * errors).tolist()))
  )
  (folder / 'prediction.json').write_text(json.dumps(content))
  (folder / 'prediction.png').write_bytes(b'PNG of ' + folder.name.encode())
  (folder / 'prediction.svg').write_text(_SVG.format(folder.name))


@pytest.fixture
def folder(tmp_path):
  """Three seeds of LAMBDA with predictions, and PPO, which has none."""
  for seed in range(3):
    _write_prediction(synthetic_runs.write_run(tmp_path / 'runs' / f'lambda-{seed}', seed=seed), scale=1.0 + seed)
  synthetic_runs.write_run(tmp_path / 'runs' / 'ppo-0', algorithm='PPO')
  return tmp_path / 'runs'


class TestStrip:
  def test_errors_are_means_over_entries(self):
    truth = np.array([[[1.0, 2.0]], [[3.0, 5.0]]])
    np.testing.assert_allclose(prediction_figures.errors(truth, np.array([[[1.0, 1.0]]])), [0.5, 3.0])

  def test_pictures(self):
    truth = np.zeros((45, 4, 6, 3)) - 0.5  # Black.
    model = truth + (np.arange(45.0) / 90)[:, None, None, None] * np.array([1.0, 0.0, 0.5])
    prediction = types.OpenLoop({'image': truth}, {'image': model}, {'image': truth[0]})
    figure = prediction_figures.strip(prediction, num_seen=5)
    rows = [axes for axes in figure.axes if axes.get_ylabel()]
    assert [axes.get_ylabel() for axes in rows] == ['truth', 'model', 'error']
    shown = [0, 5, 10, 15, 20, 24, 29, 34, 39, 44]
    assert [label.get_text() for label in rows[2].get_xticklabels()] == [f'+{i + 1}' for i in shown]
    arrays = [axes.images[0].get_array() for axes in rows]
    assert arrays[0].shape == (4, 10 * (6 + 2), 3) and arrays[2].shape == (4, 80)
    for column, i in enumerate(shown):
      left = 8 * column
      np.testing.assert_allclose(arrays[0][:, left : left + 6], 0.0)
      np.testing.assert_allclose(arrays[1][0, left], [i / 90, 0.0, i / 180], atol=1e-12)
      np.testing.assert_allclose(arrays[2][:, left : left + 6], 0.5 * i / 90)  # The mean of 1, 0 and 0.5 times i / 90.
      assert (arrays[0][:, left + 6 : left + 8] == 1.0).all()

  def test_vectors(self):
    truth = np.arange(12.0).reshape(4, 3)
    prediction = types.OpenLoop({'vector': truth}, {'vector': truth - 2.0}, {'vector': truth[0]})
    figure = prediction_figures.strip(prediction, num_seen=5)
    arrays = [axes.images[0].get_array() for axes in figure.axes if axes.get_ylabel()]
    np.testing.assert_allclose(arrays, [truth.T, truth.T - 2.0, np.full((3, 4), 2.0)])

  def test_both(self, tmp_path):
    both = {'image': np.zeros((2, 4, 4, 3)), 'vector': np.zeros((2, 3))}
    figure = prediction_figures.strip(types.OpenLoop(both, both, both), 5, 'Title')
    assert sum(bool(axes.get_ylabel()) for axes in figure.axes) == 6
    assert drawing.save(figure, tmp_path, 'strip').startswith(b'\x89PNG')


class TestReading:
  def test_errors_come_back(self, folder):
    by_seed = {run.workdir: run for run in runs.read_runs(folder)[0]}
    prediction = by_seed['lambda-1'].prediction
    assert prediction.picture == folder / 'lambda-1' / 'prediction.png'
    np.testing.assert_allclose(prediction.model_errors['vector'], [0.2, 0.4, 0.6])
    np.testing.assert_allclose(prediction.last_seen_errors['vector'], [0.4, 0.8, 1.2])
    assert 'mean absolute error 0.4 in standard deviations over 3 steps, 0.8 for' in prediction.describe()
    curve = by_seed['lambda-1'].curves['prediction_error/vector']
    np.testing.assert_allclose([curve.steps, curve.values], [[1, 2, 3], [0.2, 0.4, 0.6]])
    assert by_seed['ppo-0'].prediction is None

  @pytest.mark.parametrize(
    'text',
    [
      '',
      '[]',
      '{"errors": 3}',
      '{"errors": {"vector": {"model": [1.0]}}}',
      '\ud800',
      '{"errors": {"vector": {"model": [1.0], "last_seen": [1.0, 2.0]}}}',
      '{"errors": {"vector": {"model": [null], "last_seen": [1.0]}}}',
    ],
  )
  def test_a_damaged_file_is_told(self, folder, text):
    (folder / 'lambda-0' / 'prediction.json').write_bytes(text.encode('utf-8', 'surrogatepass'))
    found, problems = runs.read_runs(folder)
    assert [(problem.kind, problem.where) for problem in problems] == [
      (problems_lib.UNREADABLE, 'lambda-0/prediction.json')
    ]
    assert found[0].prediction is None and found[0].score is not None

  def test_nothing_is_shown_of_what_is_not_complete(self, folder):
    (folder / 'lambda-0' / 'prediction.svg').unlink()
    assert predictions.read(folder / 'lambda-0') is None


class TestReport:
  def test_errors_by_step(self, folder):
    collected = collection.collect(*runs.read_runs(folder))
    figure = learner_figures.prediction_error(collected, drawing.algorithm_colors(['LAMBDA', 'PPO']))
    (axes,) = figure.axes
    values = {line.get_linestyle(): line.get_ydata() for line in axes.lines}
    np.testing.assert_allclose(values['-'], [0.2, 0.4, 0.6])  # Seed 1 is the median.
    np.testing.assert_allclose(values['--'], [0.4, 0.8, 1.2])
    assert axes.get_xlabel() == 'predicted agent steps'
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
      'LAMBDA',
      'model',
      'last observation, repeated',
    ]

  def test_the_median_run_comes_first_and_there_is_a_limit(self, folder):
    collected = collection.collect(*runs.read_runs(folder))
    path_of = lambda run: run.prediction and run.prediction.picture
    size = len(b'PNG of lambda-0')
    names = lambda budget: [medium.run.workdir for medium in media.choose(collected, path_of, budget)]
    assert names(10 * size) == ['lambda-1', 'lambda-0', 'lambda-2']  # Returns are 10, 11 and 12.
    assert names(2 * size + 1) == ['lambda-1', 'lambda-0'] and not names(size - 1)

  def test_the_page_and_the_figures_have_them(self, folder):
    out = folder.parent / 'out'
    report.write_report(folder, out)
    for i, seed in enumerate((1, 0, 2), start=1):
      assert (out / 'figures' / f'prediction_{i}.png').read_bytes() == f'PNG of lambda-{seed}'.encode()
      assert f'<text>lambda-{seed}</text>' in (out / 'figures' / f'prediction_{i}.svg').read_text()
    assert (out / 'figures' / 'prediction_error.svg').exists()
    text = (out / 'index.html').read_text()
    section = text[text.index('<section id="predictions">') : text.index('<section id="videos">')]
    assert section.count('<img ') == 3 and 'PointGoal1, LAMBDA, seed 1. vector: mean absolute error 0.4' in section
    (folder / 'lambda-2' / 'prediction.json').unlink()
    report.write_report(folder, out)
    assert not (out / 'figures' / 'prediction_3.png').exists() and (out / 'figures' / 'prediction_2.png').exists()
