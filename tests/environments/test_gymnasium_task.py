"""The adapter for any gymnasium environment with costs."""

from absl.testing import absltest
from dm_env import test_utils
import gymnasium
import numpy as np
import pytest

from lambda_kit import errors
from lambda_kit.environments import gymnasium_task


class Pushy(gymnasium.Env):
  """A picture and two groups of numbers; costs in `info`. Terminates after 3 steps if `mortal`, else stops after 4."""

  observation_space = gymnasium.spaces.Dict(
    {
      'view': gymnasium.spaces.Box(0, 255, (4, 4, 3), np.uint8),
      'body': gymnasium.spaces.Dict(
        {'angle': gymnasium.spaces.Box(-1, 1, (1,), np.float32), 'speed': gymnasium.spaces.Box(-1, 1, (2,), np.float32)}
      ),
    }
  )
  action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

  def __init__(self, mortal=False, six=False):
    self._mortal, self._six = mortal, six

  def _observation(self):
    return {
      'view': np.full((4, 4, 3), self._t, np.uint8),
      'body': {'angle': np.array([self._start], np.float32), 'speed': np.full(2, self._t, np.float32)},
    }

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self._t, self._start = 0, self.np_random.uniform()
    return self._observation(), {}

  def step(self, action):
    self._t += 1
    terminated, truncated = self._mortal and self._t == 3, self._t == 4
    if self._six:
      return self._observation(), 1.0, 7.0, terminated, truncated, {}
    return self._observation(), 1.0, terminated, truncated, {'cost': 2.0, 'cost_other': 3.0}

  def render(self):
    return np.full((8, 8, 3), 200, np.uint8)


def _make(task='pushy', seed=0, cost_keys=('cost',), **options):
  return gymnasium_task.GymnasiumTask(seed, task, make=lambda task, render_mode: Pushy(**options), cost_keys=cost_keys)


def test_an_id_that_names_a_module_is_refused():
  """gymnasium would import it, although no gin file has an import statement."""
  with pytest.raises(errors.SetupError, match="Write `import their_code` in a gin file, and TASK = 'Walk-v0'"):
    gymnasium_task.GymnasiumTask(0, 'their_code:Walk-v0')


class ConformanceTest(test_utils.EnvironmentTestMixin, absltest.TestCase):
  def make_object_under_test(self):
    return _make(cost_keys=('cost', 'cost_other'))

  def make_action_sequence(self):
    for _ in range(20):
      yield np.zeros(2, np.float32)


class SixTupleConformanceTest(ConformanceTest):
  def make_object_under_test(self):
    return _make(six=True)


def test_costs_from_info_and_from_the_six_tuple():
  for options, expected in ((dict(cost_keys=('cost', 'cost_other')), [2, 3]), (dict(six=True), [7])):
    environment = _make(**options)
    environment.reset()
    assert environment.step(np.zeros(2)).reward.cost.tolist() == expected


def test_truncation_keeps_the_discount_and_termination_does_not():
  for mortal, length, discount in ((False, 4, 1.0), (True, 3, 0.0)):
    environment = _make(mortal=mortal)
    timestep, steps = environment.reset(), 0
    while not timestep.last():
      timestep, steps = environment.step(np.zeros(2)), steps + 1
    assert (steps, timestep.discount) == (length, discount)


def test_episodes_follow_from_seed_and_number():
  environment = _make(seed=5)
  starts = [environment.reset().observation['vector'][0] for _ in range(3)]
  assert len(set(starts)) == 3
  again = _make(seed=5)
  again.next_episode = 2
  assert again.reset().observation['vector'][0] == starts[2]


def test_observations_are_split_into_image_and_vector():
  observation = _make().reset().observation
  assert observation['image'].shape == (4, 4, 3) and observation['vector'].shape == (3,)
  assert _make().render(10, 12).shape == (10, 12, 3)


def test_a_task_without_costs_is_refused():
  environment = gymnasium_task.GymnasiumTask(0, 'Pendulum-v1')
  environment.reset()
  with pytest.raises(ValueError, match='Pendulum-v1 reports no cost'):
    environment.step(np.zeros(1, np.float32))


def test_discrete_actions_are_refused():
  with pytest.raises(ValueError, match='continuous'):
    gymnasium_task.GymnasiumTask(0, 'CartPole-v1')


@pytest.mark.parametrize('version', ['v0', 'v1'])
@pytest.mark.parametrize('robot', ['Ant', 'HalfCheetah', 'Hopper', 'Humanoid', 'Swimmer', 'Walker2d'])
def test_velocity_tasks_of_safety_gymnasium(robot, version):
  from gymnasium.envs.mujoco import mujoco_rendering

  renderers = dict(mujoco_rendering._ALL_RENDERERS)
  environment = gymnasium_task.GymnasiumTask(0, f'Safety{robot}Velocity-{version}')
  timestep = environment.reset()
  assert timestep.observation['vector'].shape == environment.observation_spec()['vector'].shape
  timestep = environment.step(np.zeros(environment.action_spec().shape, np.float32))
  assert timestep.reward.cost.tolist() == [0.0] and timestep.mid()
  picture = environment.render(48, 64)
  assert picture.shape == (48, 64, 3) and picture.std() > 1
  environment.close()
  assert renderers == mujoco_rendering._ALL_RENDERERS


def test_tasks_of_safety_gymnasium_end_at_their_time_limit():
  environment = gymnasium_task.GymnasiumTask(0, 'SafetySwimmerVelocity-v1')
  for _ in range(2):
    timestep, steps = environment.reset(), 0
    while not timestep.last():
      timestep, steps = environment.step(np.ones(2, np.float32)), steps + 1
    assert (steps, timestep.discount) == (1000, 1.0)


def test_an_unknown_task_is_named_with_its_neighbours():
  with pytest.raises(ValueError, match="a task 'SafetyAntVelocty-v1'. Did you mean SafetyAntVelocity-v1"):
    gymnasium_task.GymnasiumTask(0, 'SafetyAntVelocty-v1')


def test_velocity_tasks_of_safety_gymnasium_draw_in_turns():
  environments = [gymnasium_task.GymnasiumTask(seed, 'SafetyHalfCheetahVelocity-v1') for seed in (0, 1)]
  action = np.full(6, 0.5, np.float32)
  pictures = []
  for environment in environments:
    environment.reset()
    for _ in range(3):
      timestep = environment.step(action)
    pictures.append(environment.render(64, 64))
  assert timestep.reward.cost.shape == (1,)
  for environment, picture in zip(environments, pictures):
    np.testing.assert_array_equal(environment.render(64, 64), picture)
