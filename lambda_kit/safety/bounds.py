"""Bounds over samples from the posterior over models (section 4.2, algorithm 1).

A `core.Bound` maps one estimate of a value for each of N posterior samples to weights [N] of these samples. The bound
is the weighted sum of the estimates. The weights of each class below sum to one and are constants to the gradient.

The paper takes `UpperBound` of the objective, which is optimism, and of each cost, which is pessimism (eq. 12).
"""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np

import gin
from lambda_kit import core
from lambda_kit import ranges
from lambda_kit import types


def _select(index: types.Array, estimates: types.Array) -> types.Array:
  return jax.nn.one_hot(index, estimates.shape[0], dtype=estimates.dtype)


@gin.register
class UpperBound:
  """Selects the sample with the largest estimate, the first one of equals (algorithm 1, line 7)."""

  def __call__(self, estimates: types.Array) -> types.Array:
    chex.assert_rank(estimates, 1)
    return _select(jnp.argmax(estimates), estimates)


@gin.register
class LowerBound:
  """Selects the sample with the smallest estimate, the first one of equals."""

  def __call__(self, estimates: types.Array) -> types.Array:
    chex.assert_rank(estimates, 1)
    return _select(jnp.argmin(estimates), estimates)


@gin.register
class MeanBound:
  """Weighs all samples alike: the paper's greedy exploitation, which ignores what the model does not know (eq. 4)."""

  def __call__(self, estimates: types.Array) -> types.Array:
    chex.assert_rank(estimates, 1)
    return jnp.full_like(estimates, 1.0 / estimates.shape[0])


@gin.register
@ranges.checked
class QuantileBound:
  """Selects the smallest estimate that at least a fraction `q` of all N estimates don't exceed.

  This is an order statistic, the ceil(q N)-th smallest: `q` = 0 selects the smallest, 0.5 the (lower) median, 1 the
  largest. With few samples many `q` select the same one: N = 5 tells only five levels apart.
  """

  def __init__(self, q: ranges.Share = 0.8):
    self._q = q

  def __call__(self, estimates: types.Array) -> types.Array:
    chex.assert_rank(estimates, 1)
    # Against rounding: 0.28 * 25 is 7.000000000000001, and means the 7th.
    rank = max(math.ceil(self._q * estimates.shape[0] - 1e-6), 1)
    return _select(jnp.argsort(estimates)[rank - 1], estimates)


@gin.register
@ranges.checked
class MeanPlusStdBound:
  """Mean of the estimates x_n plus `beta` of their standard deviations; pessimistic about rewards if `beta` < 0.

  Weights w_n = 1/N + beta (x_n - mean) / (N std), with std^2 = sum_n (x_n - mean)^2 / N. Then
    sum_n w_n x_n = mean + beta sum_n (x_n - mean) x_n / (N std) = mean + beta std, and
    d (mean + beta std) / d x_n = 1/N + beta (x_n - mean) / (N std) = w_n,
  so that the gradient with the weights held fixed is exact. Weights may be negative: see `critic_weights`. Where all
  estimates are equal, std has no gradient, and the weights are those of the mean.
  """

  def __init__(self, beta: ranges.Finite = 1.0):
    self._beta = beta

  def __call__(self, estimates: types.Array) -> types.Array:
    chex.assert_rank(estimates, 1)
    estimates = jax.lax.stop_gradient(estimates)
    # Relative to one of them: else the rounding of the mean of equal estimates would pass for their deviation.
    offsets = estimates - estimates[0]
    deviations = offsets - jnp.mean(offsets)
    std = jnp.sqrt(jnp.mean(deviations**2))
    return (1.0 + self._beta * deviations / jnp.where(std > 0, std, 1.0)) / estimates.shape[0]


def apply_bound(bound: core.Bound, values: types.Array) -> tuple[types.Array, types.Array]:
  """Bounds values of imagined trajectories, for each start state by itself (algorithm 1).

  A sample's estimate for a start state is the mean of its values over the horizon. The paper's sum over the horizon
  selects the same samples.

  Args:
    bound: Maps estimates [N] to weights [N].
    values: V_lambda(s_t) of trajectories from S start states under N posterior samples, [N, S, H].

  Returns:
    The bounded values [S, H], differentiable in `values`, and the weights [N, S], which are constants.
  """
  chex.assert_rank(values, 3)
  estimates = jax.lax.stop_gradient(jnp.mean(values, axis=2))
  weights = jax.lax.stop_gradient(jax.vmap(bound, in_axes=1, out_axes=1)(estimates))
  chex.assert_equal_shape([weights, estimates])
  return jnp.sum(weights[:, :, None] * values, axis=0), weights


def level(bound: core.Bound, num_samples: int) -> float | None:
  """What a bound over N samples promises: how often the next sample of the same kind would not be above it.

  The k-th smallest of N is not below the next one with probability k / (N + 1), if all N + 1 are exchangeable and none
  are equal: N / (N + 1) for the largest. None for bounds that don't select one sample.
  """
  weights = np.asarray(bound(jnp.arange(num_samples, dtype=jnp.float32)))
  selected = np.flatnonzero(weights)
  if len(selected) != 1 or weights[selected[0]] != 1.0:
    return None
  return float((selected[0] + 1) / (num_samples + 1))


def critic_weights(weights: types.Array) -> types.Array:
  """How much a critic learns from each sample's trajectory, given a bound's weights [N, S].

  Critics learn from the trajectories that the bound selects. A regression can't learn from a trajectory less than not
  at all: negative weights are dropped, and the others made to sum to one over N.

  Returns:
    Weights [N, S], not negative, which sum to one over N.
  """
  chex.assert_rank(weights, 2)
  positive = jnp.maximum(weights, 0.0)
  total = jnp.sum(positive, axis=0, keepdims=True)
  return jnp.where(total > 0, positive / jnp.where(total > 0, total, 1.0), 1.0 / weights.shape[0])
