"""Versions that a run uses.

`mujoco` is None if MuJoCo doesn't simulate the task; others are None if they are not installed.
"""

import importlib.metadata
import platform

from lambda_kit.analysis.metrics import physics

_PACKAGES = ('jax', 'numpy', 'gymnasium', 'safety-gymnasium')

Versions = dict[str, str | None]  # By name.


def current(mujoco_version: str | None) -> Versions:
  """Returns the versions in use.

  Args:
    mujoco_version: From the run's environment.
  """
  packages = {name: _installed(name) for name in _PACKAGES}
  return dict(python=platform.python_version(), **packages, mujoco=mujoco_version, lambda_kit=_installed('lambda-kit'))


def differences(before: Versions, after: Versions) -> list[str]:
  """Describes what changed."""
  return [f'{name} {after.get(name)} instead of {before[name]}' for name in before if before[name] != after.get(name)]


def same_physics(before: Versions, after: Versions) -> bool:
  """Whether a resumed run is simulated as before. Tasks that MuJoCo doesn't simulate always are."""
  versions = before['mujoco'], after['mujoco']
  return None in versions or len(set(map(physics.of_version, versions))) == 1


def _installed(package: str) -> str | None:
  try:
    return importlib.metadata.version(package)
  except importlib.metadata.PackageNotFoundError:
    return None
