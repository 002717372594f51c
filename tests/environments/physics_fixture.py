"""Reads what record_states.py recorded of MuJoCo 2.3.3, and repeats it with the MuJoCo that is installed.

`python -m tests.environments.physics_fixture` prints the table of docs/physics.md.
"""

import pathlib
import re
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from lambda_kit.environments import opengl
from lambda_kit.environments.safety_gym import camera as camera_lib
from lambda_kit.environments.safety_gym import loading
from lambda_kit.environments.safety_gym import physics
from lambda_kit.environments.safety_gym import world

PATH = pathlib.Path(__file__).parent / 'data' / 'physics_2.3.3.npz'
FOLDER = '{safety_gymnasium}'  # Stands for the package's folder, in paths of textures and meshes.
# All that a step depends on.
STATE = ('time', 'qpos', 'qvel', 'act', 'ctrl', 'qacc_warmstart', 'mocap_pos', 'mocap_quat')
MOVED = ('body_pos', 'geom_rgba')  # What tasks change in a compiled model: they move goals and light buttons up.


class Recording(NamedTuple):
  """States of one task."""

  xml: list[str]  # Of each layout.
  layout: np.ndarray  # Of each state, [n].
  state: dict[str, np.ndarray]  # By the names of STATE, [n, ...].
  moved: dict[str, np.ndarray]  # By the names of MOVED, [n, ...].
  next_qvel: np.ndarray  # Velocities after one physics step, [n, nv].
  frames: np.ndarray | None  # [m, 64, 64, 3]
  frame_states: np.ndarray | None  # Whose state each frame shows, [m].


def read(task_id: str) -> Recording:
  loading.safety_gymnasium()
  with np.load(PATH) as file:
    arrays = {name.split('/')[1]: file[name] for name in file.files if name.startswith(f'{task_id}/')}
  xml = [
    arrays[f'xml{i}'].tobytes().decode().replace(FOLDER, package_folder())
    for i in range(1 + int(arrays['layout'].max()))
  ]
  state, moved = ({name: arrays[name] for name in names} for names in (STATE, MOVED))
  return Recording(
    xml, arrays['layout'], state, moved, arrays['next_qvel'], arrays.get('frames'), arrays.get('frame_states')
  )


def package_folder() -> str:
  return str(pathlib.Path(loading.safety_gymnasium().__file__).parent)


def set_state(data: Any, state: dict[str, np.ndarray]) -> None:
  for name, value in state.items():
    if name == 'time':
      data.time = float(value)
    else:
      getattr(data, name)[:] = value


def velocity_differences(recording: Recording) -> np.ndarray:
  """The largest difference of a velocity after one step from each state, [n], from what was recorded."""
  mujoco = opengl.import_mujoco()
  models = [world.compile_layout(xml) for xml in recording.xml]
  result = []
  for i, layout in enumerate(recording.layout):
    model = models[layout]
    data = mujoco.MjData(model)
    _restore(recording, i, model, data)
    mujoco.mj_step(model, data)
    result.append(np.abs(data.qvel - recording.next_qvel[i]).max())
  return np.array(result)


def drawn_frames(recording: Recording) -> np.ndarray:
  """Pictures of the recorded states, [m, 64, 64, 3], drawn as `SafetyGymnasium` does: by one model for all layouts."""
  mujoco = opengl.import_mujoco()
  picture = world.PictureModel(recording.xml[0])
  camera = camera_lib.Camera(picture.model, 'vision', *recording.frames.shape[1:3])
  result = []
  for i in recording.frame_states:
    picture.follow(world.compile_layout(recording.xml[recording.layout[i]]))
    data = mujoco.MjData(picture.model)
    _restore(recording, i, picture.model, data)
    mujoco.mj_forward(picture.model, data)
    result.append(camera.render(data))
  camera.close()
  return np.stack(result)


def _restore(recording: Recording, i: int, model: Any, data: Any) -> None:
  for name, values in recording.moved.items():
    getattr(model, name)[:] = values[i]
  set_state(data, {name: values[i] for name, values in recording.state.items()})


def renderer() -> str:
  """The software or device that draws, and its version. llvmpipe draws the same whatever the width of its vectors."""
  opengl.make_current()
  from OpenGL import GL

  name, version = (GL.glGetString(each).decode() for each in (GL.GL_RENDERER, GL.GL_VERSION))
  return re.sub(r', \d+ bits', '', f'{name}, {version}')


def recorded_renderer() -> str:
  with np.load(PATH) as file:
    return str(file['renderer'])


def main() -> None:
  print(f'MuJoCo {opengl.import_mujoco().__version__}, {renderer()}\n')
  print(
    '| task | states | largest difference | beyond 1e-10 | welds not restored | colliders not restored | '
    'identical images |'
  )
  print('|' + ' --- |' * 7)
  with np.load(PATH) as file:
    tasks = dict.fromkeys(name.split('/')[0] for name in file.files if '/' in name)
  for task_id in tasks:
    recording = read(task_id)
    restored = velocity_differences(recording)
    partly = []
    for left_out in ('_soften_welds', '_disable_new_colliders'):
      with mock.patch.object(physics, left_out, lambda model: None):
        partly.append(velocity_differences(recording))
    pictures = ''
    if recording.frames is not None:
      alike = (drawn_frames(recording) == recording.frames).all(axis=(1, 2, 3))
      pictures = f'{alike.sum()} of {len(alike)}'
    print(
      f'| {task_id} | {len(restored)} | {restored.max():.0e} | {np.mean(restored > 1e-10):.0%} | '
      + ''.join(f'{each.max():.0e} in {np.mean(each > 1e-10):.0%} | ' for each in partly)
      + f'{pictures} |'
    )


if __name__ == '__main__':
  main()
