"""Refuses macros that lead back to themselves, or that stand for more values than fit into memory.

Forty lines such as `A = [%B, %B]` stand for 2^40 values. What a macro stands for is counted, without making it.
"""

from collections.abc import Mapping

from lambda_kit.config import axes
from lambda_kit.config import gin_internals
from lambda_kit.config import layers

_MAX_VALUES = 100_000
_MAX_DEPTH = 50  # Macros in macros.

Key = gin_internals.Key


def check(bindings: Mapping[Key, layers.Binding]) -> None:
  """Raises a `ConfigurationError` that names the binding."""
  known: dict[Key, tuple[int, int]] = {}

  def measure(key: Key, depth: int) -> tuple[int, int]:
    """How many values a binding stands for, and how deep its macros are nested."""
    if key not in known:
      values, nested = 1, depth
      for reference in gin_internals.references(bindings[key].value) if depth <= _MAX_DEPTH else ():
        macro = Key('/'.join(reference.scopes), gin_internals.MACRO, 'value')
        if gin_internals.target(reference) == gin_internals.MACRO and macro in bindings:
          inner_values, inner_depth = measure(macro, depth + 1)
          values, nested = values + inner_values, max(nested, inner_depth)
      _refuse_if(nested > _MAX_DEPTH, bindings[key], 'leads back to itself, or through too many macros')
      _refuse_if(values > _MAX_VALUES, bindings[key], f'stands for more than {_MAX_VALUES:,} values')
      known[key] = values, nested - depth
    values, nested = known[key]
    return values, nested + depth

  for key in bindings:
    measure(key, 0)


def _refuse_if(condition: bool, binding: layers.Binding, what: str) -> None:
  if condition:
    raise axes.ConfigurationError(f'{binding.source}: {binding.key} {what}. Write its values out, or use fewer.')
