"""The scripted driver: where it steers, what it keeps, and that it is careful in the simulator."""

import functools

from dm_env import specs as dm_specs
import numpy as np
import pytest

from lambda_kit.agents import actor as actor_lib
from lambda_kit.agents import cautious_agent
from lambda_kit.agents import random_agent
from lambda_kit.environments import factory
from lambda_kit.environments import spec as spec_lib
from lambda_kit.environments.safety_gym import environment as environment_lib
from lambda_kit.environments.safety_gym import lidar
from tests.fakes import specs

_CONFIG = cautious_agent.CautiousAgent()


def _readings(*objects):
  """Of objects at (distance, angle in degrees from ahead to the left)."""
  positions = np.array([(d * np.cos(np.radians(a)), d * np.sin(np.radians(a)), 0.0) for d, a in objects]).reshape(-1, 3)
  return lidar.pseudo_lidar(positions, np.zeros(len(objects), int), 1, np.zeros(3), np.eye(3), 16, 3.0, 1.0, True)[0]


def _drive(goal, *hazards, speed=0.0):
  return np.asarray(cautious_agent.drive(_CONFIG, speed, _readings(goal), _readings(*hazards)))


def test_it_steers_to_the_goal():
  np.testing.assert_allclose(_drive((1.5, 0.0)), [0.5, 0.0], atol=1e-5)
  np.testing.assert_allclose(_drive((1.5, 180.0)), [-0.5, 1.0], atol=1e-5)  # Backwards, while it turns.
  left, right = _drive((1.5, 60.0)), _drive((1.5, -60.0))
  assert left[1] == 1.0 and right[1] == -1.0
  # Of a far hazard it takes no notice: (2.5 m, 1 / 6 of the reach)^24 is nothing.
  np.testing.assert_allclose(_drive((1.5, 0.0), (2.5, 0.0)), [0.5, 0.0], atol=1e-5)


def test_it_brakes_and_turns_away_from_hazards():
  assert _drive((1.5, 0.0), (0.4, 0.0))[0] < 0.0
  # At half a metre 60 (2.5 / 3)^24 = 0.75 for each of two bins: the goal's pull is balanced, and what is left brakes.
  slow, fast = _drive((1.5, 0.0), (0.5, 0.0)), _drive((1.5, 0.0), (0.5, 0.0), speed=1.0)
  ahead = 2.0 * 60.0 * (2.5 / 3.0) ** 24 * np.cos(np.pi / 16.0) ** 2
  assert slow[0] - fast[0] == pytest.approx(2.0 * ahead / (1.0 + ahead), rel=1e-4)
  assert _drive((1.5, 0.0), (0.4, 20.0))[1] < 0.0 < _drive((1.5, 0.0), (0.4, -20.0))[1]


def test_it_passes_a_hazard_on_the_side_of_the_goal():
  # By the goal's direction alone, it would turn by 2 atan(0.09 / 0.45) = 0.4 at most.
  assert _drive((1.5, 5.0), (0.6, 0.0))[1] > 0.9 and _drive((1.5, -5.0), (0.6, 0.0))[1] < -0.9


@pytest.mark.parametrize(
  'facts', [{}, dict(observations={'image': dm_specs.Array((64, 64, 3), np.uint8)})], ids=['short', 'image']
)
def test_tasks_without_lidars_are_refused(facts):
  with pytest.raises(ValueError, match='CautiousAgent drives Point .* at least 44 numbers'):
    _CONFIG.build(specs.make(**facts))


@pytest.mark.parametrize('name, value', [('noise', -1.0), ('persistence', 1.0)])
def test_senseless_noise_is_refused(name, value):
  with pytest.raises(ValueError, match=f'CautiousAgent.{name} = {value} should be'):
    cautious_agent.CautiousAgent(**{name: value})


def test_it_is_careful_and_its_episodes_are_kept():
  simulator = functools.partial(
    environment_lib.SafetyGymnasium, task='SafetyPointGoal1-v0', observations=('vector',), lidar_powers=(8, 24)
  )
  environment = factory.make_environment(seed=7, simulator=simulator, action_repeat=4)
  builder = _CONFIG.build(spec_lib.make_spec(environment, 25.0))
  replay = builder.make_replay(environment_steps=1000, seed=0)
  learner = builder.make_learner(None, seed=0)
  assert isinstance(learner, random_agent.RandomLearner)
  actor = actor_lib.Actor(builder.make_actor_core(evaluation=False), learner, 0, builder.make_adder(replay, learner))
  for episode in range(3):
    actor.reseed(episode)
    timestep = environment.reset()
    actor.observe_first(timestep)
    while not timestep.last():
      action = actor.select_action(timestep.observation)
      timestep = environment.step(action)
      actor.observe(action, timestep)
  stored = [episode for _, episode in replay.items()]
  assert [episode.num_steps for episode in stored] == [250] * 3
  returns, costs = ([float(getattr(episode, name).sum()) for episode in stored] for name in ('reward', 'cost'))
  assert min(returns) > 5.0 and np.mean(costs) < 25.0
  # Noise differs from episode to episode.
  actions = np.stack([episode.action[1:, 1] for episode in stored])
  assert not np.array_equal(actions[0], actions[1])
