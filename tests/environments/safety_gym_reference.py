"""safety-gymnasium itself, as users have it, to compare with."""

import contextlib

import numpy as np

from lambda_kit.environments import opengl
from lambda_kit.environments.safety_gym import loading

SG6 = ('SafetyPointGoal1-v0', 'SafetyPointGoal2-v0', 'SafetyCarGoal1-v0', 'SafetyPointPush1-v0',
       'SafetyPointButton1-v0', 'SafetyDoggoGoal1-v0')


class _SharedContext:
  """Lets safety-gymnasium's viewer draw in the process's only OpenGL context."""

  def __init__(self, width, height):
    del width, height
    opengl.make_current()

  def make_current(self):
    opengl.make_current()

  def free(self):
    pass


@contextlib.contextmanager
def reference(task_id: str, size: int = 64, frameskip_probability: float = 1.0):
  """The task's own `Builder`, which renders `size`x`size` pictures without lidar markers."""
  loading.safety_gymnasium()
  from gymnasium.envs import registration
  from gymnasium.envs.mujoco import mujoco_rendering
  from safety_gymnasium import builder
  spec = registration.registry[task_id]
  original = dict(mujoco_rendering._ALL_RENDERERS)
  mujoco_rendering._ALL_RENDERERS.clear()
  mujoco_rendering._ALL_RENDERERS['shared'] = _SharedContext
  environment = builder.Builder(**spec.kwargs, render_mode='rgb_array', width=size, height=size)
  environment.task.sim_conf.frameskip_binom_p = frameskip_probability
  environment.task.render_conf.lidar_markers = False
  try:
    yield environment
  finally:
    mujoco_rendering._ALL_RENDERERS.clear()
    mujoco_rendering._ALL_RENDERERS.update(original)


def picture(environment) -> np.ndarray:
  """What the vision tasks observe: no sphere around a robot that pays a cost."""
  import mujoco
  task = environment.task
  viewer = task._get_viewer('rgb_array') if task._viewers else None
  if viewer is not None:
    opengl.make_current()
    mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, viewer.con)
  parameters = environment.render_parameters
  return task.render(parameters.width, parameters.height, mode='rgb_array', camera_name='vision', cost={})
