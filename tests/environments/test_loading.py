"""The import of safety-gymnasium, each in a process of its own: what it needs, and what it leaves behind."""

import os
import pathlib
import subprocess
import sys
import warnings

import numpy as np
import pytest

from lambda_kit.environments.safety_gym import environment as environment_lib
from lambda_kit.environments.safety_gym import loading
from lambda_kit.environments.safety_gym import physics

# Prevents imports, as if packages were not installed.
_BLOCK = """
import sys
class Blocker:
  def find_spec(self, name, path=None, target=None):
    if name.split('.')[0] in {blocked}:
      raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)
sys.meta_path.insert(0, Blocker())
"""


def _run(script: str, blocked: tuple[str, ...] = ()) -> str:
  done = subprocess.run([sys.executable, '-c', _BLOCK.format(blocked=blocked) + script], capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  return done.stdout.strip()


def test_the_import_leaves_everything_as_it_was_found():
  _run("""
import dataclasses, importlib, gymnasium
from lambda_kit.environments import opengl
from lambda_kit.environments.safety_gym import loading, making
opengl.import_mujoco()
rendering = importlib.import_module('gymnasium.envs.mujoco.mujoco_rendering')

def snapshot():
  modules = {name: module for name, module in sys.modules.items() if name.split('.')[0] != 'safety_gymnasium'}
  contents = {name: dict(vars(module)) for name, module in modules.items()
              if name.split('.')[0] in ('gymnasium', 'gymnasium_robotics', 'dataclasses', 'mujoco')}
  return modules, contents, dict(gymnasium.registry), dict(rendering._ALL_RENDERERS)

missing = object()
before = snapshot()
package = loading.safety_gymnasium()
after = snapshot()
for name, module in before[0].items():
  assert after[0][name] is module, name
new = set(after[0]) - set(before[0])
assert not [name for name in new if name.startswith('gymnasium_robotics')], new
for name, contents in before[1].items():
  changed = {key for key, value in contents.items() if after[1][name].get(key, missing) is not value}
  added = {key for key in set(after[1][name]) - set(contents) if f'{name}.{key}' not in new}
  assert not changed and not added, (name, changed, added)
assert before[2] == after[2] and before[3] == after[3]
for name, module in sys.modules.items():
  if name.startswith(('gymnasium', 'safety_gymnasium')):
    assert module.__spec__ is not None, f'{name} is a stand-in.'
assert not {'vector', 'wrappers', 'make', 'make_ma'} & set(vars(package))
assert package.gymnasium_register is gymnasium.register
""")


def test_spawned_workers_import_it_likewise(tmp_path):
  script = tmp_path / 'spawn.py'
  script.write_text("""
import multiprocessing
from lambda_kit.environments.safety_gym import environment

def play(number):
  task = environment.SafetyGymnasium(0, 'SafetyCarGoal1-v0', observations=('vector',))
  task.next_episode = number
  return float(task.reset().observation['vector'].sum())

if __name__ == '__main__':
  with multiprocessing.get_context('spawn').Pool(1) as pool:
    assert pool.map(play, [3]) == [play(3)]
""")
  paths = dict(os.environ, PYTHONPATH=str(pathlib.Path(__file__).parents[2]))
  done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=paths)
  assert done.returncode == 0, done.stderr


@pytest.mark.parametrize('blocked', ['safety_gymnasium', 'mujoco', 'gymnasium'])
def test_what_is_missing_is_named_with_its_remedy(blocked):
  printed = _run(
    """
from lambda_kit.environments.safety_gym import environment, loading
try:
  environment.SafetyGymnasium(0, 'SafetyPointGoal1-v0')
except loading.SimulatorMissing as error:
  print(error)
""",
    blocked=(blocked,),
  )
  assert blocked in printed and '`lambda-kit setup`' in printed and len(printed.splitlines()) == 1


def test_a_plain_gymnasium_task_needs_no_safety_gymnasium():
  assert (
    _run(
      """
import numpy as np
from lambda_kit.environments import gymnasium_task
task = gymnasium_task.GymnasiumTask(0, 'Pendulum-v1')
print(task.reset().observation['vector'].shape)
assert 'safety_gymnasium' not in sys.modules
""",
      blocked=('safety_gymnasium', 'mujoco'),
    )
    == '(3,)'
  )


def test_a_gymnasium_task_without_gymnasium_says_so():
  printed = _run(
    """
from lambda_kit.environments import gymnasium_task
from lambda_kit.environments.safety_gym import loading
try:
  gymnasium_task.GymnasiumTask(0, 'Pendulum-v1')
except loading.SimulatorMissing as error:
  print(error)
""",
    blocked=('gymnasium',),
  )
  assert 'Pendulum-v1 needs gymnasium' in printed and '`lambda-kit setup`' in printed


def test_the_built_in_cmdp_needs_neither_gymnasium_nor_mujoco():
  assert (
    _run(
      """
import numpy as np
from lambda_kit import components
task = components.grid_cmdp.GridCmdp(seed=0)
task.reset()
print(task.step(np.zeros(task.action_spec().shape)).reward.cost.shape)
""",
      blocked=('safety_gymnasium', 'gymnasium', 'mujoco', 'OpenGL'),
    )
    == '(1,)'
  )


def test_a_package_that_someone_else_imported_is_refused(monkeypatch):
  loading.safety_gymnasium()
  monkeypatch.setattr(loading, '_tasks', {})
  with pytest.raises(loading.SimulatorMissing, match='Leave its import to lambda_kit'):
    loading.safety_gymnasium.__wrapped__()


def test_arrays_without_strides_are_refused(monkeypatch):
  """What MuJoCo before 3.1.4 hands out under numpy 2: a zero stride in the options of the renderer."""
  import mujoco

  class Options:
    geomgroup = np.lib.stride_tricks.as_strided(np.zeros(6, np.uint8), strides=(0,))

  loading.safety_gymnasium()
  monkeypatch.setattr(mujoco, 'MjvOption', Options)
  with pytest.raises(loading.SimulatorMissing, match='vanish .* MuJoCo 3.1.4 or later: `lambda-kit setup`'):
    loading.safety_gymnasium.__wrapped__()


def test_another_mujoco_is_warned_of_once(monkeypatch):
  import mujoco

  messages = []
  monkeypatch.setattr(mujoco, '__version__', '3.9.0')
  monkeypatch.setattr(physics.logging, 'warning', lambda *arguments: messages.append(arguments))
  loading.safety_gymnasium.cache_clear()
  for _ in range(2):
    environment_lib.SafetyGymnasium(0, 'SafetyPointGoal1-v0', observations=('vector',))
  assert len(messages) == 1 and '3.9.0' in messages[0]


@pytest.mark.parametrize('task', ['SafetyCarGoal1-v0', 'SafetyDoggoGoal1-v0', 'SafetyAntGoal1-v0'])
def test_no_array_is_taken_for_a_number(task):
  """numpy 2.5 raises where numpy before it is only deprecating."""
  with warnings.catch_warnings():
    warnings.filterwarnings('error', message='Conversion of an array with ndim')
    environment = environment_lib.SafetyGymnasium(0, task, observations=('vector',))
    environment.reset()
    environment._task.obs()
