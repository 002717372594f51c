"""The record of a run, and what becomes of a run that goes on with other versions."""

import json
import pathlib
import sys
import types

from absl import logging
import jax
import pytest

import gin
from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit.analysis import run_record
from lambda_kit.analysis.metrics import physics
from lambda_kit.config import configuration
from lambda_kit.environments import grid_cmdp
from lambda_kit.environments import wrappers
from lambda_kit.environments.processes import isolated
from lambda_kit.training import evaluation
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training import train as train_lib
from lambda_kit.training import workdir as workdir_lib
from tests.fakes import environments as fakes

_ROOT = str(pathlib.Path(__file__).resolve().parents[2])
_BINDINGS = ('ENVIRONMENT_STEPS = 100', 'experiment.evaluation_episodes = 1', 'experiment.with_video = False')


def _train(workdir, allow_config_change=False, bindings=()):
  gin.clear_config()
  configuration.parse(['gin/tasks/grid.gin', 'gin/agents/random.gin'], [*_BINDINGS, *bindings], [_ROOT])
  with experiment_lib.build() as experiment:
    train_lib.train(experiment, workdir, allow_config_change)


@pytest.fixture(name='mujoco')
def _mujoco(monkeypatch):
  """Makes the built-in task one that MuJoCo simulates, in a version that is given."""
  return lambda version: monkeypatch.setattr(grid_cmdp.GridCmdp, 'mujoco_version', version)


@pytest.fixture(name='warnings')
def _warnings(monkeypatch):
  told = []
  monkeypatch.setattr(logging, 'warning', lambda text, *values: told.append(text % values))
  return told


def _pretend_mujoco(version):
  module = types.ModuleType('mujoco')
  module.__version__ = version
  return module


def walk_with_mujoco(seed):
  """An environment whose process imports MuJoCo."""
  sys.modules['mujoco'] = _pretend_mujoco('9.8.7')
  return fakes.Walk(seed)


class TestTheEnvironmentTells:
  def test_by_what_its_process_has_imported(self, monkeypatch):
    environment = wrappers.ActionRepeat(fakes.Walk(0), 2)
    monkeypatch.delitem(sys.modules, 'mujoco', raising=False)
    assert environment.mujoco_version is None
    monkeypatch.setitem(sys.modules, 'mujoco', _pretend_mujoco('9.8.7'))
    assert environment.mujoco_version == '9.8.7'
    assert grid_cmdp.GridCmdp(0).mujoco_version is None

  def test_also_if_that_is_another_process(self, monkeypatch):
    monkeypatch.delitem(sys.modules, 'mujoco', raising=False)
    environment = isolated.IsolatedEnvironment(0, walk_with_mujoco)
    assert environment.mujoco_version == '9.8.7' and 'mujoco' not in sys.modules
    environment.close()

  def test_not_by_what_this_process_has_imported(self, monkeypatch):
    monkeypatch.setitem(sys.modules, 'mujoco', _pretend_mujoco('9.8.7'))
    environment = isolated.IsolatedEnvironment(0, fakes.Walk)
    assert environment.mujoco_version is None
    environment.close()


