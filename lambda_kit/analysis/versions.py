"""Which versions a run was made with: `versions.json` in its workdir.

`mujoco` is None if MuJoCo doesn't simulate the task; others are None if they are not installed. A run that goes on with
other versions records these, and what it had before stays in versions.0.json, versions.1.json, ...
"""

import importlib.metadata
import json
import pathlib
import platform

from lambda_kit import errors
from lambda_kit import files
from lambda_kit.analysis.metrics import physics

_FILE = 'versions.json'
_PACKAGES = ('jax', 'numpy', 'gymnasium', 'safety-gymnasium')

Versions = dict[str, str | None]  # By name.


class VersionsError(errors.UserError):
  """A record of versions can't be read."""


def current(mujoco_version: str | None) -> Versions:
  """The versions in use.

  Args:
    mujoco_version: As the run's environment tells it.
  """
  packages = {name: _installed(name) for name in _PACKAGES}
  return dict(python=platform.python_version(), **packages, mujoco=mujoco_version, lambda_kit=_installed('lambda-kit'))


def read(folder: pathlib.Path, number: int | None = None) -> Versions | None:
  """The versions that a run has recorded; None for one that is older than such records.

  Args:
    folder: The workdir.
    number: Of an earlier record. Default: the last one.

  Raises:
    VersionsError: The file is damaged.
  """
  path = folder / (_FILE if number is None else _earlier(number))
  if not path.exists():
    return None
  try:
    found = json.loads(path.read_text('utf-8'))
    mujoco = found['mujoco']
    if not (mujoco is None or isinstance(mujoco, str)):
      raise ValueError(f'its MuJoCo is {mujoco!r}')
  except (ValueError, KeyError, TypeError) as error:
    raise VersionsError(f'{path.name} is damaged ({type(error).__name__}: {error}), so nobody knows under which MuJoCo '
                        'it ran') from error
  return found


def read_earlier(folder: pathlib.Path) -> list[Versions]:
  """Those that a run had before it went on with others, in order."""
  return [read(folder, number) for number in range(_count_earlier(folder))]


def record(folder: pathlib.Path, versions: Versions, before: Versions | None = None) -> None:
  """Writes the versions of a run.

  Args:
    folder: The workdir.
    versions: Those in use.
    before: Of a run that goes on with others: those that it had, which stay in a file of their own.
  """
  if before is not None:
    _write(folder / _earlier(_count_earlier(folder)), before)
  _write(folder / _FILE, versions)


def differences(before: Versions, after: Versions) -> list[str]:
  """What changed, in words."""
  return [f'{name} {after.get(name)} instead of {before[name]}' for name in before if before[name] != after.get(name)]


def same_physics(before: Versions, after: Versions) -> bool:
  """Whether a run that goes on is simulated as it was. A task that MuJoCo didn't simulate never changes so."""
  versions = before['mujoco'], after['mujoco']
  return None in versions or len(set(map(physics.of_version, versions))) == 1


def _write(path: pathlib.Path, versions: Versions) -> None:
  files.write_atomically(path, json.dumps(versions, indent=1) + '\n')


def _earlier(number: int) -> str:
  return f'versions.{number}.json'


def _count_earlier(folder: pathlib.Path) -> int:
  return len(list(folder.glob('versions.*.json')))


def _installed(package: str) -> str | None:
  try:
    return importlib.metadata.version(package)
  except importlib.metadata.PackageNotFoundError:
    return None
