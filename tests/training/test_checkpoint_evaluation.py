"""Which checkpoint is evaluated, with which episodes; with an agent that costs nothing."""

import json
import pathlib
import shutil

import numpy as np
import pytest

import gin
from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit import files
from lambda_kit.config import configuration
from lambda_kit.training import checkpoint_evaluation
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training import exported
from lambda_kit.training import train as train_lib
from lambda_kit.training.checkpoints import errors
from lambda_kit.training.checkpoints import store as store_lib

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_BINDINGS = (
  'ENVIRONMENT_STEPS = 200',
  'GridCmdp.episode_length = 20',
  'COST_LIMIT = 20.0',
  'experiment.evaluate_every = 100',
  'experiment.evaluation_episodes = 2',
  'experiment.with_video = False',
  'experiment.checkpoint_steps = 20',
  'experiment.keep_checkpoints = 100',
)


def _run(function, workdir, gin_files=('gin/tasks/grid.gin', 'gin/agents/random.gin'), bindings=_BINDINGS, **options):
  configuration.parse(gin_files, bindings, search_paths=[str(_ROOT)])
  try:
    with experiment_lib.build() as experiment:
      return function(experiment, workdir, **options)
  finally:
    gin.clear_config()


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('trained') / 'run'
  return workdir, _run(train_lib.train, workdir)


@pytest.fixture
def workdir(trained, tmp_path):
  return shutil.copytree(trained[0], tmp_path / 'run')


def _evaluate(workdir, *bindings, **options):
  return _run(checkpoint_evaluation.evaluate, workdir, [str(workdir / 'config.gin')], bindings, **options)


def _measured(row):
  names = ('environment_steps', 'episode_return', 'cost_return', 'cost_regret', 'episode_returns', 'cost_returns')
  return {name: row[name] for name in names}


@pytest.mark.parametrize('options,number', [(dict(), 1), (dict(step=100), 0)])
def test_the_score_is_reproduced(trained, workdir, capsys, options, number):
  row = _evaluate(workdir, **options)
  assert row['reproduced'] is True and row['evaluation'] == number
  assert _measured(row) == _measured(trained[1][number])
  assert 'reproduced to the bit' in capsys.readouterr().out
  logged = json.loads((workdir / 'evaluation' / 'evaluation.jsonl').read_text())
  assert {name: logged[name] for name in row} == row


def test_the_best_safe_checkpoint_can_be_chosen(trained, workdir):
  expected = max(trained[1], key=lambda row: row['episode_return'])
  assert _measured(_evaluate(workdir, which='best')) == _measured(expected)


def test_between_evaluations_the_next_one_is_taken(trained, workdir):
  row = _evaluate(workdir, step=140)
  assert row['reproduced'] is None and row['evaluation'] == 1
  # The random agent learns nothing: its evaluation 1 is the same at any time.
  assert row['episode_returns'] == trained[1][1]['episode_returns']


def test_more_episodes_come_after_those_of_the_evaluation(trained, workdir):
  row = _evaluate(workdir, step=100, more_episodes=2)
  assert row['reproduced'] and row['num_episodes'] == 4
  assert row['episode_returns'] == trained[1][0]['episode_returns'] + trained[1][1]['episode_returns']


def test_a_changed_configuration_is_named_where_the_score_differs(workdir, capsys):
  row = _evaluate(workdir, 'GridCmdp.slip = 0.9')
  assert row['reproduced'] is False
  output = capsys.readouterr().out
  assert 'NOT reproduced' in output and '+ GridCmdp.slip = 0.9' in output


def test_the_number_of_cores_is_named_where_only_rounding_differs(workdir, capsys, monkeypatch):
  row_of = checkpoint_evaluation.evaluation.evaluation_row
  rounded = lambda *args: (row := row_of(*args)) | {'episode_return': np.nextafter(row['episode_return'], np.inf)}
  monkeypatch.setattr(checkpoint_evaluation.evaluation, 'evaluation_row', rounded)
  assert _evaluate(workdir)['reproduced'] is False
  assert 'NOT reproduced' in (output := capsys.readouterr().out) and 'another number of cores' in output


def test_another_task_is_refused(workdir):
  with pytest.raises(errors.MismatchError, match="is of the task .* asks for 'GridCmdp S1G'"):
    _evaluate(workdir, "GridCmdp.layout = ('S1G',)")
  assert not (workdir / 'evaluation').exists()


def test_a_damaged_checkpoint_is_skipped_unless_it_was_named(workdir):
  (workdir / 'checkpoints' / 'step_000000000200' / 'state.json').unlink()
  with pytest.raises(errors.DamagedError, match='state.json is missing'):
    _evaluate(workdir, step=200)
  assert _evaluate(workdir)['environment_steps'] == 180


def test_an_agent_that_has_learned_nothing_is_exported_too(workdir):
  _evaluate(workdir, export_to=workdir / 'exported')
  policy = exported.load(workdir / 'exported')
  actions = [policy({'vector': np.zeros(2, np.float32)}) for _ in range(3)]
  assert policy.description.source['environment_steps'] == 200 and len(np.unique(actions)) == 6


def test_what_is_not_there_is_said(workdir):
  with pytest.raises(errors.CheckpointError, match='no checkpoint of step 7. There are: 0, 20, 40'):
    _evaluate(workdir, step=7)
  for name in ('step_000000000100', 'step_000000000200'):
    shutil.rmtree(workdir / 'checkpoints' / name)
  with pytest.raises(errors.CheckpointError, match='evaluated and found safe'):
    _evaluate(workdir, which='best')
  shutil.rmtree(workdir / 'checkpoints')
  for which in ('newest', 'best'):
    with pytest.raises(errors.CheckpointError, match='no checkpoint yet'):
      _evaluate(workdir, which=which)


def test_a_checkpoint_of_another_run_is_refused(workdir):
  path = store_lib.CheckpointStore(workdir / 'checkpoints', run_id='other').save(300, {}, {})
  with pytest.raises(errors.MismatchError, match=f'{path} was written by run other'):
    _evaluate(workdir)


def test_results_are_not_written_through_a_link(workdir, tmp_path):
  (tmp_path / 'target').mkdir()
  (workdir / 'evaluation').symlink_to(tmp_path / 'target')
  with pytest.raises(files.NotPlainError, match='evaluation is a symbolic link to'):
    _evaluate(workdir)
  assert not list((tmp_path / 'target').iterdir())


def test_runs_without_a_record_can_be_evaluated(trained, workdir):
  (workdir / 'run.json').unlink()
  assert _measured(_evaluate(workdir)) == _measured(trained[1][1])
