"""No posterior at all: one set of parameters, of which every sample is a copy (the paper's greedy baseline model)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import gin
from lambda_kit import core
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.models import optimizers


class PointState(NamedTuple):
  params: core.Params  # All parameters.
  opt_state: optax.OptState


@gin.register
@ranges.checked
class Point(core.Posterior[PointState]):
  """A point estimate, learned by Adam.

  Args:
    select: Picks the parameters that imagination needs.
    learning_rate: Adam's.
    clip_norm: The largest global norm of a gradient.
    eps: Adam's.
  """

  display_name = 'single model'

  def __init__(
    self,
    select: Callable[[core.Params], core.Params],
    learning_rate: ranges.Positive = 1e-4,
    clip_norm: ranges.PositiveOrInfinite = 100.0,
    eps: ranges.Positive = 1e-5,
  ):
    self._select = select
    self._learning_rate = learning_rate
    self._optimizer = optimizers.make_adam(learning_rate, clip_norm, eps)

  def init(self, key: core.Key, init_params: Callable[[core.Key], core.Params]) -> PointState:
    params = init_params(key)
    return PointState(params, self._optimizer.init(params))

  def update(
    self, state: PointState, loss: core.ModelLoss, key: core.Key
  ) -> tuple[PointState, Any, dict[str, types.Array]]:
    (value, aux), gradients = jax.value_and_grad(loss, has_aux=True)(state.params, key)
    updates, opt_state = self._optimizer.update(gradients, state.opt_state, state.params)
    metrics = dict(
      loss=value,
      learning_rate=jnp.asarray(self._learning_rate, jnp.float32),
      gradient_norm=optax.tree.norm(gradients),
      skipped_updates=optimizers.skipped_updates(opt_state),
      posterior_spread=jnp.zeros(()),
    )
    return PointState(optax.apply_updates(state.params, updates), opt_state), aux, metrics

  def current(self, state: PointState) -> core.Params:
    return state.params

  def sample(
    self, state: PointState, key: core.Key, num_samples: int, scale: types.Array | float | None = None
  ) -> core.Params:
    del key, scale
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_samples, *leaf.shape)), self._select(state.params))
