"""Evaluations whose environment fails: an episode is lost, never the run, and no score is invented."""

import json
import pathlib

from absl import logging
import numpy as np
import pytest

import gin
from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit.analysis import run_record
from lambda_kit.config import configuration
from lambda_kit.environments import wrappers
from lambda_kit.training import checkpoint_evaluation
from lambda_kit.training import evaluation
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training import train as train_lib
from lambda_kit.training.checkpoints import store as store_lib
from tests.fakes import environments as fakes
from tests.fakes import loops
from tests.fakes import specs
from tests.faults import runs

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# Three evaluations, of the episodes 0 to 8.
_BINDINGS = (
  'ENVIRONMENT_STEPS = 300',
  'GridCmdp.episode_length = 20',
  'experiment.evaluate_every = 100',
  'experiment.evaluation_episodes = 3',
  'experiment.with_video = False',
  'experiment.checkpoint_steps = 60',
)


@pytest.fixture(name='warnings')
def _warnings(monkeypatch):
  told = []
  monkeypatch.setattr(logging, 'warning', lambda text, *values: told.append(text % values))
  return told


def _call(function, workdir, episodes, bindings=(), failure=None, **options):
  """Trains or evaluates while some episodes of evaluations fail."""
  configuration.parse(['gin/tasks/grid.gin', 'gin/agents/random.gin'], [*_BINDINGS, *bindings], [str(_ROOT)])
  try:
    with experiment_lib.build() as experiment:
      evaluator = experiment.evaluator
      evaluator._environment = fakes.Failing(evaluator._environment, episodes, failure)
      return function(experiment, workdir, **options)
  finally:
    gin.clear_config()


def _train(workdir, episodes=(), **options):
  return _call(train_lib.train, workdir, episodes, **options)


@pytest.fixture(scope='module', name='undisturbed')
def _undisturbed(tmp_path_factory):
  return _train(tmp_path_factory.mktemp('undisturbed'))


@pytest.mark.parametrize(
  'environment, cause',
  [
    (fakes.FaultyCounter(), 'ArithmeticError: lost count'),
    (wrappers.SinglePrecision(fakes.Counter(poison=np.nan)), 'not finite'),
  ],
)
def test_what_raises_or_returns_nan_costs_its_episode(environment, cause, warnings):
  actor = loops.random_actor(environment, seed=0)
  summaries = evaluation.Evaluator(environment, actor, specs.of(environment), 2).run(number=0)
  row = evaluation.evaluation_row(summaries, 7, np.zeros(2))
  assert summaries[1] is None and row['failed_episodes'] == summaries.count(None)
  assert cause in warnings[0] and any('Episode 1 of the evaluations is given up' in warning for warning in warnings)


def test_one_failing_episode_costs_that_episode(undisturbed, tmp_path, warnings):
  rows = _train(tmp_path, episodes=[4])
  assert run_record.is_finished(tmp_path)
  assert [row['failed_episodes'] for row in rows] == [0, 1, 0]
  assert [rows[0], rows[2]] == [undisturbed[0], undisturbed[2]]
  first, _, third = undisturbed[1]['episode_returns']
  assert rows[1]['episode_returns'] == [first, third] and rows[1]['episode_return'] == (first + third) / 2
  assert [warning.partition(':')[0] for warning in warnings] == [
    'Episode 4 of the evaluations is played again',
    'Episode 4 of the evaluations is played again',
    'Episode 4 of the evaluations is given up',
  ]
  assert 'ArithmeticError: the walls are gone' in warnings[-1]


def test_a_run_that_was_stopped_goes_on_to_the_same_rows(tmp_path):
  expected = _train(tmp_path / 'whole', episodes=[1, 4])
  played = []

  def stop_at_the_second_evaluation():
    played.append(0)
    if len(played) > 3:  # Episode 1 was played three times.
      raise KeyboardInterrupt
    raise ArithmeticError('the walls are gone')

  with pytest.raises(KeyboardInterrupt):
    _train(tmp_path / 'stopped', episodes=[1, 4], failure=stop_at_the_second_evaluation)
  assert _train(tmp_path / 'stopped', episodes=[1, 4]) == expected
  runs.assert_same_outcome(tmp_path / 'stopped', tmp_path / 'whole')


def test_an_evaluation_without_episodes_has_no_score(undisturbed, tmp_path, warnings, capsys):
  rows = _train(tmp_path, episodes=[6, 7, 8], bindings=['experiment.with_video = True'])
  assert run_record.is_finished(tmp_path) and rows[:2] == undisturbed[:2]
  row = json.loads((tmp_path / 'evaluation.jsonl').read_text().splitlines()[-1])
  assert row['failed_episodes'] == 3 and row['episode_return'] is None and row['cost_return'] == [None]
  assert row['episode_returns'] == [] == row['cost_returns']
  assert 'All 3 episodes of the evaluation failed, so it has no score' in ' '.join(warnings)
  assert 'no score, since all 3 episodes failed' in capsys.readouterr().out
  assert 'unknown' in (tmp_path / 'evaluations.txt').read_text()
  assert 'There is no video of the last evaluation' in warnings[-1] and not list(tmp_path.glob('*video*'))
  store = store_lib.CheckpointStore(tmp_path / 'checkpoints')
  assert store.newest().step == 300 and store.newest().score is None
  again = _call(checkpoint_evaluation.evaluate, tmp_path, episodes=[])
  assert again['reproduced'] is None and again['failed_episodes'] == 0


def test_a_score_with_a_failed_episode_is_compared(tmp_path, capsys):
  _train(tmp_path, episodes=[7])
  assert _call(checkpoint_evaluation.evaluate, tmp_path, episodes=[7])['reproduced']
  assert not _call(checkpoint_evaluation.evaluate, tmp_path, episodes=[])['reproduced']
  assert not _call(checkpoint_evaluation.evaluate, tmp_path, episodes=[6, 7, 8])['reproduced']
  assert 'NOT reproduced' in capsys.readouterr().out


def test_more_failures_than_allowed_end_the_run_with_the_remedy(undisturbed, tmp_path):
  some, more = ['experiment.max_failed_episodes = 2'], ['experiment.max_failed_episodes = 3']
  with pytest.raises(evaluation.EpisodeFailure, match='Episode 7 of .* as many others as experiment.max_failed'):
    _train(tmp_path, episodes=[0, 4, 7], bindings=some)
  assert not run_record.is_finished(tmp_path)
  rows = _train(tmp_path, episodes=[0, 4, 7], bindings=more, allow_config_change=True)
  assert [row['failed_episodes'] for row in rows] == [1, 1, 1] and run_record.is_finished(tmp_path)
