"""The few distributions that world models need. Unless stated otherwise, the last axis is that of the variables."""

import math
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from lambda_kit import types

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


class Gaussian(NamedTuple):
  """A Gaussian with a diagonal covariance."""

  mean: types.Array  # [..., D]
  stddev: types.Array  # [..., D]

  def sample(self, noise: types.Array) -> types.Array:
    """Draws [..., D] from standard normal `noise` [..., D], differentiably in mean and stddev."""
    chex.assert_equal_shape([self.mean, self.stddev, noise])
    return self.mean + self.stddev * noise

  def log_prob(self, value: types.Array) -> types.Array:
    """The log density of `value` [..., D], summed over D: [...]."""
    chex.assert_equal_shape([self.mean, self.stddev, value])
    return jnp.sum(normal_log_prob((value - self.mean) / self.stddev, 0.0) - jnp.log(self.stddev), axis=-1)

  def entropy(self) -> types.Array:
    """In nats, [...]."""
    return jnp.sum(jnp.log(self.stddev) + 0.5 + _LOG_SQRT_2PI, axis=-1)


def gaussian(raw: types.Array, min_stddev: float) -> Gaussian:
  """Turns a network's output [..., 2 D] into a Gaussian over D variables: stddev = softplus(raw) + min_stddev."""
  mean, raw_stddev = jnp.split(raw, 2, axis=-1)
  return Gaussian(mean, jax.nn.softplus(raw_stddev) + min_stddev)


def kl_divergence(p: Gaussian, q: Gaussian) -> types.Array:
  """KL(p || q) in nats, [...].

  For each variable: log(s_q / s_p) + (s_p^2 + (m_p - m_q)^2) / (2 s_q^2) - 1/2.
  """
  chex.assert_equal_shape([p.mean, p.stddev, q.mean, q.stddev])
  ratio = p.stddev / q.stddev
  distance = (p.mean - q.mean) / q.stddev
  return jnp.sum(0.5 * (ratio**2 + distance**2 - 1.0) - jnp.log(ratio), axis=-1)


def normal_log_prob(value: types.Array, mean: types.Array) -> types.Array:
  """The log density of a Normal with standard deviation 1, for each entry."""
  return -0.5 * (value - mean) ** 2 - _LOG_SQRT_2PI


def bernoulli_log_prob(event: types.Array, logits: types.Array) -> types.Array:
  """The log probability of `event`, 1 or 0, for each entry. Exact for logits of any size."""
  chex.assert_equal_shape([event, logits])
  return -jax.nn.softplus(jnp.where(event > 0, -logits, logits))
