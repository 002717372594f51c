"""rlax, imported without distrax and TensorFlow Probability, which take as long to import as JAX itself.

rlax imports distrax at module level, but needs it in a few functions only, none of which is called here. During the
import of rlax a stand-in takes the place of distrax. Later lookups on it import the real one.
"""

import importlib
import sys
import types as python_types
from typing import Any

_NAME = 'distrax'
_ALIAS = 'DistributionLike'  # All that rlax reads from distrax during its import: a type, for annotations.


class _LateDistrax(python_types.ModuleType):
  """Stands in for distrax."""

  def __getattr__(self, name: str) -> Any:
    if sys.modules.get(_NAME) is self:  # rlax is being imported.
      if name == _ALIAS:
        return Any
      del sys.modules[_NAME]  # Otherwise the import below would find this stand-in.
    return getattr(importlib.import_module(_NAME), name)


def _import_rlax() -> python_types.ModuleType:
  stand_in = _LateDistrax(_NAME)
  sys.modules.setdefault(_NAME, stand_in)  # If distrax is loaded already, there is nothing to save.
  try:
    return importlib.import_module('rlax')
  finally:
    # Later imports get the real distrax.
    if sys.modules.get(_NAME) is stand_in:
      del sys.modules[_NAME]


rlax = _import_rlax()
