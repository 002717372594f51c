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


# Steps that noise is drawn for at once. Without random numbers a step is so small a program that XLA runs it on a CPU
# in the calling thread, which takes a fraction of the time of waking another one.
_NOISE_STEPS = 1000


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
    self._first_key = key
    self._evaluation = evaluation
    self._num_actions = networks.num_actions
    self._take_mode = jax.jit(make_mode(networks))
    self._take_action = jax.jit(lambda variables, observation, noise: _policy(
        networks, variables, observation).from_noise(noise))  # Not clipped: the density is that of what was drawn.
    self._draw = jax.jit(lambda key, shape: jax.random.normal(key, shape), static_argnums=1)
    self.reseed(0)
    self.update()

  def reseed(self, episode: int) -> None:
    self._key = jax.random.fold_in(self._first_key, episode)
    self._actions_taken = 0

  def select_action(self, observation: types.Observation) -> np.ndarray:
    return self.select_actions({name: np.asarray(value)[None] for name, value in observation.items()})[0]

  def select_actions(self, observation: types.Observation) -> np.ndarray:
    if self._evaluation:
      return np.asarray(self._take_mode(self._variables, observation))
    return np.asarray(self._take_action(self._variables, observation, self._next_noise(observation)))

  def observe_first(self, timestep: dm_env.TimeStep) -> None:
    """Remembers nothing."""

  def observe(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
    """Stores nothing: rollouts are the loop's."""

  def update(self, wait: bool = False) -> None:
    self._variables, = self._source.get_variables(('policy',))

  def _next_noise(self, observation: types.Observation) -> np.ndarray:
    """[k, A], a function of the key of `reseed` and of the number of actions since."""
    block, index = divmod(self._actions_taken, _NOISE_STEPS)
    if index == 0:
      shape = (_NOISE_STEPS, len(next(iter(observation.values()))), self._num_actions)
      self._noise = np.asarray(self._draw(jax.random.fold_in(self._key, block), shape))
    self._actions_taken += 1
    return self._noise[index]


def make_mode(networks: gaussian.OnPolicyNetworks) -> Callable[[Any, types.Observation], types.Array]:
  """A pure function from variables and observations [k, ...] to the likeliest actions [k, A] within bounds."""
  return lambda variables, observation: jnp.clip(_policy(networks, variables, observation).mode(), -1.0, 1.0)


def make_pure_policy(networks: gaussian.OnPolicyNetworks, variables: Any, settings: dict[str, Any]) -> core.PurePolicy:
  """What an actor in evaluation does with these variables."""
  take_mode = make_mode(networks)

  def step(variables: Any, carry: types.Nest, observation: types.Observation, is_first: types.Array,
           episode: types.Array) -> tuple[types.Array, types.Nest]:
    del is_first, episode  # Each action follows from its observation alone.
    return take_mode(variables, observation), carry

  return core.PurePolicy(step, variables, (), settings)


def _policy(networks: gaussian.OnPolicyNetworks, variables: Any,
            observation: types.Observation) -> gaussian.DiagonalGaussian:
  return networks.policy.apply(variables['policy'], normalizer.normalize(variables['normalizer'], observation))
