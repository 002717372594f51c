"""The record of versions, and what becomes of a run that goes on with others."""

import json
import pathlib
import sys
import types

from absl import logging
import gin
import jax
import pytest

from lambda_kit import components  # pylint: disable=unused-import
from lambda_kit.environments import grid_cmdp
from lambda_kit.environments.processes import isolated
from lambda_kit.environments import wrappers
from lambda_kit.config import configuration
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training import train as train_lib
from lambda_kit.analysis import versions
from lambda_kit.analysis.metrics import physics
from tests.environments import parallel_fakes

_ROOT = str(pathlib.Path(__file__).resolve().parents[2])
_BINDINGS = ('ENVIRONMENT_STEPS = 100', 'experiment.evaluation_episodes = 1', 'experiment.with_video = False')


def _train(workdir, allow_config_change=False):
  gin.clear_config()
  configuration.parse(['gin/tasks/grid.gin', 'gin/agents/random.gin'], _BINDINGS, [_ROOT])
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
  return parallel_fakes.Walk(seed)


class TestTheEnvironmentTells:

  def test_by_what_its_process_has_imported(self, monkeypatch):
    environment = wrappers.ActionRepeat(parallel_fakes.Walk(0), 2)
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
    environment = isolated.IsolatedEnvironment(0, parallel_fakes.Walk)
    assert environment.mujoco_version is None
    environment.close()


class TestARun:

  def test_records_what_it_was_made_with(self, tmp_path):
    _train(tmp_path)
    found = json.loads((tmp_path / 'versions.json').read_text('utf-8'))
    assert found.keys() == {'python', 'jax', 'numpy', 'gymnasium', 'safety-gymnasium', 'mujoco', 'lambda_kit'}
    assert found['jax'] == jax.__version__ and found['python'] == sys.version.split()[0] and found['mujoco'] is None
    _train(tmp_path)  # It is at its end, with the same versions.
    assert [path.name for path in tmp_path.glob('versions*')] == ['versions.json']

  @pytest.mark.parametrize('begun, after', [('3.3.7', '3.4.0'), ('3.3.7', '4.3.7'), ('2.3.3', '3.3.7')])
  def test_does_not_go_on_under_another_physics(self, tmp_path, mujoco, warnings, begun, after):
    mujoco(begun)
    _train(tmp_path)
    recorded = (tmp_path / 'versions.json').read_text('utf-8')
    mujoco(after)
    with pytest.raises(train_lib.ConfigChangedError, match=(
        f'a run under MuJoCo {begun}, and this is MuJoCo {after}.*install mujoco=={begun}.*--allow_config_change')):
      _train(tmp_path)
    assert (tmp_path / 'versions.json').read_text('utf-8') == recorded and not warnings
    _train(tmp_path, allow_config_change=True)
    assert versions.read(tmp_path)['mujoco'] == after
    assert [earlier['mujoco'] for earlier in versions.read_earlier(tmp_path)] == [begun]
    assert f'mujoco {after} instead of {begun}' in warnings[0]

  def test_goes_on_with_other_versions_of_the_same_physics(self, tmp_path, mujoco, warnings):
    mujoco('3.3.5')
    _train(tmp_path)
    mujoco('3.3.7')
    _train(tmp_path)
    assert len(warnings) == 1 and 'mujoco 3.3.7 instead of 3.3.5' in warnings[0]
    assert versions.read(tmp_path)['mujoco'] == '3.3.7' and len(versions.read_earlier(tmp_path)) == 1

  def test_that_is_older_than_records_counts_as_one_under_233(self, tmp_path, mujoco, warnings):
    mujoco('3.3.7')
    _train(tmp_path)
    (tmp_path / 'versions.json').unlink()
    with pytest.raises(train_lib.ConfigChangedError, match='a run under MuJoCo 2.3.3, and this is MuJoCo 3.3.7'):
      _train(tmp_path)
    mujoco('2.3.3')
    _train(tmp_path)
    assert versions.read(tmp_path)['mujoco'] == '2.3.3' and not versions.read_earlier(tmp_path) and not warnings

  def test_that_is_older_than_records_goes_on_if_mujoco_has_no_part_in_it(self, tmp_path, warnings):
    _train(tmp_path)
    (tmp_path / 'versions.json').unlink()
    _train(tmp_path)
    assert versions.read(tmp_path)['mujoco'] is None and not warnings

  def test_goes_on_in_a_process_that_has_mujoco_for_something_else(self, tmp_path, mujoco):
    _train(tmp_path)
    mujoco('3.3.7')
    _train(tmp_path)

  @pytest.mark.parametrize('text', ['{', '[]', '{"jax": "1"}', '{"mujoco": 3.3}'])
  def test_with_a_damaged_record_is_refused(self, tmp_path, text):
    _train(tmp_path)
    (tmp_path / 'versions.json').write_text(text)
    with pytest.raises(train_lib.ConfigChangedError, match='versions.json is damaged'):
      _train(tmp_path)

  def test_has_its_versions_before_its_configuration(self, tmp_path, monkeypatch):
    """Else a run that died in between would count as one that is older than such records."""
    def die(path):
      raise KeyboardInterrupt(str(path))
    monkeypatch.setattr(configuration, 'save_config', die)
    with pytest.raises(KeyboardInterrupt):
      _train(tmp_path)
    assert (tmp_path / 'versions.json').exists()


def test_a_physics_is_a_minor_version():
  assert [physics.of_version(version) for version in ('3.3.7', '3.3.0', '3.10.1', '4.0.0', None)] == [
      '3.3', '3.3', '3.10', '4.0', None]
