"""Warm-up: the random actions that an agent takes before it has learned anything (algorithm 2, line 1)."""

import jax
import jax.numpy as jnp

import gin
from lambda_kit import core
from lambda_kit import ranges
from lambda_kit import types

# Beyond this a Gaussian's distribution function has too few digits in float32 to be inverted.
_MOST = 3.0


@gin.register
def uniform_actions(key: core.Key, last_action: types.Array, is_first: types.Array) -> types.Array:
  """Each action is uniform and independent of the others: the paper's."""
  return jax.random.uniform(key, last_action.shape, minval=-1.0, maxval=1.0)


@gin.register
@ranges.checked
class CorrelatedActions:
  """Each action is uniform, and close to the one before.

  Independent actions cancel each other: a robot hardly leaves the spot, learns nothing about the rest of the room, and
  where it begins in a hazard it stays there. Correlated ones move it. With Phi the standard normal CDF,

    a_t = 2 Phi(u_t) - 1,    u_t = correlation u_{t-1} + sqrt(1 - correlation^2) e_t,    e_t ~ N(0, I), u_0 ~ N(0, I),

  so that u_t is standard normal and a_t uniform at every t.

  Args:
    correlation: Of successive u; 0 draws independent actions. It fades to 1/e in -1 / log(correlation) agent steps.
  """

  def __init__(self, correlation: ranges.ShareBelowOne = 0.9):
    self._correlation = correlation

  def __call__(self, key: core.Key, last_action: types.Array, is_first: types.Array) -> types.Array:
    noise = jax.random.normal(key, last_action.shape)
    last = jnp.clip(jax.scipy.special.ndtri((1.0 + last_action) / 2.0), -_MOST, _MOST)
    following = self._correlation * last + (1.0 - self._correlation**2) ** 0.5 * noise
    return 2.0 * jax.scipy.special.ndtr(jnp.where(is_first[:, None], noise, following)) - 1.0
