"""How the baselines act: by their policy, with its noise in training, and with or without it in evaluation."""

from typing import Any, Callable

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from lambda_kit import core
from lambda_kit import types
from lambda_kit.agents.on_policy import gaussian


# Steps that noise is drawn for at once. Without random numbers a step is so small a program that XLA runs it on a CPU
# in the calling thread, which takes a fraction of the time of waking another one.
_NOISE_STEPS = 1000


class GaussianActor(core.BatchedActor):
  """Acts in one environment, or in k at once.

  Args:
    networks: Has the policy.
    variable_source: The learner.
    key: Noise of actions.
    with_noise: Whether actions are drawn from the policy; otherwise they are its mode.
    clip: Whether actions are kept within bounds. Not for training: the density is that of what was drawn.
  """

  def __init__(self, networks: gaussian.OnPolicyNetworks, variable_source: core.VariableSource, key: core.Key,
               with_noise: bool, clip: bool):
    self._source = variable_source
    self._first_key = key
    self._act = jax.jit(make_act(networks, clip))
    self._draw = jax.jit(make_draw(networks, with_noise), static_argnums=2)
    self.reseed(0)
    self.update()

  def reseed(self, episode: int) -> None:
    self._key = jax.random.fold_in(self._first_key, episode)
    self._actions_taken = 0

  def select_action(self, observation: types.Observation) -> np.ndarray:
    return self.select_actions({name: np.asarray(value)[None] for name, value in observation.items()})[0]

  def select_actions(self, observation: types.Observation) -> np.ndarray:
    return np.asarray(self._act(self._variables, observation, self._next_noise(observation)))

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
      self._noise = np.asarray(self._draw(self._key, block, len(next(iter(observation.values())))))
    self._actions_taken += 1
    return self._noise[index]


def make_act(networks: gaussian.OnPolicyNetworks,
             clip: bool) -> Callable[[Any, types.Observation, types.Array], types.Array]:
  """A pure function from variables, observations [k, ...] and noise [k, A] to actions [k, A]."""

  def act(variables: Any, observation: types.Observation, noise: types.Array) -> types.Array:
    observation = gaussian.normalize(variables['normalizer'], observation)
    action = networks.policy.apply(variables['policy'], observation).from_noise(noise)
    return jnp.clip(action, -1.0, 1.0) if clip else action

  return act


def make_draw(networks: gaussian.OnPolicyNetworks,
              with_noise: bool) -> Callable[[core.Key, types.Array, int], types.Array]:
  """A pure function from the key of an episode, the number of a block of steps and k to noise [steps, k, A]."""

  def draw(key: core.Key, block: types.Array, count: int) -> types.Array:
    shape = (_NOISE_STEPS, count, networks.num_actions)
    return jax.random.normal(jax.random.fold_in(key, block), shape) if with_noise else jnp.zeros(shape)

  return draw


def make_pure_policy(networks: gaussian.OnPolicyNetworks, variables: Any, key: core.Key, with_noise: bool,
                     settings: dict[str, Any]) -> core.PurePolicy:
  """What an actor in evaluation does with these variables and this first key."""
  act, draw = make_act(networks, clip=True), make_draw(networks, with_noise)

  def step(variables: Any, carry: types.Array, observation: types.Observation, is_first: types.Array,
           episode: types.Array) -> tuple[types.Array, types.Array]:
    actions_taken = jnp.where(is_first[0], 0, carry)
    noise = draw(jax.random.fold_in(variables['key'], episode), actions_taken // _NOISE_STEPS, 1)
    action = act(variables['learner'], observation, noise[actions_taken % _NOISE_STEPS])
    return action, actions_taken + 1

  return core.PurePolicy(step, dict(learner=variables, key=key), jnp.zeros((), jnp.int32), settings)
