"""The vector observation of a safety-gymnasium task: the robot's sensors, then a lidar for each kind of object."""

from typing import Any

import numpy as np

from lambda_kit.environments.safety_gym import lidar


class VectorSensors:
  """Reads the vector that safety-gymnasium calls the flattened observation, in the same order.

  For tasks with an observation of their own, safety-gymnasium's own method is called.

  Attributes:
    size: Length of the vector.
    num_readings: Lidar readings, at the vector's end; None for a task with an observation of its own.
  """

  def __init__(self, task: Any):
    from safety_gymnasium.bases import base_task
    from safety_gymnasium.tasks.safe_navigation.button import button_level0

    self._task = task
    self.size = int(np.prod(task.observation_space.shape))
    lidars = [o for o in task._obstacles if o.is_lidar_observed]
    has_compass = any(getattr(o, 'is_comp_observed', False) for o in task._obstacles)
    found = [_bodies(task, obstacle) for obstacle in lidars]
    bodies = [each for each in found if each is not None]
    self._ask_task = (
      type(task).obs not in (base_task.BaseTask.obs, button_level0.ButtonLevel0.obs)
      or task.lidar_conf.type != 'pseudo'
      or has_compass
      or len(bodies) < len(lidars)
      or not task.agent.sensor_conf.sensors_angle_components
    )
    self.num_readings = None if self._ask_task else len(lidars) * task.lidar_conf.num_bins
    if self._ask_task:
      return
    self._agent = task.model.body('agent').id
    self._num_kinds = len(lidars)
    self._bodies = np.concatenate(bodies) if bodies else np.zeros(0, int)
    self._kinds = np.repeat(np.arange(len(lidars)), [len(b) for b in bodies])
    self._button_row = next((i for i, o in enumerate(lidars) if o.name == 'buttons'), None)
    agent, info = task.agent, task.agent.sensor_info
    direct = [(name, 0) for name in (*agent.sensor_conf.sensors, *info.hinge_vel_names, *info.ballangvel_names)]
    if info.freejoint_pos_name:
      direct.append((info.freejoint_pos_name, 2))  # Height only.
    if info.freejoint_qvel_name:
      direct.append((info.freejoint_qvel_name, 0))
    self._direct = np.concatenate([_addresses(task.model, name)[skip:] for name, skip in direct])
    self._hinges = np.array([_addresses(task.model, name)[0] for name in info.hinge_pos_names], int)
    self._balls = [_addresses(task.model, name) for name in info.ballquat_names]

  def read(self) -> np.ndarray:
    """Returns the observation of the current state, float64 [size]. Needs up-to-date positions and sensors."""
    task = self._task
    if self._ask_task:
      return np.asarray(task.obs(), np.float64)
    data, readings = task.data, task.data.sensordata
    angles = readings[self._hinges]
    parts = [readings[self._direct], np.stack([np.sin(angles), np.cos(angles)], axis=1).ravel()]
    parts += [_rotation(readings[address]).ravel() for address in self._balls]
    if self._num_kinds:
      rings = lidar.pseudo_lidar(
        data.xpos[self._bodies],
        self._kinds,
        self._num_kinds,
        data.xpos[self._agent],
        data.xmat[self._agent].reshape(3, 3),
        task.lidar_conf.num_bins,
        task.lidar_conf.max_dist,
        task.lidar_conf.exp_gain,
        task.lidar_conf.alias,
      )
      if self._button_row is not None and task.buttons.timer != 0:
        rings[self._button_row] = 0  # After a button was pressed, all are invisible for some steps.
      parts.append(rings.ravel())
    return np.concatenate(parts)


def _bodies(task: Any, obstacle: Any) -> np.ndarray | None:
  """Ids of the bodies whose positions are `obstacle.pos`; None if they can't be found."""
  count = getattr(obstacle, 'num', None)
  singular = obstacle.name[:-1]
  suffix = 'obj' if obstacle.type == 'mocaps' else ''
  names = [obstacle.name] if count is None else [f'{singular}{i}{suffix}' for i in range(count)]
  try:
    bodies = np.array([task.model.body(name).id for name in names], int)
  except KeyError:
    return None
  return bodies if np.array_equal(task.data.xpos[bodies], np.atleast_2d(obstacle.pos)) else None


def _addresses(model: Any, sensor: str) -> np.ndarray:
  number = model.sensor(sensor).id
  return model.sensor_adr[number] + np.arange(model.sensor_dim[number])


def _rotation(quaternion: np.ndarray) -> np.ndarray:
  from safety_gymnasium.utils import task_utils

  return task_utils.quat2mat(quaternion)
