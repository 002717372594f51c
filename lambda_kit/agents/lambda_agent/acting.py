"""LAMBDA's actor: filters a belief and acts on it, by the policy or by a planner (algorithm 2, lines 13 and 14)."""

from typing import Any, Callable, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from lambda_kit import core
from lambda_kit import types
from lambda_kit.agents.lambda_agent import networks as networks_lib
from lambda_kit.models import normalizer


class ActorCarry(NamedTuple):
  """What an actor remembers between steps, for k environments."""
  belief: types.Nest  # [k, ...]
  action: types.Array  # [k, A], the last one.
  plan: Any  # What the action selection carries along; () for a policy.
  key: core.Key


def policy_selection(networks: networks_lib.LambdaNetworks, evaluation: bool) -> core.ActionSelection:
  """Samples from the policy in training, takes its mode in evaluation. Its variables are the policy's parameters."""

  def step(variables, carry, belief, key):
    distribution = networks.policy.apply(variables, networks.world_model.features(belief))
    return (distribution.mode() if evaluation else distribution.sample(key)), carry

  return core.ActionSelection(lambda batch_size: (), step)


class LambdaActor(core.Actor):
  """Acts in one environment.

  Until the first update it acts at random in training (algorithm 2, line 1).

  Args:
    networks: World model and shapes.
    selection: How actions are chosen in a belief: by the policy or by a planner.
    selection_variables: Name of the variables that `selection` needs.
    variable_source: The learner.
    adder: Stores experience; None in evaluation.
    key: Noise of beliefs and actions.
    evaluation: Whether this actor is for evaluation.
  """

  def __init__(self, networks: networks_lib.LambdaNetworks, selection: core.ActionSelection,
               selection_variables: str, variable_source: core.VariableSource, adder: core.Adder | None, key: core.Key,
               evaluation: bool):
    self._spec = networks.action_spec
    self._names = ('belief', selection_variables)
    self._source = variable_source
    self._adder = adder
    self._evaluation = evaluation
    self._initial = jax.jit(lambda key: ActorCarry(
        networks.world_model.initial_state(1), jnp.zeros((1, *self._spec.shape), jnp.float32), selection.init_carry(1), key))
    self._step = jax.jit(make_actor_step(networks, selection))
    self._random_step = jax.jit(_random_step)
    self._carry = self._initial(key)
    self._variables: list[Any] = []
    self._learned = False
    self._fetch()

  def select_action(self, observation: types.Observation) -> np.ndarray:
    batched = {name: np.asarray(value)[None] for name, value in observation.items()}
    if not self._learned and not self._evaluation:
      self._carry = self._random_step(self._carry)
    else:
      self._carry = self._step(*self._variables, self._carry, batched)
    return np.asarray(self._carry.action)[0]

  def observe_first(self, timestep: dm_env.TimeStep) -> None:
    self._carry = self._initial(self._carry.key)
    if self._adder is not None:
      self._adder.add_first(timestep)

  def observe(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
    if self._adder is not None:
      self._adder.add(action, next_timestep)

  def update(self, wait: bool = False) -> None:
    self._fetch()

  def _fetch(self) -> None:
    self._variables = self._source.get_variables(self._names)
    self._learned = bool(self._variables[0]['updates'] > 0)


def make_actor_step(
    networks: networks_lib.LambdaNetworks,
    selection: core.ActionSelection) -> Callable[[Any, Any, ActorCarry, types.Observation], ActorCarry]:
  """A pure function that takes k observations [k, ...], filters the beliefs and chooses actions."""

  def step(filtering: Any, selecting: Any, carry: ActorCarry, observation: types.Observation) -> ActorCarry:
    key, belief_key, action_key = jax.random.split(carry.key, 3)
    observation = normalizer.normalize(filtering['normalizer'], observation)
    belief = networks.world_model.filter(filtering['model'], carry.belief, carry.action, observation, belief_key)
    action, plan = selection.step(selecting, carry.plan, belief, action_key)
    return ActorCarry(belief, action, plan, key)

  return step


def _random_step(carry: ActorCarry) -> ActorCarry:
  key, action_key = jax.random.split(carry.key)
  return carry._replace(key=key, action=jax.random.uniform(action_key, carry.action.shape, minval=-1.0, maxval=1.0))
