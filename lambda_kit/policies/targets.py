"""Target networks of critics, from which their targets bootstrap (appendix, Value functions)."""

from typing import Protocol

import chex
import jax.numpy as jnp
import optax

import gin
from lambda_kit import core
from lambda_kit import ranges
from lambda_kit import types


class TargetUpdate(Protocol):
  def __call__(self, online: core.Params, target: core.Params, step: types.Array) -> core.Params:
    """Returns the new target. `step` [] counts the updates of `online` including the one just taken: it starts at 1."""


@gin.register
@ranges.checked
class PeriodicTarget:
  """Copies the critic at every `period`-th update (U in the paper), and stays fixed in between."""

  def __init__(self, period: ranges.Count = 100):
    self._period = period

  def __call__(self, online: core.Params, target: core.Params, step: types.Array) -> core.Params:
    chex.assert_trees_all_equal_shapes_and_dtypes(online, target)
    return optax.periodic_update(online, target, jnp.asarray(step), self._period)


@gin.register
@ranges.checked
class SlowTarget:
  """Follows the critic by exponential averaging: target <- rate online + (1 - rate) target at every update."""

  def __init__(self, rate: ranges.PositiveShare = 0.01):
    self._rate = rate

  def __call__(self, online: core.Params, target: core.Params, step: types.Array) -> core.Params:
    del step
    chex.assert_trees_all_equal_shapes_and_dtypes(online, target)
    return optax.incremental_update(online, target, self._rate)
