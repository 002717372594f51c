"""The actor of all agents: compiles an `ActorCore`, keeps its carry and stores experience."""

import dm_env
import jax
import numpy as np

from lambda_kit import core
from lambda_kit import types


class Actor(core.Actor):
  """Acts in one environment, or in k at once, with the variables that `update` fetched last.

  Args:
    actor_core: How to act.
    variable_source: The learner.
    seed: Together with an episode's number, it determines all noise of the episode.
    adder: Stores the experience of one environment. None stores nothing.
  """

  def __init__(
    self, actor_core: core.ActorCore, variable_source: core.VariableSource, seed: int, adder: core.Adder | None = None
  ):
    self.variable_names = actor_core.variable_names
    self._init = jax.jit(actor_core.init, static_argnums=1)
    self._step = jax.jit(actor_core.step, donate_argnums=1)
    self._source = variable_source
    self._seed = seed
    self._adder = adder
    self._is_first = np.ones((1,), bool)
    self.reseed(0)
    self.update()

  def reseed(self, episode: int) -> None:
    self._key = jax.random.fold_in(jax.random.PRNGKey(self._seed), episode)
    self._carry = None  # Made once the number of environments is known.

  def select_action(self, observation: types.Observation) -> np.ndarray:
    batch = {name: np.asarray(value)[None] for name, value in observation.items()}
    action = self.select_actions(batch, self._is_first)[0]
    self._is_first = np.zeros((1,), bool)
    return action

  def select_actions(self, observation: types.Observation, is_first: np.ndarray) -> np.ndarray:
    if self._carry is None:
      self._carry = self._init(self._key, len(is_first))
    actions, self._carry = self._step(self._variables, self._carry, observation, is_first)
    return np.asarray(actions)

  def observe_first(self, timestep: dm_env.TimeStep) -> None:
    self._is_first = np.ones((1,), bool)
    if self._adder is not None:
      self._adder.add_first(timestep)

  def observe(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
    if self._adder is not None:
      self._adder.add(action, next_timestep)

  def give_up(self) -> None:
    if self._adder is not None:
      self._adder.cut()

  def update(self) -> None:
    self._variables = self._source.get_variables(self.variable_names)
