"""The policy: a Gaussian, squashed into the box of actions (appendix, Policy)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import chex
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

import gin
from lambda_kit import core
from lambda_kit import types
from lambda_kit.models import activations
from lambda_kit.policies import networks

# The largest float32 below 1. tanh rounds to 1 from about 9 on, where no density is defined.
_MAX_ACTION = 1.0 - 2.0**-24


class SquashedGaussian(NamedTuple):
  """The distribution of a = tanh(u), u ~ N(mean, diag(std^2)). A pytree: functions under `jit` can return it."""

  mean: types.Array  # [..., A], of u.
  std: types.Array  # [..., A], of u.

  def sample(self, key: core.Key) -> types.Array:
    """Draws actions [..., A] in (-1, 1), differentiably in mean and std."""
    return _squash(self._draw(key))

  def from_noise(self, noise: types.Array) -> types.Array:
    """Makes the actions [..., A] of standard normal noise [..., A], differentiably in mean and std."""
    return _squash(self.mean + self.std * noise)

  def sample_and_log_prob(self, key: core.Key) -> tuple[types.Array, types.Array]:
    """Draws actions [..., A] with their log density [...], exact where `log_prob` loses digits close to +-1."""
    draw = self._draw(key)
    return _squash(draw), self._log_prob_of_draw(draw)

  def mode(self) -> types.Array:
    """tanh(mean), [..., A]: where the Gaussian has its mode, which is what evaluation acts by."""
    return _squash(self.mean)

  def log_prob(self, action: types.Array) -> types.Array:
    """Log density [...] of actions [..., A]."""
    chex.assert_equal_shape([action, self.mean])
    return self._log_prob_of_draw(jnp.arctanh(jnp.clip(action, -_MAX_ACTION, _MAX_ACTION)))

  def gaussian_entropy(self) -> types.Array:
    """Entropy [...] of u, not of the action: cheap, for logs. It keeps growing where the action's falls again."""
    return jnp.sum(0.5 * jnp.log(2.0 * jnp.pi * jnp.e) + jnp.log(self.std), axis=-1)

  def _draw(self, key: core.Key) -> types.Array:
    return self.mean + self.std * jax.random.normal(key, self.mean.shape, self.mean.dtype)

  def _log_prob_of_draw(self, draw: types.Array) -> types.Array:
    log_density = jax.scipy.stats.norm.logpdf(draw, self.mean, self.std)
    # log(da/du) = log(1 - tanh^2(u)), in a form that does not cancel.
    log_slope = 2.0 * (jnp.log(2.0) - draw - jax.nn.softplus(-2.0 * draw))
    return jnp.sum(log_density - log_slope, axis=-1)


def _squash(draw: types.Array) -> types.Array:
  return jnp.clip(jnp.tanh(draw), -_MAX_ACTION, _MAX_ACTION)


@gin.register
class SquashedGaussianPolicy(hk.Module):
  """pi_xi(a_t | s_t), an MLP from features [..., F] to a `SquashedGaussian` over actions [..., A].

  With the network's outputs m and raw:
    mean = mean_scale tanh(m / mean_scale), std = softplus(raw + softplus^{-1}(init_std)) + min_std.

  Args:
    num_actions: A.
    hidden_sizes: Widths of the hidden layers.
    init_std: The standard deviation, before squashing, of a network that outputs 0. At 5 most actions are close to
      +-1; at a mean of 0 the squashed density has a single peak only below sqrt(1/2).
    min_std: Added to all standard deviations.
    mean_scale: Means stay within +-mean_scale.
  """

  def __init__(
    self,
    num_actions: int,
    hidden_sizes: Sequence[int] = (400, 400, 400, 400),
    init_std: float = 5.0,
    min_std: float = 1e-4,
    mean_scale: float = 5.0,
    name: str | None = None,
  ):
    super().__init__(name)
    if not (init_std > 0.0 and min_std >= 0.0 and mean_scale > 0.0):
      raise ValueError(
        f'SquashedGaussianPolicy: init_std={init_std} and mean_scale={mean_scale} must be positive, and '
        f'min_std={min_std} must not be negative.'
      )
    self._output_sizes = (*hidden_sizes, 2 * num_actions)
    self._raw_offset = float(init_std + np.log(-np.expm1(-init_std)))  # log(e^init_std - 1).
    self._min_std = min_std
    self._mean_scale = mean_scale

  def __call__(self, features: types.Array) -> SquashedGaussian:
    outputs = hk.nets.MLP(self._output_sizes, activation=activations.elu)(features)
    mean, raw_std = jnp.split(outputs, 2, axis=-1)
    mean = self._mean_scale * jnp.tanh(mean / self._mean_scale)
    std = jax.nn.softplus(raw_std + self._raw_offset) + self._min_std
    return SquashedGaussian(mean, std)


# Called with num_actions, inside of a Haiku transform.
PolicyFactory = Callable[[int], hk.Module]


def make_policy(
  num_actions: int, policy_factory: PolicyFactory = SquashedGaussianPolicy
) -> networks.FeedForwardNetwork:
  """Functions of a policy. `apply(params, features [..., F])` gives a distribution over actions [..., A]."""
  return networks.transform(lambda: policy_factory(num_actions))
