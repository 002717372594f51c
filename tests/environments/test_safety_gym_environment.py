"""What the adapter promises beyond equality with safety-gymnasium."""

from absl.testing import absltest
from dm_env import test_utils
import numpy as np
import pytest

from lambda_kit.environments import factory
from lambda_kit.environments.safety_gym import environment as environment_lib

# Which of red, green and blue are strong in safety-gymnasium's objects.
_STRONG = {'goal': (1,), 'hazard': (2,), 'vase': (1, 2), 'button': (0, 1), 'gremlin': (2,)}


def _make(task='SafetyPointGoal1-v0', seed=0, **options):
  return environment_lib.SafetyGymnasium(seed=seed, task=task, **options)


class _Conformance(test_utils.EnvironmentTestMixin):
  """dm_env's own tests, on episodes short enough to meet their ends."""

  options = {}

  def make_object_under_test(self):
    return _make(episode_length=7, **self.options)

  def make_action_sequence(self):
    spec = self.environment.action_spec()
    for _ in range(20):
      yield np.random.default_rng(0).uniform(spec.minimum, spec.maximum)


class VectorConformanceTest(_Conformance, absltest.TestCase):
  options = dict(observations=('vector',))


class LidarPowersConformanceTest(_Conformance, absltest.TestCase):
  options = dict(observations=('vector',), lidar_powers=(8, 24))


class ImageConformanceTest(_Conformance, absltest.TestCase):
  options = dict(observations=('image',), image_size=16)


class ManyCostsConformanceTest(_Conformance, absltest.TestCase):
  options = dict(
    observations=('image', 'vector'), image_size=16, task='SafetyPointGoal2-v0', constraints=('hazards', 'vases')
  )


class WrappedConformanceTest(_Conformance, absltest.TestCase):
  def make_object_under_test(self):
    return factory.make_environment(
      seed=0, action_repeat=2, simulator=lambda seed: _make(seed=seed, observations=('vector',), episode_length=7)
    )


def _play(environment, actions):
  timesteps = [environment.reset()]
  for action in actions:
    timesteps.append(environment.step(action))
  return timesteps


def _random_actions(environment, count, seed=0):
  spec = environment.action_spec()
  return np.random.default_rng(seed).uniform(spec.minimum, spec.maximum, (count, *spec.shape))


def test_an_episode_follows_from_seed_and_number_whatever_came_before():
  straight = _make(seed=3, observations=('image', 'vector'), frameskip_probability=0.8)
  actions = _random_actions(straight, 12)
  _play(straight, actions[:5])
  _play(straight, actions[:3])
  expected = _play(straight, actions)  # Episode 2.
  jumped = _make(seed=3, observations=('image', 'vector'), frameskip_probability=0.8)
  jumped.next_episode = 2
  for ours, theirs in zip(_play(jumped, actions), expected):
    assert ours.reward == theirs.reward
    for name in ('image', 'vector'):
      np.testing.assert_array_equal(ours.observation[name], theirs.observation[name])
  assert jumped.next_episode == 3
  other = _make(seed=4, observations=('vector',))
  other.next_episode = 2
  assert not np.array_equal(other.reset().observation['vector'], expected[0].observation['vector'])


def test_two_environments_draw_in_turns_without_disturbing_each_other():
  alone = _make(seed=1, image_size=32)
  actions = _random_actions(alone, 6)
  expected = [timestep.observation['image'] for timestep in _play(alone, actions)]
  first, second = _make(seed=1, image_size=32), _make(seed=2, image_size=48)
  seen = [first.reset().observation['image']]
  second.reset()
  for action in actions:
    second.step(action)
    seen.append(first.step(action).observation['image'])
    second.render(100, 120)
  np.testing.assert_array_equal(seen, expected)


