"""The adapter against safety-gymnasium itself: same physics, rewards, costs, observations and pixels."""

import numpy as np
import pytest

from lambda_kit.environments import episodic
from lambda_kit.environments.safety_gym import environment as environment_lib
from lambda_kit.environments.safety_gym import world

from tests.environments import safety_gym_reference as reference_lib

SG6 = reference_lib.SG6


def _seek(robot: str, vector: np.ndarray, kinds: int, target: int, rng: np.random.Generator, shape) -> np.ndarray:
  """Drives towards the nearest object of one kind, by its lidar, so that goals are reached and costs are paid."""
  ring = vector[len(vector) - 16 * kinds:].reshape(kinds, 16)[target]
  angle = (np.argmax(ring) + 0.5) * 2 * np.pi / 16
  angle = (angle + np.pi) % (2 * np.pi) - np.pi
  if robot == 'Point':
    action = np.array([1.0 if abs(angle) < 1 else 0.0, np.clip(2 * angle, -1, 1)])
  elif robot == 'Car':  # Its front is along y.
    turn = np.clip((angle - np.pi / 2 + np.pi) % (2 * np.pi) - np.pi, -1, 1)
    action = np.array([1 + turn, 1 - turn])
  else:
    action = rng.uniform(-1, 1, shape)
  return np.clip(action + 0.2 * rng.normal(size=shape), -1, 1)


@pytest.mark.parametrize('task_id', SG6)
def test_trajectories_equal_those_of_safety_gymnasium(task_id):
  """Three episodes of each task: rewards and costs to the bit, observations to the lidar's order of summation."""
  costs = goals = 0
  ours = environment_lib.SafetyGymnasium(seed=5, task=task_id, observations=('vector',), episode_length=500)
  kinds = sum(obstacle.is_lidar_observed for obstacle in ours._task._obstacles)
  theirs = reference_lib.reference(task_id)
  with world.quick_compilation():
    theirs.task.num_steps = 500
    theirs.reset(seed=0)  # Its first reset computes forces once less, which shows in the last digits of the physics.
    for episode in range(3):
      rng = np.random.default_rng(episode)
      vector, _ = theirs.reset(seed=episodic.episode_seed(5, episode))
      timestep = ours.reset()
      step = 0
      while not timestep.last():
        action = _seek(ours._task.agent_name, vector, kinds, step // 100 % kinds, rng, ours.action_spec().shape)
        vector, reward, cost, terminated, truncated, info = theirs.step(action)
        timestep = ours.step(action)
        step += 1
        assert timestep.reward.reward == reward
        assert timestep.reward.cost == cost
        np.testing.assert_allclose(timestep.observation['vector'], vector, rtol=0, atol=1e-12)
        assert timestep.last() == (terminated or truncated)
        costs += cost
        goals += info.get('goal_met', False)
      assert step == 500 and timestep.discount == 1.0  # A time limit is no termination.
  if 'Doggo' not in task_id:  # It only stumbles.
    assert costs > 0, 'No cost was paid: the comparison shows nothing about costs.'
  if 'PointGoal' in task_id or 'Button' in task_id:
    assert goals > 0, 'No goal was reached: the comparison shows nothing about what follows.'


@pytest.mark.parametrize('task_id', SG6)
def test_pixels_equal_those_of_safety_gymnasium(task_id):
  ours = environment_lib.SafetyGymnasium(seed=7, task=task_id, observations=('image',))
  shape = ours.action_spec().shape
  theirs = reference_lib.reference(task_id)
  theirs.reset(seed=0)
  for episode in range(2):
    theirs.reset(seed=episodic.episode_seed(7, episode))
    timestep = ours.reset()
    rng = np.random.default_rng(episode)
    for _ in range(8):
      np.testing.assert_array_equal(timestep.observation['image'], reference_lib.picture(theirs))
      action = rng.uniform(-1, 1, shape)
      for _ in range(12):
        theirs.step(action)
        timestep = ours.step_many(action, 1)
  ours.close()


@pytest.mark.parametrize('task_id', SG6)
def test_layouts_are_compiled_as_by_safety_gymnasium(task_id):
  """All numbers of the model, textures apart, for a layout that the picture's model was not compiled with."""
  import mujoco
  ours = environment_lib.SafetyGymnasium(seed=1, task=task_id, observations=('vector',))
  ours.reset()
  picture = world.PictureModel(ours._simulation.xml)
  ours.reset()
  layout = world.compile_layout(ours._simulation.xml)
  picture.follow(layout)
  fresh = mujoco.MjModel.from_xml_string(ours._simulation.xml)
  for name in world.numeric_fields(fresh):
    np.testing.assert_array_equal(getattr(picture.model, name), getattr(fresh, name), err_msg=name)
  for name in ('tex_rgb', 'tex_type', 'tex_height', 'tex_width', 'tex_adr'):
    np.testing.assert_array_equal(getattr(picture.model, name), getattr(fresh, name), err_msg=name)
  for name in (*world._STATISTICS, 'center'):
    np.testing.assert_array_equal(getattr(picture.model.stat, name), getattr(fresh.stat, name), err_msg=name)
