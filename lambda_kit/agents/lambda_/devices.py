"""The learner's work on several devices: all have the parameters, each has a part of the sequences and start states.

Batches come to the compiler in parts, so that it spreads by itself what is a sum or a map over B or S. It does so badly
where there are loops: it would exchange gradients in each of their steps, and all of the trajectories where some are
selected. There `Devices` makes each device work on its own part. What devices tell each other are gradients, once they
are complete, and sums of losses and statistics. Noise is drawn for all parts at once: so updates are those of one
device, but for the order of sums.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lambda_kit import types

_AXIS = 'devices'


class Devices:
  """One device or several. With one, functions are called as they are, and arrays stay where they are.

  Args:
    count: How many devices; None for all that there are, those of other hosts included.
  """

  def __init__(self, count: int | None = 1):
    available = jax.devices()
    count = len(available) if count is None else count
    if not 1 <= count <= len(available):
      raise ValueError(
        f'LambdaAgent.num_devices = {count}, and JAX sees {len(available)}: {available}. Give as many '
        'or fewer; None takes all of them.'
      )
    if jax.process_count() > 1 and count != len(available):
      raise ValueError(
        f'LambdaAgent.num_devices = {count}, but {jax.process_count()} processes with '
        f'{len(available)} devices learn together: bind it to None, for all of them.'
      )
    self.count = count
    self._mesh = None if count == 1 else jax.sharding.Mesh(np.asarray(available[:count]), (_AXIS,))

  def check(self, name: str, size: int) -> None:
    """Refuses an axis that can't be divided among the devices."""
    if size % self.count:
      raise ValueError(
        f'{name} = {size} can not be divided among {self.count} devices '
        f'(LambdaAgent.num_devices): choose a multiple of {self.count}.'
      )

  @property
  def batch_sharding(self) -> jax.sharding.Sharding | None:
    """Where batches [B, ...] are; None for JAX's default."""
    return None if self._mesh is None else self._sharding(_AXIS)

  def jit(self, function: Callable[..., Any], donate_argnums: tuple[int, ...] = ()) -> Callable[..., Any]:
    """Compiles a function whose results all devices are to have."""
    if self._mesh is None:
      return jax.jit(function, donate_argnums=donate_argnums)
    return jax.jit(function, donate_argnums=donate_argnums, out_shardings=self._sharding())

  def replicate(self, tree: types.Nest) -> types.Nest:
    """Copies of arrays, on all devices."""
    if self._mesh is None:
      return jax.tree.map(jnp.copy, tree)
    return self.jit(lambda tree: jax.tree.map(jnp.copy, tree))(jax.tree.map(np.asarray, tree))

  def local(self, tree: types.Nest) -> types.Nest:
    """Arrays that all devices have, on one of this process alone."""
    return tree if self._mesh is None else jax.tree.map(lambda x: x.addressable_data(0), tree)

  def split(self, tree: types.Nest) -> types.Nest:
    """Says that arrays [S, ...] are to be in parts."""
    return tree if self._mesh is None else jax.lax.with_sharding_constraint(tree, self._sharding(_AXIS))

  def over_batch(self, function: Callable[..., Any]) -> Callable[..., Any]:
    """A `core.OverBatch`."""
    return lambda params, *arrays: self.map(function, (None, *[0] * len(arrays)), 0)(params, *arrays)

  def map(
    self, function: Callable[..., Any], in_axes: tuple[int | None, ...], out_axes: int | tuple[int, ...]
  ) -> Callable[..., Any]:
    """Each device calls `function` on its part of the arguments.

    Devices tell each other nothing, but for gradients with respect to arguments that all have: these are summed.

    Args:
      function: Its arguments are pytrees.
      in_axes: Of each argument, the axis that is in parts: that of S. None for arguments that all devices have.
      out_axes: Likewise of each result, or one for all.
    """
    if self._mesh is None:
      return function
    return self._shard_map(function, in_axes, jax.tree.map(_spec, out_axes))

  def sum(self, function: Callable[..., Any], in_axes: tuple[int | None, ...]) -> Callable[..., Any]:
    """Like `map`, and all devices have the sum of the results, with one exchange at the end."""
    if self._mesh is None:
      return function
    return self._shard_map(lambda *args: jax.lax.psum(function(*args), _AXIS), in_axes, jax.sharding.PartitionSpec())

  def mean(
    self, function: Callable[[Any, Any], Any], params: types.Nest, data: types.Nest, weights: types.Array
  ) -> types.Nest:
    """`function(params, data)`, a mean over S by `weights`: the mean of what devices find, each by its weights' sum.

    Args:
      function: Maps parameters and data [S, ...], or a part of it, to a pytree of means.
      params: Whole.
      data: [S, ...]
      weights: [S, ...], not negative.
    """
    if self._mesh is None:
      return function(params, data)
    total = jnp.sum(weights)

    def weighted(params, data, weights, total):
      share = jnp.sum(weights) / total
      return jax.tree.map(lambda x: share * x, function(params, data))

    return self.sum(weighted, in_axes=(None, 0, 0, None))(params, data, weights, total)

  def _shard_map(self, function, in_axes, out_specs):
    # Unchecked: else JAX would sum gradients inside of loops, which devices leave at different times.
    return jax.shard_map(
      function, mesh=self._mesh, in_specs=tuple(_spec(axis) for axis in in_axes), out_specs=out_specs, check_vma=False
    )

  def _sharding(self, *axes: str) -> jax.sharding.NamedSharding:
    return jax.sharding.NamedSharding(self._mesh, jax.sharding.PartitionSpec(*axes))


def _spec(axis: int | None) -> jax.sharding.PartitionSpec:
  return jax.sharding.PartitionSpec() if axis is None else jax.sharding.PartitionSpec(*[None] * axis, _AXIS)
