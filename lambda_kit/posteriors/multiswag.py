"""MultiSWAG (Wilson and Izmailov, 2020): a mixture of Gaussians, fitted by SWAG around each member of an ensemble.

Members differ between the regions that training found, snapshots of a member within one of them.
Letters beside the common legend: M members, K columns, P selected parameters.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import gin
from lambda_kit import core
from lambda_kit import types
from lambda_kit.models import optimizers
from lambda_kit.posteriors import ensemble
from lambda_kit.posteriors import swag

# Parameters as in `EnsembleState`: leaves of members are [M, ...], shared ones as they are. Of the moments the mean is
# like that, counts are [], and all else [M, ...].
MultiSwagState = swag.SwagState


@gin.register
class MultiSwag(core.Posterior[MultiSwagState]):
  """SWAG around each member of an ensemble.

  Members learn as those of `Ensemble` do, with its `clip_norm` and `eps`, but at the cyclic rate of `Swag`. Until all
  snapshots are in, samples are the members as they are.

  Args:
    select: Picks the parameters that are sampled.
    ensemble_factory: Makes the ensemble.
    swag_factory: Makes what decides on rates and snapshots, and draws.
  """

  display_name = 'MultiSWAG'

  def __init__(
    self,
    select: Callable[[core.Params], core.Params],
    ensemble_factory: Callable[..., ensemble.Ensemble] = ensemble.Ensemble,
    swag_factory: Callable[..., swag.Swag] = swag.Swag,
  ):
    self._swag = swag_factory(select=select)
    # Optax counts from 0, SWAG from 1.
    self._ensemble = ensemble_factory(select=select, learning_rate=lambda count: self._swag.rate(count + 1))

  def init(self, key: core.Key, init_params: Callable[[core.Key], core.Params]) -> MultiSwagState:
    params, opt_state = self._ensemble.init(key, init_params)
    axes, moments_axes = self._axes(params)
    init_moments = jax.vmap(
      self._swag.init_moments, in_axes=(axes,), out_axes=moments_axes, axis_size=self._ensemble.num_members
    )
    return MultiSwagState(params, opt_state, jnp.zeros((), jnp.int32), init_moments(params))

  def update(
    self, state: MultiSwagState, loss: core.ModelLoss, key: core.Key
  ) -> tuple[MultiSwagState, Any, dict[str, types.Array]]:
    old = ensemble.EnsembleState(state.params, state.opt_state)
    (params, opt_state), aux, metrics = self._ensemble.update(old, loss, key)
    applied = optimizers.skipped_updates(opt_state) == optimizers.skipped_updates(state.opt_state)
    num_updates = state.num_updates + applied
    axes, moments_axes = self._axes(params)
    # A branch outside of the vmap, so that columns are neither copied nor touched between snapshots.
    moments = jax.lax.cond(
      applied & self._swag.is_snapshot(num_updates),
      jax.vmap(self._swag.add_snapshot, in_axes=(moments_axes, axes), out_axes=moments_axes),
      lambda moments, params: moments,
      state.moments,
      params,
    )
    # Between members, and within them.
    variance = jnp.square(metrics['posterior_spread']) + jnp.mean(jnp.square(moments.spread))
    metrics |= dict(num_snapshots=moments.num_snapshots, posterior_spread=jnp.sqrt(variance))
    return MultiSwagState(params, opt_state, num_updates, moments), aux, metrics

  def current(self, state: MultiSwagState) -> core.Params:
    """The first member, as in `Ensemble`."""
    return self._ensemble.current(ensemble.EnsembleState(state.params, state.opt_state))

  def mean(self, state: MultiSwagState) -> core.Params:
    """The mean of the first member, as in `Ensemble`."""
    return self._ensemble.mean(ensemble.EnsembleState(self._swag.mean(state), state.opt_state))

  def sample(
    self, state: MultiSwagState, key: core.Key, num_samples: int, scale: types.Array | float | None = None
  ) -> core.Params:
    """Draws from members in a random order, and from all of them before any has its next turn."""
    num_members = self._ensemble.num_members
    turns = -(-num_samples // num_members)
    order_key, draw_key = jax.random.split(key)
    axes, moments_axes = self._axes(state.params)
    draw = lambda params, moments, key: self._swag.sample(state._replace(params=params, moments=moments), key, turns)
    # All members, whatever N: picking some of them first would copy their columns.
    samples = jax.vmap(draw, in_axes=(axes, moments_axes, 0))(
      state.params, state.moments, jax.random.split(draw_key, num_members)
    )  # [M, turns, ...]
    order = jax.random.permutation(order_key, num_members)
    in_turn = lambda leaf: jnp.swapaxes(leaf[order], 0, 1).reshape(-1, *leaf.shape[2:])[:num_samples]
    samples = jax.tree.map(in_turn, samples)
    return samples if scale is None else self._ensemble.stretch(samples, self._swag.mean(state), scale)

  def _axes(self, params: core.Params) -> tuple[core.Params, swag.Moments]:
    """The axis of members in each leaf of `params`, and of their moments; None if they share it."""
    axes = jax.tree.map(lambda own: 0 if own else None, self._ensemble.is_own(params))
    moments_axes = swag.Moments(
      mean=axes, variance=0, columns=0, square_norms=0, total_weight=None, num_snapshots=None, spread=0
    )
    return axes, moments_axes