def test_repeated_steps_sum_rewards_and_costs_and_observe_once():
  single, repeated = (_make(seed=2, task='SafetyPointGoal2-v0', observations=('vector',)) for _ in range(2))
  single.reset()
  repeated.reset()
  total = np.zeros(2)
  for action in _random_actions(single, 60, seed=3):
    steps = [single.step(action) for _ in range(3)]
    timestep = repeated.step_many(action, 3)
    assert timestep.reward.reward == pytest.approx(sum(step.reward.reward for step in steps), abs=1e-12)
    assert timestep.reward.cost == sum(step.reward.cost for step in steps)
    np.testing.assert_array_equal(timestep.observation['vector'], steps[-1].observation['vector'])
    assert repeated.last_step_count == 3
    total += (timestep.reward.reward, timestep.reward.cost[0])
  assert total[0] != 0


def test_powers_of_lidars_follow_the_vector():
  # 12 numbers of the robot, then 16 readings each of goal, hazards and vases.
  plain, powers = (_make(observations=('vector',), seed=4, lidar_powers=powers) for powers in ((), (2, 24)))
  for expected, timestep in zip(_play(plain, _random_actions(plain, 5)), _play(powers, _random_actions(powers, 5))):
    expected, vector = expected.observation['vector'], timestep.observation['vector']
    np.testing.assert_array_equal(vector[:60], expected)
    np.testing.assert_allclose(vector[60:108], expected[12:] ** 2, rtol=1e-12)
    np.testing.assert_allclose(vector[108:], expected[12:] ** 24, rtol=1e-12)
  assert plain.observation_spec()['vector'].shape == (60,) and powers.observation_spec()['vector'].shape == (156,)


@pytest.mark.parametrize('powers', [(0,), (8, -1), 8])
def test_powers_of_lidars_are_positive_numbers(powers):
  with pytest.raises(
    ValueError, match='lidar_powers = .* should be a sequence in which each is a finite number, more than 0'
  ):
    _make(lidar_powers=powers)


def test_powers_of_lidars_that_are_not_known_are_refused(monkeypatch):
  monkeypatch.setattr(environment_lib.simulation_lib.Simulation, 'num_lidar_readings', None)
  with pytest.raises(ValueError, match='an observation of its own'):
    _make(lidar_powers=(8,))


def test_a_repeat_stops_at_the_time_limit():
  environment = _make(observations=('vector',), episode_length=5)
  environment.reset()
  environment.step_many(np.zeros(2), 4)
  timestep = environment.step_many(np.zeros(2), 4)
  assert timestep.last() and timestep.discount == 1.0 and environment.last_step_count == 1


def test_separate_constraints_split_the_total_cost():
  """A robot put into a hazard and against a vase pays each constraint its own cost."""
  options = dict(task='SafetyPointGoal2-v0', observations=('vector',), seed=0)
  split = _make(constraints=('hazards', 'vases', 'sum'), **options)
  assert split.constraint_names == ('hazards', 'vases', 'sum')
  seen = set()
  for target in ('hazard0', 'vase0'):
    split.next_episode = 0
    split.reset()
    data = split._task.data
    # The robot's slides move along the axes of its starting pose.
    rotation = split._task.model.body('agent').quat
    angle = 2 * np.arctan2(rotation[3], rotation[0])
    offset = data.body(target).xpos[:2] - data.body('agent').xpos[:2]
    data.qpos[0] = np.cos(angle) * offset[0] + np.sin(angle) * offset[1]
    data.qpos[1] = -np.sin(angle) * offset[0] + np.cos(angle) * offset[1]
    cost = split.step(np.zeros(2)).reward.cost
    seen.add(tuple(cost))
  assert (1.0, 0.0, 1.0) in seen and (0.0, 1.0, 1.0) in seen


