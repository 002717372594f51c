"""The agent that knows nothing: uniformly random actions behind the interfaces of a learning agent.

It is the yardstick of every task, and gathers the first data of those that learn.
"""

from typing import Any, Iterator, Sequence

import dm_env
import gin
import numpy as np

from lambda_kit import core
from lambda_kit import types


class RandomActor(core.Actor):
  """Draws actions uniformly from their box."""

  def __init__(self, action_spec: Any, seed: int, adder: core.Adder | None = None):
    self._spec = action_spec
    self._seed = seed
    self._rng = np.random.default_rng(seed)
    self._adder = adder

  def reseed(self, episode: int) -> None:
    self._rng = np.random.default_rng((self._seed, episode))

  def select_action(self, observation: types.Observation) -> np.ndarray:
    del observation
    return self._rng.uniform(self._spec.minimum, self._spec.maximum, self._spec.shape).astype(self._spec.dtype)

  def observe_first(self, timestep: dm_env.TimeStep) -> None:
    if self._adder is not None:
      self._adder.add_first(timestep)

  def observe(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
    if self._adder is not None:
      self._adder.add(action, next_timestep)

  def give_up(self) -> None:
    if self._adder is not None:
      self._adder.cut()

  def update(self, wait: bool = False) -> None:
    """Has nothing to fetch."""


class RandomLearner(core.Learner[tuple[()]]):
  """Learns nothing."""

  def step(self, num_updates: int) -> dict[str, float]:
    return {}

  def get_variables(self, names: Sequence[str]) -> list[Any]:
    return [{} for _ in names]

  def save(self) -> tuple[()]:
    return ()

  def restore(self, state: tuple[()]) -> None:
    ...


@gin.register
class RandomAgent(core.AgentBuilder):
  """Builds the random agent."""

  def make_replay(self, environment: core.Environment, environment_steps: int, seed: int) -> None:
    return None

  def make_adder(self, replay: Any) -> None:
    return None

  def make_dataset_iterator(self, replay: Any) -> None:
    return None

  def make_learner(self, environment: core.Environment, dataset: Iterator[Any] | None, seed: int) -> RandomLearner:
    return RandomLearner()

  def make_actor(self, environment: core.Environment, variable_source: core.VariableSource, adder: core.Adder | None,
                 seed: int, evaluation: bool) -> RandomActor:
    return RandomActor(environment.action_spec(), seed, adder)
