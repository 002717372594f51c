"""Records what MuJoCo 2.3.3 does in one step, and draws: tests/environments/data/physics_2.3.3.npz.

Tests compare later MuJoCo with it (test_physics.py). To record it anew, in a folder of its own with Python 3.11:

  python3.11 -m venv original && . original/bin/activate
  pip install mujoco==2.3.3 gymnasium==0.28.1 'numpy<2' 'scipy<1.14' absl-py dm-env gin-config pillow pyopengl pyyaml \
      xmltodict imageio chex 'jax<0.8'
  pip install --no-deps safety-gymnasium==1.0.0
  python -m tests.environments.record_states

Tasks, steps and pictures are safety-gymnasium's own; of lambda_kit only the import is used.
"""

import collections
import importlib
import itertools
import pathlib
import re
from typing import Any

import numpy as np

from lambda_kit.environments import opengl
from lambda_kit.environments.safety_gym import loading
from lambda_kit.environments.safety_gym import making
from lambda_kit.environments.safety_gym import physics
from tests.environments import physics_fixture
from tests.environments import safety_gym_reference
from tests.environments import scripted_driver

NAVIGATION = (
  *safety_gym_reference.SG6,
  'SafetyCarPush1-v0',
  'SafetyCarButton1-v0',
  'SafetyPointCircle1-v0',
  'SafetyAntGoal1-v0',
  'SafetyRacecarGoal1-v0',
)
VELOCITY = tuple(f'Safety{robot}Velocity-v1' for robot in ('Ant', 'HalfCheetah', 'Humanoid'))
_LAYOUTS = 2
_STEPS = 600  # Of each layout.
_TARGET_STEPS = 60  # Then it drives to the next kind of object.
_EVERY = 60  # Records a state in any case,
_FRAME_EVERY = 180  # and a picture at some.
_CONTACTS = 5  # How many states are recorded of each pair of objects that meet, in a layout.


class Recorder:
  """Collects states of one task."""

  def __init__(self):
    self.layouts: list[str] = []
    self._values: dict[str, list[np.ndarray]] = collections.defaultdict(list)
    self._seen: collections.Counter[Any] = collections.Counter()
    self._frames: list[np.ndarray] = []
    self._frame_states: list[int] = []

  def add_layout(self, xml: str) -> None:
    self.layouts.append(xml)
    self._seen.clear()

  def is_wanted(self, model: Any, data: Any, step: int) -> bool:
    """True now and then, and when objects meet that were not recorded often."""
    pairs = _pairs(model, data)
    wanted = step % _EVERY == 0 or any(self._seen[pair] < _CONTACTS for pair in pairs)
    if wanted:
      self._seen.update(pairs)
    return wanted

  def add(self, model: Any, data: Any) -> None:
    mujoco = opengl.import_mujoco()
    state = {name: np.array(getattr(data, name)) for name in physics_fixture.STATE}
    after = mujoco.MjData(model)
    physics_fixture.set_state(after, state)
    mujoco.mj_step(model, after)
    for name, value in dict(
      state,
      layout=len(self.layouts) - 1,
      next_qvel=after.qvel.copy(),
      **{name: getattr(model, name).copy() for name in physics_fixture.MOVED},
    ).items():
      self._values[name].append(np.asarray(value))

  def add_frame(self, frame: np.ndarray) -> None:
    """Adds the picture of the state that was added last."""
    self._frames.append(frame)
    self._frame_states.append(len(self._values['layout']) - 1)

  def arrays(self) -> dict[str, np.ndarray]:
    result = {name: np.stack(values) for name, values in self._values.items()}
    for i, xml in enumerate(self.layouts):
      result[f'xml{i}'] = np.frombuffer(xml.encode(), np.uint8)
    if self._frames:
      result.update(frames=np.stack(self._frames), frame_states=np.array(self._frame_states))
    return result


def _pairs(model: Any, data: Any) -> set[tuple[str, str]]:
  """Kinds of objects in contact, but for what lies on the floor."""
  kinds = [re.sub(r'\d.*', '', model.geom(i).name) or 'robot' for i in range(model.ngeom)]
  pairs = {tuple(sorted((kinds[contact.geom1], kinds[contact.geom2]))) for contact in data.contact}
  return {pair for pair in pairs if 'floor' not in pair}


def record_navigation(task_id: str) -> dict[str, np.ndarray]:
  """Drives two layouts of safety-gymnasium's own environment by a script."""
  environment = safety_gym_reference.reference(task_id)
  environment.task.num_steps = _STEPS
  recorder = Recorder()
  for layout in range(_LAYOUTS):
    vector = _reset(environment, layout)
    task = environment.task
    kinds = sum(obstacle.is_lidar_observed for obstacle in task._obstacles)
    recorder.add_layout(task.world.xml_string.replace(physics_fixture.package_folder(), physics_fixture.FOLDER))
    rng = np.random.default_rng(layout)
    for step in range(_STEPS):
      target = step // _TARGET_STEPS % kinds
      environment.terminated = False  # An Ant on its back goes on.
      vector, *_ = environment.step(
        scripted_driver.drive(task.agent_name, vector, kinds, target, step, rng, environment.action_space.shape[0])
      )
      if recorder.is_wanted(task.model, task.data, step):
        recorder.add(task.model, task.data)
        if step % _FRAME_EVERY == 0:
          recorder.add_frame(safety_gym_reference.picture(environment))
  return recorder.arrays()


def _reset(environment: Any, layout: int) -> np.ndarray:
  for seed in itertools.count(1000 * layout):
    try:
      return environment.reset(seed=seed)[0]
    except AssertionError:  # A layout with costs at its start.
      continue


def record_velocity(task_id: str) -> dict[str, np.ndarray]:
  """Acts at random."""
  environment = making.make(task_id).unwrapped
  recorder = Recorder()
  recorder.add_layout(pathlib.Path(environment.fullpath).read_text(encoding='utf-8'))
  rng = np.random.default_rng(0)
  environment.reset(seed=0)
  for step in range(_STEPS):
    *_, terminated, _, _ = environment.step(rng.uniform(-1, 1, environment.action_space.shape))
    if step % 10 == 0:
      recorder.add(environment.model, environment.data)
    if terminated:
      environment.reset(seed=step)
  return recorder.arrays()


def main() -> None:
  version = opengl.import_mujoco().__version__
  if version != physics.ORIGINAL:
    raise SystemExit(f'This is MuJoCo {version}; {physics.ORIGINAL} is to be recorded.')
  loading.safety_gymnasium()
  # Its own viewer, which gymnasium 0.28.1 lets take its size from the model.
  underlying = importlib.import_module('safety_gymnasium.bases.underlying')
  underlying.OffScreenViewer = importlib.import_module('gymnasium.envs.mujoco.mujoco_rendering').OffScreenViewer
  arrays = {}
  for task_id in (*NAVIGATION, *VELOCITY):
    record = record_velocity if task_id in VELOCITY else record_navigation
    recorded = record(task_id)
    arrays.update({f'{task_id}/{name}': value for name, value in recorded.items()})
    print(task_id, len(recorded['layout']), 'states,', len(recorded.get('frames', ())), 'frames', flush=True)
  arrays['renderer'] = np.array(physics_fixture.renderer())
  physics_fixture.PATH.parent.mkdir(exist_ok=True)
  np.savez_compressed(physics_fixture.PATH, **arrays)
  print(f'{physics_fixture.PATH}: {physics_fixture.PATH.stat().st_size / 1e3:.0f} kB')


if __name__ == '__main__':
  main()