class TestARun:
  def test_records_what_it_was_made_with(self, tmp_path):
    _train(tmp_path)
    found = json.loads((tmp_path / 'run.json').read_text('utf-8'))['versions']
    assert found.keys() == {'python', 'jax', 'numpy', 'gymnasium', 'safety-gymnasium', 'mujoco', 'lambda_kit'}
    assert found['jax'] == jax.__version__ and found['python'] == sys.version.split()[0] and found['mujoco'] is None
    _train(tmp_path)  # It is at its end, with the same versions.
    assert not run_record.read(tmp_path).earlier

  @pytest.mark.parametrize('begun, after', [('3.3.7', '3.4.0'), ('3.3.7', '4.3.7'), ('2.3.3', '3.3.7')])
  def test_does_not_go_on_under_another_physics(self, tmp_path, mujoco, warnings, begun, after):
    mujoco(begun)
    _train(tmp_path)
    recorded = (tmp_path / 'run.json').read_text('utf-8')
    mujoco(after)
    with pytest.raises(
      workdir_lib.ConfigChangedError,
      match=(f'a run under MuJoCo {begun}, and this is MuJoCo {after}.*install mujoco=={begun}.*--allow_config_change'),
    ):
      _train(tmp_path)
    assert (tmp_path / 'run.json').read_text('utf-8') == recorded and not warnings
    _train(tmp_path, allow_config_change=True)
    record = run_record.read(tmp_path)
    assert record.versions['mujoco'] == after and [past.versions['mujoco'] for past in record.earlier] == [begun]
    assert f'mujoco {after} instead of {begun}' in warnings[0]

  def test_goes_on_with_other_versions_of_the_same_physics(self, tmp_path, mujoco, warnings):
    mujoco('3.3.5')
    _train(tmp_path)
    mujoco('3.3.7')
    _train(tmp_path)
    assert len(warnings) == 1 and 'mujoco 3.3.7 instead of 3.3.5' in warnings[0]
    record = run_record.read(tmp_path)
    assert record.versions['mujoco'] == '3.3.7' and len(record.earlier) == 1

  def test_that_is_older_than_records_does_not_go_on(self, tmp_path):
    _train(tmp_path)
    (tmp_path / 'run.json').unlink()
    with pytest.raises(workdir_lib.ConfigChangedError, match='there is no run.json, .* another --workdir'):
      _train(tmp_path)

  def test_goes_on_in_a_process_that_has_mujoco_for_something_else(self, tmp_path, mujoco):
    _train(tmp_path)
    mujoco('3.3.7')
    _train(tmp_path)

  @pytest.mark.parametrize('text', ['{', '[]', '{"task": "1"}'])
  def test_with_a_damaged_record_is_refused(self, tmp_path, text):
    _train(tmp_path)
    (tmp_path / 'run.json').write_text(text)
    with pytest.raises(workdir_lib.ConfigChangedError, match='run.json is damaged'):
      _train(tmp_path)

  def test_of_unknown_physics_is_refused(self, tmp_path):
    _train(tmp_path)
    path = tmp_path / 'run.json'
    path.write_text(path.read_text().replace('"mujoco": null', '"mujoco": 3.3'))
    with pytest.raises(workdir_lib.ConfigChangedError, match='nobody knows under which MuJoCo it ran'):
      _train(tmp_path)

  def test_has_its_record_before_its_configuration(self, tmp_path, monkeypatch):
    """Else a run that died in between could not go on."""

    def die(path):
      raise KeyboardInterrupt(str(path))

    monkeypatch.setattr(configuration, 'save_config', die)
    with pytest.raises(KeyboardInterrupt):
      _train(tmp_path)
    assert run_record.read(tmp_path).finished is None

  def test_is_marked_when_it_is_finished(self, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(configuration, 'save_operative_config', lambda *_: seen.append(run_record.read(tmp_path)))
    _train(tmp_path)
    assert seen and all(record.finished is None for record in seen) and run_record.is_finished(tmp_path)
    record = run_record.read(tmp_path)
    assert record.finished.environment_steps == 100 and record.seconds > 0.0
    assert (record.identity.task, record.identity.algorithm, record.identity.seed) == ('GridCmdp', 'Random', 0)
    _train(tmp_path)  # Nothing is left, and little work is added.
    assert run_record.is_finished(tmp_path) and run_record.read(tmp_path).seconds > record.seconds

  @pytest.mark.parametrize('repeat, limit, known', [(1, 5.0, True), (2, 5.0, False), (1, 0.0, False)])
  def test_records_the_optimum_of_its_task_where_it_is_known(self, tmp_path, repeat, limit, known):
    _train(tmp_path, bindings=(f'ACTION_REPEAT = {repeat}', f'COST_LIMIT = {limit}'))
    optimum = run_record.read(tmp_path).optimum
    assert (optimum is not None) == known
    if known:
      assert optimum.episode_return == pytest.approx(22.83, abs=0.005) and optimum.cost_return == pytest.approx((5.0,))

  def test_that_fails_is_not_finished(self, tmp_path, monkeypatch):
    def die(*_, **unused):
      raise KeyboardInterrupt

    monkeypatch.setattr(evaluation.Evaluator, 'run', die)
    with pytest.raises(KeyboardInterrupt):
      _train(tmp_path)
    assert not run_record.is_finished(tmp_path) and run_record.read(tmp_path).seconds > 0.0


def test_a_physics_is_a_minor_version():
  assert [physics.of_version(version) for version in ('3.3.7', '3.3.0', '3.10.1', '4.0.0', None)] == [
    '3.3',
    '3.3',
    '3.10',
    '4.0',
    None,
  ]
