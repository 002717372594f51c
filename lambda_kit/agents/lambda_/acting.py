"""LAMBDA's actor: filters a belief and acts on it, by the policy or by a planner (algorithm 2, lines 13 and 14)."""

from typing import Any, Callable, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from lambda_kit import core
from lambda_kit import types
from lambda_kit.agents.lambda_ import networks as networks_lib
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


class BatchedActor:
  """Acts in k environments at once, e.g. those of `ParallelEnvironments`.

  Until the first update it acts at random in training (algorithm 2, line 1).

  Args:
    networks: World model and shapes.
    selection: How actions are chosen in a belief: by the policy or by a planner.
    selection_variables: Name of the variables that `selection` needs.
    variable_source: The learner.
    key: Noise of beliefs and actions.
    num_environments: k.
    evaluation: Whether this actor is for evaluation.
  """

  def __init__(self, networks: networks_lib.LambdaNetworks, selection: core.ActionSelection,
               selection_variables: str, variable_source: core.VariableSource, key: core.Key, num_environments: int,
               evaluation: bool):
    self.variable_names = ('belief', selection_variables)
    self._source = variable_source
    self._evaluation = evaluation
    self._first_key = key
    self._step = jax.jit(make_actor_step(networks, selection))
    self._random_step = jax.jit(_random_step)
    self._carry = _initial_carry(networks, selection, num_environments, key)
    self.update()

  def select_actions(self, observation: types.Observation, is_first: np.ndarray) -> np.ndarray:
    """Actions [k, A] for observations [k, ...], of which those with `is_first` [k] begin an episode."""
    if self._learned or self._evaluation:
      self._carry = self._step(*self._variables, self._carry, observation, is_first)
    else:
      self._carry = self._random_step(self._carry)
    return np.asarray(self._carry.action)

  def update(self) -> None:
    """Fetches the newest variables."""
    self._variables = self._source.get_variables(self.variable_names)
    self._learned = bool(self._variables[0]['updates'] > 0)

  def reseed(self, number: int) -> None:
    """Makes all noise from here on follow from the first key and `number`."""
    self._carry = self._carry._replace(key=jax.random.fold_in(self._first_key, number))


class LambdaActor(core.Actor):
  """Acts in one environment.

  Args:
    batched: An actor for k = 1.
    adder: Stores experience; None in evaluation.
  """

  def __init__(self, batched: BatchedActor, adder: core.Adder | None):
    self._batched = batched
    self._adder = adder
    self._is_first = np.ones((1,), bool)

  @property
  def variable_names(self) -> tuple[str, ...]:
    """What of a variable source it acts with, for actors in other processes."""
    return self._batched.variable_names

  def reseed(self, episode: int) -> None:
    self._batched.reseed(episode)

  def select_action(self, observation: types.Observation) -> np.ndarray:
    batch = {name: np.asarray(value)[None] for name, value in observation.items()}
    action = self._batched.select_actions(batch, self._is_first)[0]
    self._is_first = np.zeros((1,), bool)
    return action

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

  def update(self, wait: bool = False) -> None:
    self._batched.update()


def make_actor_step(
    networks: networks_lib.LambdaNetworks,
    selection: core.ActionSelection) -> Callable[[Any, Any, ActorCarry, types.Observation, types.Array], ActorCarry]:
  """A pure function that takes k observations [k, ...], filters the beliefs and chooses actions.

  Rows with `is_first` [k] forget what they remember before that.
  """

  def step(filtering: Any, selecting: Any, carry: ActorCarry, observation: types.Observation,
           is_first: types.Array) -> ActorCarry:
    key, belief_key, action_key = jax.random.split(carry.key, 3)
    count = is_first.shape[0]
    forget = lambda new, old: jnp.where(is_first.reshape((count,) + (1,) * (old.ndim - 1)), new, old)
    before, last_action, plan = jax.tree.map(
        forget, (networks.world_model.initial_state(count), jnp.zeros_like(carry.action), selection.init_carry(count)),
        (carry.belief, carry.action, carry.plan))
    observation = normalizer.normalize(filtering['normalizer'], observation)
    belief = networks.world_model.filter(filtering['model'], before, last_action, observation, belief_key)
    action, plan = selection.step(selecting, plan, belief, action_key)
    return ActorCarry(belief, action, plan, key)

  return step


def make_pure_policy(networks: networks_lib.LambdaNetworks, selection: core.ActionSelection, filtering: Any,
                     selecting: Any, key: core.Key, settings: dict[str, Any]) -> core.PurePolicy:
  """What an actor for one environment does with these variables and this first key."""
  actor_step = make_actor_step(networks, selection)

  def step(variables: Any, carry: ActorCarry, observation: types.Observation, is_first: types.Array,
           episode: types.Array) -> tuple[types.Array, ActorCarry]:
    first_key = jax.random.fold_in(variables['key'], episode)
    carry = carry._replace(key=jnp.where(is_first, first_key, carry.key))
    carry = actor_step(variables['belief'], variables['selection'], carry, observation, is_first)
    return carry.action, carry

  return core.PurePolicy(step, dict(belief=filtering, selection=selecting, key=key),
                         _initial_carry(networks, selection, 1, key), settings)


def _initial_carry(networks: networks_lib.LambdaNetworks, selection: core.ActionSelection, count: int,
                   key: core.Key) -> ActorCarry:
  return ActorCarry(networks.world_model.initial_state(count),
                    jnp.zeros((count, *networks.action_spec.shape), jnp.float32), selection.init_carry(count), key)


def _random_step(carry: ActorCarry) -> ActorCarry:
  key, action_key = jax.random.split(carry.key)
  return carry._replace(key=key, action=jax.random.uniform(action_key, carry.action.shape, minval=-1.0, maxval=1.0))
