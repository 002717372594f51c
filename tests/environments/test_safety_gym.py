"""The adapter against safety-gymnasium itself: same physics, rewards, costs, observations and pixels."""

import numpy as np
import pytest

from lambda_kit.environments import episodic
from lambda_kit.environments.safety_gym import environment as environment_lib
from lambda_kit.environments.safety_gym import physics
from lambda_kit.environments.safety_gym import world
from tests.environments import safety_gym_reference as reference_lib
from tests.environments import scripted_driver

SG6 = reference_lib.SG6


@pytest.mark.parametrize('task_id', SG6)
@pytest.mark.parametrize('num_episodes', [1, pytest.param(3, marks=pytest.mark.slow)])
def test_trajectories_equal_those_of_safety_gymnasium(task_id, num_episodes):
  """Episodes of each task: rewards and costs to the bit, observations to the lidar's order of summation."""
  costs = goals = 0
  ours = environment_lib.SafetyGymnasium(seed=5, task=task_id, observations=('vector',), episode_length=500)
  kinds = sum(obstacle.is_lidar_observed for obstacle in ours._task._obstacles)
  theirs = reference_lib.reference(task_id)
  with world.quick_compilation():
    theirs.task.num_steps = 500
    theirs.reset(seed=0)  # Its first reset computes forces once less, which shows in the last digits of the physics.
    for episode in range(num_episodes):
      rng = np.random.default_rng(episode)
      vector, _ = theirs.reset(seed=episodic.episode_seed(5, episode))
      timestep = ours.reset()
      step = 0
      while not timestep.last():
        action = scripted_driver.drive(
          ours._task.agent_name, vector, kinds, step // 100 % kinds, step, rng, ours.action_spec().shape[0]
        )
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
  if 'Doggo' not in task_id:  # It is slow.
    assert costs > 0, 'No cost was paid: the comparison shows nothing about costs.'
  if 'Push' not in task_id and 'Doggo' not in task_id:
    assert goals > 0, 'No goal was reached: the comparison shows nothing about what follows.'


# Each robot once; the other tasks have other objects of the same kinds.
@pytest.mark.parametrize(
  'task_id', [pytest.param(task_id, marks=[] if task_id.endswith('Goal1-v0') else pytest.mark.slow) for task_id in SG6]
)
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
  fresh = physics.restore_physics(mujoco.MjModel.from_xml_string(ours._simulation.xml))
  for name in world.numeric_fields(fresh):
    np.testing.assert_array_equal(getattr(picture.model, name), getattr(fresh, name), err_msg=name)
  for name in ('tex_data', 'tex_type', 'tex_height', 'tex_width', 'tex_adr'):
    np.testing.assert_array_equal(getattr(picture.model, name), getattr(fresh, name), err_msg=name)
  for name in (*world._STATISTICS, 'center'):
    np.testing.assert_array_equal(getattr(picture.model.stat, name), getattr(fresh.stat, name), err_msg=name)
