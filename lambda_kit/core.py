"""Interfaces, and nothing else. Every swappable part of lambda_kit is one of these."""

import abc
from typing import Any, Generic, Iterator, Protocol, Sequence, TypeVar

import dm_env
import numpy as np

from lambda_kit import types


class Environment(dm_env.Environment):
  """A `dm_env.Environment` of a constrained MDP.

  On top of dm_env's rules:
    * `TimeStep.reward` is a `CmdpReward` with `cost` of shape [C]; `reward_spec()` has the same structure.
    * Observations are mappings from name to array.
    * A time limit ends an episode with discount 1, a true terminal state with discount 0.
    * Episode n of an environment made with a seed is a function of (seed, n) and the actions, whatever came before.
  """

  @property
  @abc.abstractmethod
  def constraint_names(self) -> tuple[str, ...]:
    """Names of the C costs, in the order of `CmdpReward.cost`."""

  @property
  @abc.abstractmethod
  def next_episode(self) -> int:
    """Number of the episode that the next `reset` begins, counted from 0."""

  @next_episode.setter
  @abc.abstractmethod
  def next_episode(self, number: int) -> None:
    ...

  @property
  @abc.abstractmethod
  def last_step_count(self) -> int:
    """Simulator steps that the last `step` took: 1, or more under an action repeat. 0 after `reset`."""

  @abc.abstractmethod
  def render(self, height: int = 256, width: int = 256) -> np.ndarray:
    """A picture of the current state for people, uint8 [height, width, 3]."""


class EnvironmentFactory(Protocol):
  """Makes an environment. The loop and each evaluation use environments of their own."""

  def __call__(self, seed: int) -> Environment:
    ...


class Actor(abc.ABC):
  """Chooses actions and sees what follows. The environment loop calls, in this order:

    observe_first(t_0); repeat: a_t = select_action(o_t); observe(a_t, t_{t+1}); update().
  """

  @abc.abstractmethod
  def select_action(self, observation: types.Observation) -> np.ndarray:
    """Returns an action [A] for an unbatched observation."""

  @abc.abstractmethod
  def observe_first(self, timestep: dm_env.TimeStep) -> None:
    """Tells the actor that an episode begins."""

  @abc.abstractmethod
  def observe(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
    """Tells the actor what its action led to."""

  @abc.abstractmethod
  def update(self, wait: bool = False) -> None:
    """Fetches fresh variables, from which the next actions are chosen."""


class VariableSource(abc.ABC):
  """Something that has parameters to act with."""

  @abc.abstractmethod
  def get_variables(self, names: Sequence[str]) -> list[Any]:
    """Returns the named collections of variables, in the order of `names`."""


State = TypeVar('State')


class Learner(VariableSource, Generic[State]):
  """Improves variables from data. All of its state is one pytree."""

  @abc.abstractmethod
  def step(self, num_updates: int) -> dict[str, float]:
    """Takes `num_updates` gradient steps and returns metrics to log."""

  @abc.abstractmethod
  def save(self) -> State:
    ...

  @abc.abstractmethod
  def restore(self, state: State) -> None:
    ...


class Adder(abc.ABC):
  """Puts an actor's experience into replay."""

  @abc.abstractmethod
  def add_first(self, timestep: dm_env.TimeStep) -> None:
    ...

  @abc.abstractmethod
  def add(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
    ...


class UpdateSchedule(Protocol):
  """Says how many updates are due, as a function of the data so far, so that a resumed run takes the same ones."""

  def __call__(self, environment_steps: int) -> int:
    """Updates that a learner should have taken in all after `environment_steps`."""


class AgentBuilder(Protocol):
  """Makes the parts of an agent, so that the experiment can wire them without knowing which agent it is."""

  def make_replay(self, environment: Environment, seed: int) -> Any:
    """The store that the adder fills and the iterator reads; None if the agent keeps no data."""

  def make_adder(self, replay: Any) -> Adder | None:
    ...

  def make_dataset_iterator(self, replay: Any) -> Iterator[Any] | None:
    ...

  def make_learner(self, environment: Environment, dataset: Iterator[Any] | None, seed: int) -> Learner:
    ...

  def make_actor(self, environment: Environment, variable_source: VariableSource, adder: Adder | None, seed: int,
                 evaluation: bool) -> Actor:
    """With `evaluation` the actor takes the mode of its policy and stores nothing."""


class Logger(abc.ABC):
  """Takes rows of scalars."""

  @abc.abstractmethod
  def write(self, kind: str, row: dict[str, Any]) -> None:
    """Writes one row. `kind` ('episode', 'evaluation', 'learner') says what it describes."""

  @abc.abstractmethod
  def close(self) -> None:
    ...
