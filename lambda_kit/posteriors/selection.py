"""Which leaves of a parameter tree a posterior samples."""

from collections.abc import Callable, Sequence

import jax
import optax

from lambda_kit import core
from lambda_kit.models import sums


def selected_positions(params: core.Params, select: Callable[[core.Params], core.Params]) -> list[int]:
  """For each leaf of `select(params)`, its position among the leaves of `params`.

  Found by running `select` on placeholders with the leaves' shapes, so that it may look at names, shapes and types.
  """
  leaves, structure = jax.tree.flatten(params)
  placeholders = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
  positions = {id(placeholder): position for position, placeholder in enumerate(placeholders)}
  selected = jax.tree.leaves(select(jax.tree.unflatten(structure, placeholders)))
  if not selected or any(id(leaf) not in positions for leaf in selected):
    raise ValueError(f'`select` has to pick leaves of the parameters as they are, and at least one; got {selected}.')
  return [positions[id(leaf)] for leaf in selected]


def merge(params: core.Params, selected: core.Params, positions: Sequence[int]) -> core.Params:
  """Returns `params` with the leaves at `positions` replaced by those of `selected`.

  Of a sum of networks, these are the leaves of the first term; the others stay what is added to it.
  """
  if isinstance(selected, sums.Sum):
    own, *others = selected.terms
    return sums.Sum((own._replace(params=merge(params, own.params, positions)), *others))
  leaves, structure = jax.tree.flatten(params)
  for position, leaf in zip(positions, jax.tree.leaves(selected), strict=True):
    leaves[position] = leaf
  return jax.tree.unflatten(structure, leaves)


def module_names(params: core.Params) -> list[str]:
  """For each leaf, the path to it without its own name: of a Haiku parameter, the name of its module."""
  paths, _ = zip(*jax.tree_util.tree_flatten_with_path(params)[0])
  return [jax.tree_util.keystr(path[:-1], simple=True, separator='/') for path in paths]


def num_parameters(params: core.Params) -> int:
  return optax.tree.size(params)
