"""Uniformly random actions behind the interfaces of a learning agent: the baseline of every task."""

from collections.abc import Sequence
import dataclasses
from typing import Any

import jax

import gin
from lambda_kit import core


class RandomLearner(core.Learner[tuple[()]]):
  """Learns nothing."""

  def step(self, num_updates: int) -> dict[str, float]:
    return {}

  def get_variables(self, names: Sequence[str]) -> list[Any]:
    return [{} for _ in names]

  def save(self) -> tuple[()]:
    return ()

  def restore(self, state: tuple[()]) -> None: ...


def make_actor_core(spec: core.EnvironmentSpec) -> core.ActorCore:
  """Draws actions uniformly from their box."""
  actions = spec.actions

  def step(variables, key, observation, is_first):
    del variables, observation
    key, action_key = jax.random.split(key)
    shape = (is_first.shape[0], *actions.shape)
    return jax.random.uniform(action_key, shape, minval=actions.minimum, maxval=actions.maximum), key

  return core.ActorCore(init=lambda key, count: key, step=step, variable_names=())


class RandomBuilder(core.AgentBuilder):
  """Makes the parts of the random agent."""

  def __init__(self, spec: core.EnvironmentSpec):
    self._spec = spec

  def make_learner(self, dataset: core.Dataset | None, seed: int) -> RandomLearner:
    return RandomLearner()

  def make_actor_core(self, evaluation: bool) -> core.ActorCore:
    return make_actor_core(self._spec)


@gin.register
@dataclasses.dataclass(frozen=True)
class RandomAgent:
  """Uniformly random actions."""

  def build(self, spec: core.EnvironmentSpec) -> RandomBuilder:
    return RandomBuilder(spec)
