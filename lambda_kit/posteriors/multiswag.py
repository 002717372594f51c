"""MultiSWAG (Wilson and Izmailov, 2020): a mixture of Gaussians, fitted by SWAG around each member of an ensemble.

Members differ between the regions that training found, snapshots of a member within one of them.
Letters beside the common legend: M members, K columns, P parameters of a member.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

import gin
from lambda_kit import core
from lambda_kit import types
from lambda_kit.models import optimizers
from lambda_kit.posteriors import ensemble
from lambda_kit.posteriors import swag


class MultiSwagState(NamedTuple):
  ensemble: ensemble.EnsembleState
  num_updates: types.Array  # [] int32, as in `SwagState`.
  moments: swag.Moments  # Of the members' parameters, [M, ...]; counts are [].


# The axis of members.
_AXES = swag.Moments(mean=0, variance=0, columns=0, square_norms=0, total_weight=None, num_snapshots=None, spread=0)


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
  needs_member_loss = True

  def __init__(
    self,
    select: Callable[[core.Params], core.Params],
    ensemble_factory: Callable[..., ensemble.Ensemble] = ensemble.Ensemble,
    swag_factory: Callable[..., swag.Swag] = swag.Swag,
  ):
    self._swag = swag_factory(select=lambda member: member)  # All parameters of a member are sampled.
    # Optax counts from 0, SWAG from 1.
    self._ensemble = ensemble_factory(select=select, learning_rate=lambda count: self._swag.rate(count + 1))

  def init(self, key: core.Key, init_params: Callable[[core.Key], core.Params]) -> MultiSwagState:
    state = self._ensemble.init(key, init_params)
    init_moments = jax.vmap(self._swag.init_moments, out_axes=_AXES)
    return MultiSwagState(state, jnp.zeros((), jnp.int32), init_moments(state.members))

  def update(
    self, state: MultiSwagState, loss: core.ModelLoss, key: core.Key
  ) -> tuple[MultiSwagState, types.ModelOutput, dict[str, types.Array]]:
    new_ensemble, output, metrics = self._ensemble.update(state.ensemble, loss, key)
    applied = metrics['skipped_updates'] == optimizers.skipped_updates(state.ensemble.opt_state)
    num_updates = state.num_updates + applied
    # A branch outside of the vmap, so that columns are neither copied nor touched between snapshots.
    moments = jax.lax.cond(
      applied & self._swag.is_snapshot(num_updates),
      jax.vmap(self._swag.add_snapshot, in_axes=(_AXES, 0), out_axes=_AXES),
      lambda moments, members: moments,
      state.moments,
      new_ensemble.members,
    )
    # Between members, and within them.
    variance = jnp.square(metrics['posterior_spread']) + jnp.mean(jnp.square(moments.spread))
    metrics |= dict(num_snapshots=moments.num_snapshots, posterior_spread=jnp.sqrt(variance))
    return MultiSwagState(new_ensemble, num_updates, moments), output, metrics

  def current(self, state: MultiSwagState) -> core.Params:
    """The reference, as in `Ensemble`."""
    return self._ensemble.current(state.ensemble)

  def sample(
    self, state: MultiSwagState, key: core.Key, num_samples: int, scale: types.Array | float | None = None
  ) -> core.Params:
    """Draws from members in a random order, and from all of them before any has its next turn.

    `scale` stretches samples as `Ensemble` stretches members, by how far both members and draws are from the reference.
    """
    num_members = self._ensemble.num_members
    turns = -(-num_samples // num_members)
    order_key, draw_key = jax.random.split(key)

    def draw(member, moments, key):
      return self._swag.sample(swag.SwagState(member, (), state.num_updates, moments), key, turns)

    # All members, whatever N: picking some of them first would copy their columns.
    samples = jax.vmap(draw, in_axes=(0, _AXES, 0))(
      state.ensemble.members, state.moments, jax.random.split(draw_key, num_members)
    )  # [M, turns, ...]
    order = jax.random.permutation(order_key, num_members)
    in_turn = lambda leaf: jnp.swapaxes(leaf[order], 0, 1).reshape(-1, *leaf.shape[2:])[:num_samples]
    origin = jnp.tile(order, turns)[:num_samples]
    fixed = jax.tree.map(lambda leaf: leaf[origin], state.ensemble.fixed)
    return self._ensemble.stretched(jax.tree.map(in_turn, samples), fixed, state.ensemble.params, scale)
