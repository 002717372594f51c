"""How the baselines act: by their policy, with noise in training and without in evaluation."""

from typing import Any, Callable

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from lambda_kit import core
from lambda_kit import types
from lambda_kit.baselines import gaussian
from lambda_kit.models import normalizer


class GaussianActor(core.BatchedActor):
  """Acts in one environment, or in k at once.

  Args:
    networks: Has the policy.
    variable_source: The learner.
    key: Noise of actions.
    evaluation: Whether to take the mode.
  """

  def __init__(self, networks: gaussian.OnPolicyNetworks, variable_source: core.VariableSource, key: core.Key,
               evaluation: bool):
    self._source = variable_source
    self._first_key = self._key = key
    self._step = jax.jit(make_step(networks, evaluation))
    self.update()

  def reseed(self, episode: int) -> None:
    self._key = jax.random.fold_in(self._first_key, episode)

  def select_action(self, observation: types.Observation) -> np.ndarray:
    return self.select_actions({name: np.asarray(value)[None] for name, value in observation.items()})[0]

  def select_actions(self, observation: types.Observation) -> np.ndarray:
    actions, self._key = self._step(self._variables, self._key, observation)
    return np.asarray(actions)

  def observe_first(self, timestep: dm_env.TimeStep) -> None:
    """Remembers nothing."""

  def observe(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
    """Stores nothing: rollouts are the loop's."""

  def update(self, wait: bool = False) -> None:
    self._variables, = self._source.get_variables(('policy',))


def make_step(networks: gaussian.OnPolicyNetworks,
              evaluation: bool) -> Callable[[Any, core.Key, types.Observation], tuple[types.Array, core.Key]]:
  """A pure function from variables, key and observations [k, ...] to actions [k, A] and the next key."""

  def step(variables: Any, key: core.Key, observation: types.Observation) -> tuple[types.Array, core.Key]:
    policy = networks.policy.apply(variables['policy'], normalizer.normalize(variables['normalizer'], observation))
    if evaluation:
      return jnp.clip(policy.mode(), -1.0, 1.0), key
    key, action_key = jax.random.split(key)
    return policy.sample(action_key), key  # Not clipped: the density is that of what was drawn.

  return step


def make_pure_policy(networks: gaussian.OnPolicyNetworks, variables: Any, settings: dict[str, Any]) -> core.PurePolicy:
  """What an actor in evaluation does with these variables."""
  actor_step = make_step(networks, evaluation=True)

  def step(variables: Any, carry: types.Nest, observation: types.Observation, is_first: types.Array,
           episode: types.Array) -> tuple[types.Array, types.Nest]:
    del is_first, episode  # Each action follows from its observation alone.
    action, _ = actor_step(variables, jax.random.PRNGKey(0), observation)
    return action, carry

  return core.PurePolicy(step, variables, (), settings)
