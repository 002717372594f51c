"""Imports safety-gymnasium 1.0.0 on a current Python, past the obstacles in its import.

  * Its dataclasses have arrays as defaults, which Python 3.11 rejects: they become default factories.
  * It imports gymnasium_robotics, whose pins can't be met here, for multi-agent tasks only: an empty stand-in serves.
  * MuJoCo chooses an OpenGL library at import, and fails where there is none; gymnasium's viewers open contexts of
    their own, whose pictures come back as garbage when there are two. Both are sent to `opengl`.
"""

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import sys
import types as python_types
from typing import Any, Iterator

from lambda_kit.environments import opengl

INSTALL = ("pip install 'lambda-kit[tasks]' && pip install --no-deps safety-gymnasium==1.0.0, "
           'or `make setup` in a clone (Python 3.11)')
_STAND_IN = 'gymnasium_robotics.envs.multiagent_mujoco.mujoco_multi'


class SimulatorMissing(ImportError):
  """safety-gymnasium or MuJoCo is not installed. The message holds the remedy."""


@functools.cache
def safety_gymnasium() -> Any:
  """Returns the imported package."""
  try:
    mujoco = opengl.import_mujoco()
    with _array_defaults(), _robotics_stand_in():
      package = importlib.import_module('safety_gymnasium')
    from gymnasium.envs.mujoco import mujoco_rendering  # pylint: disable=g-import-not-at-top
  except ImportError as error:
    raise SimulatorMissing(f'The Safety-Gymnasium tasks are not installed here ({error}). Install them: {INSTALL}. '
                           'The built-in CMDP (gin/tiny_*.gin) needs no simulator.') from error
  if mujoco.MjvOption().geomgroup.strides != (1,):
    import numpy as np  # pylint: disable=g-import-not-at-top
    raise SimulatorMissing(
        f'MuJoCo {mujoco.__version__} under numpy {np.__version__} hands out arrays with zero strides: hazards, vases '
        "and goals would silently vanish from camera images. Install numpy<2 (pip install 'numpy==1.26.4').")
  for name in mujoco_rendering._ALL_RENDERERS:  # pylint: disable=protected-access
    mujoco_rendering._ALL_RENDERERS[name] = opengl.SharedContext  # pylint: disable=protected-access
  return package


@contextlib.contextmanager
def _array_defaults() -> Iterator[None]:
  original = dataclasses.dataclass

  def dataclass(cls=None, /, **options):
    def decorate(cls):
      for name in cls.__dict__.get('__annotations__', {}):
        default = cls.__dict__.get(name)
        # The rule of Python 3.11 itself: what can't be hashed can't be a default.
        if default is not None and not isinstance(default, dataclasses.Field) and default.__class__.__hash__ is None:
          setattr(cls, name, dataclasses.field(default_factory=functools.partial(_same, default)))
      return original(cls, **options)
    return decorate if cls is None else decorate(cls)

  dataclasses.dataclass = dataclass
  try:
    yield
  finally:
    dataclasses.dataclass = original


def _same(value: Any) -> Any:
  return value


@contextlib.contextmanager
def _robotics_stand_in() -> Iterator[None]:
  if importlib.util.find_spec('gymnasium_robotics') is not None:
    yield
    return
  names = ['.'.join(_STAND_IN.split('.')[:depth]) for depth in range(1, 5)]
  for name in names:
    sys.modules[name] = python_types.ModuleType(name)
    sys.modules[name].__path__ = []
  sys.modules[_STAND_IN].MultiAgentMujocoEnv = object
  try:
    yield
  finally:
    for name in names:
      del sys.modules[name]
