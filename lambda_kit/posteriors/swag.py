"""Stochastic weight averaging, Gaussian (SWAG; Maddox et al., 2019), as the paper adapts it to reinforcement learning.

Weights are kept at regular intervals of training, and a Gaussian is fitted to them. Where the original averages over
the end of training on a fixed data set, the paper forgets exponentially (appendix, "Posterior over model parameters"),
and moves the learning rate in cycles, so that snapshots come from different regions of the weight space.

Updates are counted u = 1, 2, ... Snapshot n = 1, 2, ... is what update u = burn_in + n * period results in.
Letters beside the common legend: P selected parameters, K columns.
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import chex
import jax
from jax import flatten_util
import jax.numpy as jnp
import numpy as np
import optax

import gin
from lambda_kit import core
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.models import optimizers
from lambda_kit.posteriors import noise


class Moments(NamedTuple):
  """A Gaussian over weights. `variance` and `columns` are of the selected parameters only: no others are sampled."""

  mean: core.Params  # Of all parameters: filtering needs one complete set.
  variance: types.Array  # [P]
  columns: types.Array  # [K, P], deviations of the last K snapshots, see `add_snapshot`; the oldest is overwritten.
  square_norms: types.Array  # [K], of the columns.
  total_weight: types.Array  # [], of all snapshots in the average, the last of which weighs 1.
  num_snapshots: types.Array  # [] int32, n.
  spread: types.Array  # [], see `root_mean_variance`; 0 while there is no posterior.


class SwagState(NamedTuple):
  params: core.Params  # All parameters, as they are trained.
  opt_state: optax.OptState
  num_updates: types.Array  # [] int32, u: updates so far, without those that were skipped.
  moments: Moments


def cyclic_learning_rate(update: types.Array, base: float, factor: float, burn_in: int, period: int) -> types.Array:
  """The rate of update u = 1, 2, ...: a triangular wave between `base` and `base * factor`.

  Its peaks are the updates whose result is a snapshot ("End cyclic lr period with the base LR times this factor",
  table 1), its troughs lie half-way between. With the paper's numbers it starts from the trough at u = 0.
  """
  phase = jnp.mod(jnp.asarray(update) - burn_in, period) / period  # In [0, 1), 0 at snapshots.
  return base * (1 + (factor - 1) * jnp.abs(2 * phase - 1))


def is_snapshot(update: types.Array, burn_in: int, period: int) -> types.Array:
  """Whether the result of update u = 1, 2, ... is a snapshot."""
  return (update > burn_in) & (jnp.mod(update - burn_in, period) == 0)


def init_moments(params: core.Params, num_selected: int, num_models: int) -> Moments:
  return Moments(
    mean=jax.tree.map(jnp.zeros_like, params),
    variance=jnp.zeros((num_selected,), jnp.float32),
    columns=jnp.zeros((num_models, num_selected), jnp.float32),
    square_norms=jnp.zeros((num_models,), jnp.float32),
    total_weight=jnp.zeros((), jnp.float32),
    num_snapshots=jnp.zeros((), jnp.int32),
    spread=jnp.zeros((), jnp.float32),
  )


def add_snapshot(
  moments: Moments, params: core.Params, select: Callable[[core.Params], core.Params], decay: float, scale: float
) -> Moments:
  """Takes snapshot n = 1, 2, ..., theta_n = `params`, into the moments.

  Snapshot i weighs g^(n - i) with g = `decay`, and averages are divided by the sum of the weights, W_n = 1 + g W_{n-1},
  which makes them exact from the first snapshot on. With d = theta_n - mean_{n-1}:

    mean_n = mean_{n-1} + d / W_n,    c_n = sqrt((1 + g) (1 - 1 / W_n) / (2 g)) d,
    variance_n = variance_{n-1} + (c_n^2 - variance_{n-1}) / W_{n-1}.

  Both moments are unbiased for iid snapshots of covariance S. The mean of n snapshots has the covariance q_n S, where
  q_n = sum_i w_i^2 / (sum_i w_i)^2 over their weights. Summed, with W_n = (1 - g^n) / (1 - g), this is
  q_n = (2 / W_n - (1 - g)) / (1 + g), from which follow

    E[d d^T] = (1 + q_{n-1}) S = 2 g / ((1 + g) (1 - 1 / W_n)) S,    so E[c_n c_n^T] = S,

  for n = 2 as in the limit of many snapshots; and c_1 = 0. Then variance_n, the weighted average of c_2^2, ..., c_n^2,
  is unbiased, too. It equals the weighted variance sum_i w_i (theta_i - mean_n)^2 / W_n, divided by 1 - q_n, without
  cancellation: float32 has 7 digits, and weights differ between snapshots in the third or later.

  A column is sqrt(1 - 1 / K) c_n, since `draw` divides the sum of K squares by K - 1. The first snapshot has nothing to
  deviate from: its column is that of the second, as the two deviate from their mean by the same, up to the sign.
  """
  total_weight = 1 + decay * moments.total_weight
  step = 1 / total_weight
  mean = jax.tree.map(lambda m, w: m + step * (w - m), moments.mean, params)
  snapshot, old_mean = (_flatten(select(tree)) for tree in (params, moments.mean))
  num_models = moments.columns.shape[0]
  chex.assert_shape([snapshot, moments.variance], (moments.columns.shape[1],))
  deviation = jnp.sqrt((1 + decay) * (1 - step) / (2 * decay)) * (snapshot - old_mean)
  variance_step = 1 / jnp.maximum(moments.total_weight, 1)  # At the first snapshot there is nothing to average.
  variance = moments.variance + variance_step * (jnp.square(deviation) - moments.variance)
  # `columns` are written but not read: a read here makes XLA copy all [K, P] of them at every update, due or not.
  column, newest = np.sqrt(1 - 1 / num_models) * deviation, moments.num_snapshots % num_models
  columns, square_norms = moments.columns, moments.square_norms
  for slot in (newest, jnp.where(moments.num_snapshots == 1, 0, newest)):
    columns = columns.at[slot].set(column)
    square_norms = square_norms.at[slot].set(jnp.sum(jnp.square(column)))
  num_snapshots = moments.num_snapshots + 1
  spread = jnp.where(num_snapshots >= num_models, root_mean_variance(variance, square_norms, scale), 0.0)
  return Moments(mean, variance, columns, square_norms, total_weight, num_snapshots, spread)


def root_mean_variance(variance: types.Array, square_norms: types.Array, scale: float) -> types.Array:
  """The standard deviation of a sampled parameter, [], as the root of the mean square over all P of them.

  Args:
    variance: [P]
    square_norms: Of the columns, [K].
    scale: Of the covariance.
  """
  low_rank = jnp.sum(square_norms) / (variance.size * (square_norms.size - 1))
  return jnp.sqrt(scale * (jnp.mean(variance) + low_rank) / 2)


def draw(
  mean: types.Array,
  variance: types.Array,
  columns: types.Array,
  scale: types.Array | float,
  key: core.Key,
  num_samples: int,
) -> types.Array:
  """Draws from N(mean, scale (diag(variance) / 2 + D^T D / (2 (K - 1)))) (Maddox et al., 2019, equation 1).

    theta = mean + sqrt(scale) (sqrt(variance / 2) z_1 + D^T z_2 / sqrt(2 (K - 1))),  z_1 ~ N(0, I_P), z_2 ~ N(0, I_K)

  All parameters of a sample share its z_2: through it alone, layers vary together.

  Args:
    mean: [P]
    variance: [P]
    columns: D, [K, P].
    scale: Of the covariance, [].
    key: Decides z_1 and z_2.
    num_samples: N.

  Returns:
    N different draws, [N, P].
  """
  num_models, size = columns.shape
  chex.assert_shape([mean, variance], (size,))
  diagonal_key, low_rank_key = jax.random.split(key)
  z_1 = noise.standard_normal(diagonal_key, (num_samples, size))
  z_2 = jax.random.normal(low_rank_key, (num_samples, num_models))
  low_rank = z_2 @ columns / np.sqrt(2 * (num_models - 1))  # [N, P]
  return mean[None] + jnp.sqrt(scale) * (jnp.sqrt(variance / 2)[None] * z_1 + low_rank)


@gin.register
@ranges.checked
class Swag(core.Posterior[SwagState]):
  """SWAG over the selected parameters, learned by Adam with a cyclic rate. Defaults are those of table 1.

  An update that was skipped for a gradient that is not finite counts neither for the rate nor for the snapshots.
  There is no posterior until K snapshots are in: samples and the mean are the current parameters until then, which
  with the defaults is update 500 + 20 * 200 = 4,500.

  Args:
    select: Picks the parameters that are sampled.
    learning_rate: Of Adam, at the troughs of the cycle.
    cyclic_factor: The rate at the peaks, as a multiple of `learning_rate`.
    burn_in: Updates before the first period begins.
    period: Updates from one snapshot to the next.
    num_models: K, columns of the low-rank part of the covariance.
    decay: Weight of a snapshot in the average, relative to the snapshot after it.
    scale: Of the covariance.
    clip_norm: The largest global norm of a gradient.
    eps: Adam's.
  """

  def __init__(
    self,
    select: Callable[[core.Params], core.Params],
    learning_rate: ranges.Positive = 1e-4,
    cyclic_factor: ranges.AtLeastOne = 5.0,
    burn_in: ranges.Whole = 500,
    period: ranges.Count = 200,
    num_models: Annotated[int, ranges.Range(at_least=2)] = 20,
    decay: ranges.PositiveShare = 0.8,
    scale: ranges.NotNegative = 1.0,
    clip_norm: ranges.PositiveOrInfinite = 100.0,
    eps: ranges.Positive = 1e-5,
  ):
    self._select = select
    self._burn_in, self._period, self._num_models = burn_in, period, num_models
    self._decay, self._scale = decay, scale
    self.rate = lambda update: cyclic_learning_rate(update, learning_rate, cyclic_factor, burn_in, period)
    # Optax counts from 0, we from 1. Neither counts an update that was skipped.
    self._optimizer = optimizers.make_adam(lambda count: self.rate(count + 1), clip_norm, eps)

  def init(self, key: core.Key, init_params: Callable[[core.Key], core.Params]) -> SwagState:
    params = init_params(key)
    return SwagState(
      params=params,
      opt_state=self._optimizer.init(params),
      num_updates=jnp.zeros((), jnp.int32),
      moments=self.init_moments(params),
    )

  def init_moments(self, params: core.Params) -> Moments:
    return init_moments(params, optax.tree.size(self._select(params)), self._num_models)

  def is_snapshot(self, update: types.Array) -> types.Array:
    return is_snapshot(update, self._burn_in, self._period)

  def add_snapshot(self, moments: Moments, params: core.Params) -> Moments:
    return add_snapshot(moments, params, self._select, self._decay, self._scale)

  def update(
    self, state: SwagState, loss: core.ModelLoss, key: core.Key
  ) -> tuple[SwagState, Any, dict[str, types.Array]]:
    (value, aux), gradients = jax.value_and_grad(loss, has_aux=True)(state.params, key)
    updates, opt_state = self._optimizer.update(gradients, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    skipped_updates = optimizers.skipped_updates(opt_state)
    applied = skipped_updates == optimizers.skipped_updates(state.opt_state)
    num_updates = state.num_updates + applied
    # A branch, so that the [K, P] columns are neither copied nor touched between snapshots.
    moments = jax.lax.cond(
      applied & self.is_snapshot(num_updates), self.add_snapshot, lambda moments, params: moments, state.moments, params
    )
    metrics = dict(
      loss=value,
      learning_rate=self.rate(state.num_updates + 1),
      gradient_norm=optax.tree.norm(gradients),
      skipped_updates=skipped_updates,
      num_snapshots=moments.num_snapshots,
      posterior_spread=moments.spread,
    )
    return SwagState(params, opt_state, num_updates, moments), aux, metrics

  def current(self, state: SwagState) -> core.Params:
    return state.params

  def mean(self, state: SwagState) -> core.Params:
    return jax.tree.map(lambda m, w: jnp.where(self._ready(state), m, w), state.moments.mean, state.params)

  def sample(
    self, state: SwagState, key: core.Key, num_samples: int, scale: types.Array | float | None = None
  ) -> core.Params:
    current, unflatten = flatten_util.ravel_pytree(self._select(state.params))
    moments = state.moments
    scale = self._scale if scale is None else self._scale * scale
    samples = jax.lax.cond(
      self._ready(state),
      lambda: draw(_flatten(self._select(moments.mean)), moments.variance, moments.columns, scale, key, num_samples),
      lambda: jnp.broadcast_to(current, (num_samples, current.size)),
    )
    return jax.vmap(unflatten)(samples)

  def _ready(self, state: SwagState) -> types.Array:
    return state.moments.num_snapshots >= self._num_models


def _flatten(params: core.Params) -> types.Array:
  """All leaves in one vector, [P]."""
  vector, _ = flatten_util.ravel_pytree(params)
  chex.assert_type(vector, jnp.float32)
  return vector
