"""The policy: a Gaussian squashed by tanh into the box of actions (appendix, Policy)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

import gin
from lambda_kit import core
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.models import activations
from lambda_kit.models import networks as model_networks
from lambda_kit.policies import networks

# The largest float32 below 1, so that actions stay inside the open interval: from about 9 on, tanh rounds to 1.
_MAX_ACTION = 1.0 - 2.0**-24


class SquashedGaussian(NamedTuple):
  """The distribution of a = tanh(u), u ~ N(mean, diag(std^2)). A pytree: functions under `jit` can return it."""

  mean: types.Array  # [..., A], of u.
  std: types.Array  # [..., A], of u.

  def sample(self, key: core.Key) -> types.Array:
    """Draws actions [..., A] in (-1, 1), differentiably in mean and std."""
    return self.from_noise(jax.random.normal(key, self.mean.shape, self.mean.dtype))

  def from_noise(self, noise: types.Array) -> types.Array:
    """Maps standard normal noise [..., A] to actions [..., A], differentiably in mean and std."""
    return _squash(self.mean + self.std * noise)

  def mode(self) -> types.Array:
    """tanh(mean), [..., A]: the action of evaluation, at the mode of the Gaussian."""
    return _squash(self.mean)

  def gaussian_entropy(self) -> types.Array:
    """Entropy [...] of u, for logs. It grows with std without end, while the entropy of the action falls again."""
    return jnp.sum(0.5 * jnp.log(2.0 * jnp.pi * jnp.e) + jnp.log(self.std), axis=-1)


def _squash(draw: types.Array) -> types.Array:
  return jnp.clip(jnp.tanh(draw), -_MAX_ACTION, _MAX_ACTION)


@gin.register
@ranges.checked
class SquashedGaussianPolicy(hk.Module):
  """pi_xi(a_t | s_t), an MLP from features [..., F] to a `SquashedGaussian` over actions [..., A].

  With the network's outputs m and raw:
    mean = mean_scale tanh(m / mean_scale), std = softplus(raw + softplus^{-1}(init_std)) + min_std.

  Args:
    num_actions: A.
    hidden_sizes: Widths of the hidden layers.
    init_std: The standard deviation before squashing where the network outputs 0. At 5 most actions are close to +-1;
      at a mean of 0 the squashed density has a single peak only below sqrt(1/2).
    min_std: Added to all standard deviations.
    mean_scale: Means stay within +-mean_scale.
  """

  def __init__(
    self,
    num_actions: int,
    hidden_sizes: Sequence[ranges.Count] = (400, 400, 400, 400),
    init_std: ranges.Positive = 5.0,
    min_std: ranges.NotNegative = 1e-4,
    mean_scale: ranges.Positive = 5.0,
    name: str | None = None,
  ):
    super().__init__(name)
    self._output_sizes = (*hidden_sizes, 2 * num_actions)
    self._raw_offset = float(init_std + np.log(-np.expm1(-init_std)))  # log(e^init_std - 1).
    self._min_std = min_std
    self._mean_scale = mean_scale

  def __call__(self, features: types.Array) -> SquashedGaussian:
    outputs = model_networks.on_rows(hk.nets.MLP(self._output_sizes, activation=activations.elu), features)
    mean, raw_std = jnp.split(outputs, 2, axis=-1)
    mean = self._mean_scale * jnp.tanh(mean / self._mean_scale)
    std = jax.nn.softplus(raw_std + self._raw_offset) + self._min_std
    return SquashedGaussian(mean, std)


# Called with num_actions, inside a Haiku transform.
PolicyFactory = Callable[[int], hk.Module]


def make_policy(num_actions: int, policy_factory: PolicyFactory) -> networks.FeedForwardNetwork:
  """A policy. `apply(params, features [..., F])` returns a distribution over actions [..., A]."""
  return networks.transform(lambda: policy_factory(num_actions))
