"""Standard normal noise in large amounts.

Drawing N sets of a million weights at every gradient step costs more on a CPU than everything else that the posterior
does, if it is done by `jax.random.normal` (see `benchmarks/posterior_speed.py`). That function hashes 64 bits for each
number and inverts the error function. Here 16 bits choose one of 65,536 equally likely quantiles from a table.
"""

from collections.abc import Sequence
import functools

import jax
from jax.extend import random as extended_random
import jax.numpy as jnp
import numpy as np

from lambda_kit import core
from lambda_kit import types

_LEVELS = 2**16


@functools.cache
def _quantiles() -> np.ndarray:
  """Quantiles of N(0, 1) at the middle of each of the levels, scaled to a variance of exactly 1, [65536].

  The scale is 1.00001, the fourth moment 2.9992 (of the normal distribution: 3), the largest number 4.32.
  """
  from scipy import special  # Here, since it is slow to import.

  quantiles = special.ndtri((np.arange(_LEVELS) + 0.5) / _LEVELS)
  return (quantiles / np.sqrt(np.mean(quantiles**2))).astype(np.float32)


def standard_normal(key: core.Key, shape: Sequence[int]) -> types.Array:
  """Draws numbers of mean 0 and variance 1, float32 of the given shape. Not differentiable in anything."""
  size = int(np.prod(shape))
  # Two words of any kind of key make a Threefry key. JAX's generator would hash twice as much for as many bits.
  words = extended_random.threefry_2x32(
    jax.random.bits(key, (2,), jnp.uint32), jax.lax.iota(jnp.uint32, (size + 1) // 2)
  )
  levels = jnp.concatenate([words & (_LEVELS - 1), words >> 16]).astype(jnp.int32)
  noise = jnp.asarray(_quantiles()).at[levels].get(mode='promise_in_bounds')
  return jnp.reshape(noise[:size], shape)
