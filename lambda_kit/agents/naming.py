"""What reports call agents and their parts.

A class says so by `display_name`, an attribute or a property; without it, its own name counts. So does the name of a
class that inherits from one that has it: a new part is never taken for the part that it was made from.
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
  # Gin passes subclasses of the same name.
  has_name = any('display_name' in vars(base) for base in kind.__mro__ if base.__name__ == kind.__name__)
  if has_name and isinstance(part.display_name, str):  # Not so of a class where it is a property.
    return part.display_name
  return getattr(part, '__name__', kind.__name__)


def parts_of(agent: Any) -> dict[str, str]:
  """Names of the components among an agent's settings, by role; none of an agent that isn't a dataclass."""
  settings = (
    {field.name: getattr(agent, field.name) for field in dataclasses.fields(agent)}
    if (dataclasses.is_dataclass(agent))
    else {}
  )
  return {
    role.removesuffix('_factory'): name_of(value)
    for role, value in settings.items()
    if not isinstance(value, (int, float, str, list, tuple, dict, type(None)))
  }


def with_solver(name: str, solver: Any) -> str:
  """The name of a model-free method, which is called after what it does about constraints."""
  if isinstance(solver, unconstrained.Unconstrained):
    return name
  if isinstance(solver, softplus.SoftplusLagrangian):
    return f'{name}-Lagrangian'
  return f'{name} ({name_of(solver)})'
