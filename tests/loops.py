"""Loops and actors from a few arguments, for tests."""

from lambda_kit import core
from lambda_kit.agents import actor as actor_lib
from lambda_kit.agents import random_agent
from lambda_kit.training import environment_loop
from tests import specs


def parts(
  environment: core.Environment,
  actor: core.Actor,
  learner: core.Learner,
  schedule=lambda steps: 0,
  max_failed_episodes: int = 0,
  **others,
) -> environment_loop.LoopParts:
  """The parts of a loop that takes no updates, unless a schedule says so."""
  return environment_loop.LoopParts(
    specs.of(environment), environment, actor, learner, schedule, max_failed_episodes, **others
  )


def random_actor(environment: core.Environment, seed: int, adder: core.Adder | None = None) -> core.Actor:
  return actor_lib.Actor(random_agent.make_actor_core(specs.of(environment)), random_agent.RandomLearner(), seed, adder)
