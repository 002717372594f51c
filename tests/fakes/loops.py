"""Loops and actors from a few arguments, for tests."""

import numpy as np

from lambda_kit import core
from lambda_kit.agents import actor as actor_lib
from lambda_kit.agents import random_agent
from lambda_kit.training import environment_loop
from tests.fakes import specs


class Recorder(core.Actor, core.Logger, core.Learner):
  """Writes down every call that the loop makes."""

  def __init__(self):
    self.calls = []
    self.rows = []

  def reseed(self, episode):
    self.calls.append(f'episode {episode}')

  def select_action(self, observation):
    self.calls.append('select')
    return np.full(2, len(self.calls), np.float64)

  def observe_first(self, timestep):
    assert timestep.first()
    self.calls.append('first')

  def observe(self, action, next_timestep):
    # The fake shows the action that led to an observation.
    np.testing.assert_array_equal(action, next_timestep.observation['vector'])
    self.calls.append('observe')

  def select_actions(self, observation, is_first):
    raise NotImplementedError

  def give_up(self):
    self.calls.append('give up')

  def update(self):
    self.calls.append('update')

  def step(self, num_updates):
    self.calls.append(f'learn {num_updates}')
    return {'loss': 1.0}

  def get_variables(self, names):
    return []

  def save(self):
    return ()

  def restore(self, state): ...

  def write(self, kind, row):
    self.rows.append((kind, row))

  def close(self): ...


def parts(
  environment: core.Environment,
  actor: core.Actor,
  learner: core.Learner,
  schedule=lambda steps: 0,
  max_failed_episodes: int = 0,
  environment_factory: core.EnvironmentFactory | None = None,
) -> environment_loop.LoopParts:
  """The parts of a loop that takes no updates, unless a schedule says so."""
  return environment_loop.LoopParts(
    specs.of(environment),
    environment,
    actor,
    learner,
    schedule,
    max_failed_episodes,
    environment_factory or (lambda seed: environment),
  )


def random_actor(environment: core.Environment, seed: int, adder: core.Adder | None = None) -> core.Actor:
  return actor_lib.Actor(random_agent.make_actor_core(specs.of(environment)), random_agent.RandomLearner(), seed, adder)
