"""safety-gymnasium itself, as users have it, to compare with."""

import numpy as np

from lambda_kit.environments import opengl
from lambda_kit.environments.safety_gym import loading

SG6 = (
  'SafetyPointGoal1-v0',
  'SafetyPointGoal2-v0',
  'SafetyCarGoal1-v0',
  'SafetyPointPush1-v0',
  'SafetyPointButton1-v0',
  'SafetyDoggoGoal1-v0',
)


def reference(task_id: str, size: int = 64, frameskip_probability: float = 1.0):
  """The task's own `Builder`, which renders `size`x`size` pictures without lidar markers."""
  spec = loading.tasks()[task_id]
  from safety_gymnasium import builder

  with np.errstate(over='ignore'):  # In gymnasium's spaces.
    environment = builder.Builder(**spec.kwargs, render_mode='rgb_array', width=size, height=size)
  environment.task.sim_conf.frameskip_binom_p = frameskip_probability
  environment.task.render_conf.lidar_markers = False
  return environment


def picture(environment) -> np.ndarray:
  """What the vision tasks observe: no sphere around a robot that pays a cost."""
  task = environment.task
  if task.viewer is not None:
    opengl.draw_into(task.viewer.con)
  parameters = environment.render_parameters
  with opengl.shared_viewers():
    return task.render(parameters.width, parameters.height, mode='rgb_array', camera_name='vision', cost={})
