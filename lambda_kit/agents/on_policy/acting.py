"""How the baselines act: by their policy, with noise in training, and with or without noise in evaluation."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lambda_kit import core
from lambda_kit import types
from lambda_kit.agents.on_policy import gaussian

# Steps to draw noise for at once. On a CPU, a step without a draw takes half of the time.
_NOISE_STEPS = 1000


class NoiseCarry(NamedTuple):
  """The noise of the next steps in k environments."""

  key: core.Key
  step: types.Array  # [], since the beginning of the episode.
  noise: types.Array  # [_NOISE_STEPS, k, A]


def make_actor_core(networks: gaussian.OnPolicyNetworks, with_noise: bool, clip: bool) -> core.ActorCore:
  """Acts by the policy.

  Args:
    networks: Has the policy.
    with_noise: Whether actions are drawn from the policy; otherwise they are its mode.
    clip: Whether actions are kept within bounds. Not in training, where densities are those of the actions drawn.
  """

  def init(key: core.Key, count: int) -> NoiseCarry | tuple[()]:
    if not with_noise:
      return ()
    return NoiseCarry(key, jnp.zeros((), jnp.int32), jnp.zeros((_NOISE_STEPS, count, networks.num_actions)))

  def next_noise(carry: NoiseCarry) -> tuple[types.Array, NoiseCarry]:
    """Noise [k, A], a function of the key and the step."""
    block, index = jnp.divmod(carry.step, carry.noise.shape[0])
    draw = lambda: jax.random.normal(jax.random.fold_in(carry.key, block), carry.noise.shape)
    noise = jax.lax.cond(index == 0, draw, lambda: carry.noise)
    return noise[index], NoiseCarry(carry.key, carry.step + 1, noise)

  def step(variables, carry, observation, is_first):
    del is_first  # The carry holds nothing but noise.
    (learned,) = variables
    policy = networks.policy.apply(learned['policy'], gaussian.normalize(learned['normalizer'], observation))
    action = policy.mode()
    if with_noise:
      noise, carry = next_noise(carry)
      action = policy.from_noise(noise)
    return (jnp.clip(action, -1.0, 1.0) if clip else action), carry

  return core.ActorCore(init, step, variable_names=('policy',))
