"""Critics of the task, v(s_t), and of each constraint, v^i(s_t)."""

from collections.abc import Callable, Sequence

import haiku as hk
import jax
import jax.numpy as jnp

import gin
from lambda_kit import core
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.models import activations
from lambda_kit.models import networks as model_networks
from lambda_kit.policies import networks


@gin.register
@ranges.checked
class Critic(hk.Module):
  """v_psi(s_t), an MLP from features [..., F] to values [...]."""

  def __init__(self, hidden_sizes: Sequence[ranges.Count] = (400, 400, 400), name: str | None = None):
    super().__init__(name)
    self._output_sizes = (*hidden_sizes, 1)

  def __call__(self, features: types.Array) -> types.Array:
    mlp = hk.nets.MLP(self._output_sizes, activation=activations.elu)
    return jnp.squeeze(model_networks.on_rows(mlp, features), axis=-1)


# Called without arguments, inside a Haiku transform.
CriticFactory = Callable[[], hk.Module]


def make_critic(critic_factory: CriticFactory) -> networks.FeedForwardNetwork:
  """One critic. `apply(params, features [..., F])` returns values [...]."""
  return networks.transform(critic_factory)


def make_stacked_critics(critic_factory: CriticFactory, num: int) -> networks.FeedForwardNetwork:
  """`num` = C independent critics with stacked parameters: leaves [C, ...].

  `apply(params, features [..., F])` returns the values [..., C] of all critics for the same features.
  """
  if num < 1:
    raise ValueError(f'At least one critic is needed, got num={num}.')
  critic = make_critic(critic_factory)

  def init(key: core.Key, feature_size: int) -> core.Params:
    return jax.vmap(lambda k: critic.init(k, feature_size))(jax.random.split(key, num))

  return networks.FeedForwardNetwork(init, jax.vmap(critic.apply, in_axes=(0, None), out_axes=-1))
