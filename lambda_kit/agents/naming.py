"""What reports call agents and their parts.

A class may set `display_name`, an attribute or a property. Otherwise it goes by its class name. A subclass does not
inherit `display_name`, so that a new part is never mistaken for the one it was derived from.
"""

import dataclasses
import functools
from typing import Any

from lambda_kit.safety import softplus
from lambda_kit.safety import unconstrained


def name_of(part: Any) -> str:
  """The name of an object, of a class or of a function."""
  if isinstance(part, functools.partial):
    return name_of(part.func)
  kind = part if isinstance(part, type) else type(part)
  # gin passes subclasses of the same name.
  has_name = any('display_name' in vars(base) for base in kind.__mro__ if base.__name__ == kind.__name__)
  if has_name and isinstance(part.display_name, str):  # On a class it may be a property.
    return part.display_name
  return getattr(part, '__name__', kind.__name__)


def parts_of(agent: Any) -> dict[str, str]:
  """Names of the components among an agent's settings, by role; none if the agent isn't a dataclass."""
  fields = dataclasses.fields(agent) if dataclasses.is_dataclass(agent) else ()
  settings = {field.name: getattr(agent, field.name) for field in fields}
  return {
    role.removesuffix('_factory'): name_of(value)
    for role, value in settings.items()
    if not isinstance(value, (int, float, str, list, tuple, dict, type(None)))
  }


def with_solver(name: str, solver: Any) -> str:
  """The name of a model-free method with a constraint solver."""
  if isinstance(solver, unconstrained.Unconstrained):
    return name
  if isinstance(solver, softplus.SoftplusLagrangian):
    return f'{name}-Lagrangian'
  return f'{name} ({name_of(solver)})'
