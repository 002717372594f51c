"""Data parallelism: all devices have the parameters, and each has a slice of the sequences and start states.

Batches are sharded, so that the compiler by itself distributes sums and maps over B or S. It does badly on loops, where
it would exchange gradients at every step, and on selection, where it would exchange all trajectories. There `Devices`
makes each device compute on its own slice. Devices exchange complete gradients, and sums of losses and statistics.
Noise is drawn for all slices at once, so that updates are those of one device, up to the order of sums.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lambda_kit import types

_AXIS = 'devices'


class Devices:
  """One device or several. With one, functions run unchanged, and arrays stay where they are.

  Args:
    count: Number of devices; None for all, including those of other hosts.
  """

  def __init__(self, count: int | None = 1):
    available = jax.devices()
    count = len(available) if count is None else count
    if not 1 <= count <= len(available):
      raise ValueError(
        f'LambdaAgent.num_devices = {count}, and JAX sees {len(available)}: {available}. Bind at most as many, '
        'or None for all.'
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
    """How batches [B, ...] are placed; None for JAX's default."""
    return None if self._mesh is None else _sharding(self._mesh, _AXIS)

  def jit(self, function: Callable[..., Any], donate_argnums: tuple[int, ...] = ()) -> Callable[..., Any]:
    """Compiles a function with results on all devices."""
    if self._mesh is None:
      return jax.jit(function, donate_argnums=donate_argnums)
    return jax.jit(function, donate_argnums=donate_argnums, out_shardings=_sharding(self._mesh))

  def replicate(self, tree: types.Nest) -> types.Nest:
    """Copies arrays to all devices."""
    if self._mesh is None:
      return jax.tree.map(jnp.copy, tree)
    return self.jit(lambda tree: jax.tree.map(jnp.copy, tree))(jax.tree.map(np.asarray, tree))

  def local(self, tree: types.Nest) -> types.Nest:
    """One local copy of arrays that all devices have."""
    return tree if self._mesh is None else jax.tree.map(lambda x: x.addressable_data(0), tree)

  def split(self, tree: types.Nest) -> types.Nest:
    """Tells the compiler to shard arrays [S, ...]."""
    return tree if self._mesh is None else jax.lax.with_sharding_constraint(tree, _sharding(self._mesh, _AXIS))

  def over_batch(self, function: Callable[..., Any]) -> Callable[..., Any]:
    """A `core.OverBatch`."""
    return lambda params, *arrays: self.map(function, (None, *[0] * len(arrays)), 0)(params, *arrays)

  def map(
    self, function: Callable[..., Any], in_axes: tuple[int | None, ...], out_axes: int | tuple[int, ...]
  ) -> Callable[..., Any]:
    """Each device calls `function` on its slice of the arguments.

    Devices exchange nothing except gradients with respect to arguments that all of them have: these are summed.

    Args:
      function: Its arguments are pytrees.
      in_axes: For each argument, the axis that is sliced, i.e. that of S. None for arguments that all devices have.
      out_axes: The same for each result, or one axis for all.
    """
    if self._mesh is None:
      return function
    return self._shard_map(function, in_axes, jax.tree.map(_spec, out_axes))

  def sum(self, function: Callable[..., Any], in_axes: tuple[int | None, ...]) -> Callable[..., Any]:
    """Like `map`, but all devices get the sum of the results, with one exchange at the end."""
    if self._mesh is None:
      return function
    return self._shard_map(lambda *args: jax.lax.psum(function(*args), _AXIS), in_axes, jax.sharding.PartitionSpec())

  def mean(
    self, function: Callable[[Any, Any], Any], params: types.Nest, data: types.Nest, weights: types.Array
  ) -> types.Nest:
    """`function(params, data)`, a mean over S by `weights`: the devices' means, weighted by their sums of weights.

    Args:
      function: Maps parameters and data [S, ...], or a slice of it, to a pytree of means.
      params: On all devices.
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
    # Unchecked: otherwise JAX would sum gradients inside loops, which devices leave at different times.
    return jax.shard_map(
      function, mesh=self._mesh, in_specs=tuple(_spec(axis) for axis in in_axes), out_specs=out_specs, check_vma=False
    )


def _sharding(mesh: jax.sharding.Mesh, *axes: str) -> jax.sharding.NamedSharding:
  return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))


def _spec(axis: int | None) -> jax.sharding.PartitionSpec:
  return jax.sharding.PartitionSpec() if axis is None else jax.sharding.PartitionSpec(*[None] * axis, _AXIS)
