"""rlax, imported without distrax and TensorFlow Probability, which take as long to import as JAX itself.

rlax imports distrax at its top, but needs it in a few functions only, none of which is called here. While rlax is
imported, a stand-in takes the place of distrax. It looks everything up in the real one, which is imported then.
"""

import importlib
import sys
import types as python_types
from typing import Any

_NAME = 'distrax'
_ALIAS = 'DistributionLike'  # All that rlax reads of distrax while it is imported: a type, for annotations.


class _LateDistrax(python_types.ModuleType):
  """Stands in for distrax."""

  def __getattr__(self, name: str) -> Any:
    if sys.modules.get(_NAME) is self:  # rlax is being imported.
      if name == _ALIAS:
        return Any
      del sys.modules[_NAME]  # Else the import below would find this very module.
    return getattr(importlib.import_module(_NAME), name)


def _import_rlax() -> python_types.ModuleType:
  stand_in = _LateDistrax(_NAME)
  sys.modules.setdefault(_NAME, stand_in)  # If distrax was imported before, there is nothing to save.
  try:
    return importlib.import_module('rlax')
  finally:
    # Whoever imports distrax from here on gets the real one.
    if sys.modules.get(_NAME) is stand_in:
      del sys.modules[_NAME]


rlax = _import_rlax()
