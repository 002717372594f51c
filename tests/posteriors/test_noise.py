"""The noise against the distribution that it stands for."""

import jax
import numpy as np
from scipy import stats

from lambda_kit.posteriors import noise

_draw = jax.jit(noise.standard_normal, static_argnums=1)


def test_the_table_is_standard_normal():
  table = noise._quantiles().astype(np.float64)
  assert abs(np.mean(table)) < 1e-9 and abs(np.var(table) - 1) < 1e-6
  assert abs(np.mean(table**4) - 3) < 1e-3  # What is missing are the tails beyond 4.3.
  # Largest distance between the distribution functions: half a step, and what the scaling adds.
  assert stats.ks_1samp(table, stats.norm.cdf).statistic < 1.5 / 65536


def test_draws_are_standard_normal_and_independent():
  size = 400_001  # An odd number: the last word of bits is half used.
  z = np.asarray(_draw(jax.random.key(0), (size,)))
  assert z.shape == (size,) and z.dtype == np.float32
  assert stats.ks_1samp(z, stats.norm.cdf).pvalue > 0.01
  # Neighbours, the two halves of one word of bits, and the two words of one hash are uncorrelated.
  words = (size + 1) // 2
  for lag in (1, 2, words, words // 2, words // 2 + 1):
    assert abs(np.mean(z[lag:] * z[:-lag])) < 4 / np.sqrt(size - lag)


def test_a_key_decides_the_draws():
  for key, other in (
    (jax.random.key(3), jax.random.key(4)),
    (jax.random.PRNGKey(3), jax.random.PRNGKey(4)),
    (jax.random.key(3, impl='rbg'), jax.random.key(4, impl='rbg')),
  ):
    first = np.asarray(_draw(key, (2, 3, 5)))
    assert first.shape == (2, 3, 5)
    np.testing.assert_array_equal(first, _draw(key, (2, 3, 5)))
    assert not np.any(np.isclose(first, _draw(other, (2, 3, 5))))