@pytest.mark.parametrize(
  'task,kinds',
  [('SafetyPointGoal2-v0', ('goal', 'hazard', 'vase')), ('SafetyPointButton1-v0', ('button', 'hazard', 'gremlin'))],
)
def test_objects_are_in_the_picture(task, kinds):
  """Turns on the spot. Pixels that change when a kind of object is made invisible are that object's."""
  environment = _make(task=task, seed=1)
  environment.reset()
  model = environment._picture.model
  names = [model.geom(i).name for i in range(model.ngeom)]
  pixels = {kind: [] for kind in kinds}
  for _ in range(30):
    image = environment.step_many(np.array([0.0, 1.0]), 10).observation['image'].astype(int)
    for kind in kinds:
      geoms = [i for i, name in enumerate(names) if name.startswith(kind)]
      alpha = model.geom_rgba[geoms, 3].copy()
      model.geom_rgba[geoms, 3] = 0
      without = environment.render(64, 64).astype(int)
      model.geom_rgba[geoms, 3] = alpha
      pixels[kind].append((image - without)[np.abs(image - without).sum(-1) > 30])
  for kind in kinds:
    change = np.concatenate(pixels[kind])
    assert len(change) > 200, f'No pixel belongs to a {kind}.'
    strong = _STRONG[kind]
    others = [i for i in range(3) if i not in strong]
    assert change[:, strong].mean() > change[:, others].mean(), f'A {kind} has a strange colour.'


def test_the_original_camera_differs_for_doggo_alone():
  """safety-gymnasium 1.0.0 moved and tilted Doggo's camera; Point's and Car's are the original ones."""
  for task, same in (('SafetyPointGoal1-v0', True), ('SafetyCarGoal1-v0', True), ('SafetyDoggoGoal1-v0', False)):
    images = [_make(task=task, original_camera=original).reset().observation['image'] for original in (False, True)]
    assert np.array_equal(*images) == same, task


def test_the_box_of_observable_push_is_transparent():
  solid, transparent = (_make(task='SafetyPointPush1-v0', box_alpha=alpha, seed=2) for alpha in (1.0, 0.5))
  images = [
    [environment.reset().observation['image']]
    + [environment.step_many(np.array([0.0, 1.0]), 10).observation['image'] for _ in range(25)]
    for environment in (solid, transparent)
  ]
  assert not np.array_equal(*images)
  seen_vector = [
    _make(task='SafetyPointPush1-v0', box_alpha=alpha, seed=2, observations=('vector',)).reset() for alpha in (1.0, 0.5)
  ]
  np.testing.assert_array_equal(seen_vector[0].observation['vector'], seen_vector[1].observation['vector'])


def test_cheaper_pictures_are_by_request_only():
  images = [
    _make(seed=1, **options).reset().observation['image']
    for options in ({}, dict(multisampling=0), dict(reflections=False))
  ]
  assert not np.array_equal(images[0], images[1]) and not np.array_equal(images[0], images[2])
  assert np.abs(images[0].astype(int) - images[1]).mean() < 8  # Yet the same view.


def test_frameskip_noise_shortens_steps():
  """With p = 0.5 half of the physics steps are taken on average: 5 of 10."""
  environment = _make(observations=('vector',), frameskip_probability=0.5)
  environment.reset()
  start = environment._task.data.time
  for _ in range(200):
    environment.step(np.zeros(2))
  taken = (environment._task.data.time - start) / environment._task.model.opt.timestep / 200
  assert taken == pytest.approx(5.0, abs=4 * np.sqrt(10 * 0.25 / 200))


@pytest.mark.parametrize(
  'options,message',
  [
    (dict(task='SafetyPointGol1-v0'), 'SafetyPointGoal1-v0'),
    (dict(task='SafetyPointGoal1Vision-v0'), 'observations'),
    (dict(observations=('picture',)), 'picture'),
    (dict(constraints=('vases',)), r"no cost 'vases'.*hazards"),
    (dict(constraints=()), 'empty'),
    (dict(frameskip_probability=0.0), 'frameskip_probability'),
    (dict(image_size=0), r'SafetyGymnasium\.image_size = 0 should be a whole number, 1 or more'),
    (dict(task='SafetyRacecarGoal1-v0', original_camera=True), 'Racecar'),
  ],
)
def test_bad_options_are_named(options, message):
  with pytest.raises(ValueError, match=message):
    _make(**options).reset()


if __name__ == '__main__':
  absltest.main()
