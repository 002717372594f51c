"""Interfaces of agents that learn from the data they have just gathered."""

import abc
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from lambda_kit import core
from lambda_kit import types

State = TypeVar('State')


class OnPolicyLearner(core.Learner[State]):
  """A learner whose updates each need new data of the current variables."""

  @abc.abstractmethod
  def collect(self, rollout: types.Rollout) -> None:
    """Takes the data of the next update, which `step(1)` then learns from."""


class PolicyOptimizer(abc.ABC, Generic[State]):
  """Improves a policy by the data that it has just gathered: PPO, TRPO, CPO. Holds settings, not arrays."""

  @abc.abstractmethod
  def init(self, params: core.Params, num_constraints: int) -> State: ...

  @abc.abstractmethod
  def update(
    self, state: State, params: core.Params, apply: Callable[..., Any], batch: Any, costs: Any, key: core.Key
  ) -> tuple[State, core.Params, dict[str, types.Array]]:
    """Improves `params`, of which `apply` makes a distribution over actions. Pure.

    `batch` and `costs` are those of `agents.on_policy.surrogates`. Returns the new state and parameters, and metrics.
    """
