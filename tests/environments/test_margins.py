"""Margins against the simulator's costs."""

import dataclasses
import functools

import numpy as np
import pytest

from lambda_kit.agents import actor as actor_lib
from lambda_kit.agents import cautious_agent
from lambda_kit.agents import random_agent
from lambda_kit.environments import factory
from lambda_kit.environments import spec as spec_lib
from lambda_kit.environments.safety_gym import environment as environment_lib
from lambda_kit.environments.safety_gym import margins


def _play(action_repeat, num_episodes):
  """Margins and costs of steps of a driver that isn't cautious, [T, 1] each."""
  simulator = functools.partial(
    environment_lib.SafetyGymnasium, task='SafetyPointGoal1-v0', observations=('vector',), lidar_powers=(8, 24)
  )
  environment = factory.make_environment(seed=3, simulator=simulator, action_repeat=action_repeat)
  driver = dataclasses.replace(cautious_agent.CautiousAgent(), caution=0.0, brake=0.0)
  core = driver.build(spec_lib.make_spec(environment, 25.0)).make_actor_core(evaluation=False)
  actor = actor_lib.Actor(core, random_agent.RandomLearner(), seed=0)
  vectors, costs = [], []
  for episode in range(num_episodes):
    actor.reseed(episode)
    timestep = environment.reset()
    actor.observe_first(timestep)
    while not timestep.last():
      timestep = environment.step(actor.select_action(timestep.observation))
      vectors.append(timestep.observation['vector'])
      costs.append(timestep.reward.cost)
  return margins.HazardLidar()({'vector': np.stack(vectors)}), np.stack(costs)


def test_each_simulator_step_costs_what_its_margin_says():
  margin, cost = _play(action_repeat=1, num_episodes=1)
  assert margin.shape == cost.shape == (1000, 1) and 20 < cost.sum() < 900
  np.testing.assert_array_equal(cost, (margin <= 0.0).astype(np.float64))


def test_the_last_of_repeated_steps_stands_for_all():
  margin, cost = _play(action_repeat=4, num_episodes=4)
  unsafe = cost > 0.0
  assert 50 < unsafe.sum() < 900
  assert np.mean((margin <= 0.0) == unsafe) > 0.97
  # Those that a step has on its way in are missed, and those that it has no more on its way out are added.
  assert 4.0 * np.sum(margin <= 0.0) == pytest.approx(cost.sum(), rel=0.05)


def test_far_hazards_count_as_one_distance():
  reading = np.zeros((2, 44), np.float32)
  reading[0, 30], reading[1, 43] = 0.9, 0.5  # 0.3 m and 1.5 m from the centre.
  np.testing.assert_allclose(margins.HazardLidar()({'vector': reading}), [[0.1], [1.0]], atol=1e-6)
  np.testing.assert_allclose(margins.HazardLidar(farthest=2.0)({'vector': reading}), [[0.1], [1.3]], atol=1e-6)


def test_what_is_not_observed_is_said():
  for observation in ({'image': np.zeros((64, 64, 3))}, {'vector': np.zeros(40)}):
    with pytest.raises(ValueError, match='HazardLidar reads entries 28 to 43 of the vector'):
      margins.HazardLidar()(observation)
  with pytest.raises(ValueError, match='HazardLidar.farthest = 3.0 must be positive, and at most 2.8'):
    margins.HazardLidar(farthest=3.0)
