"""The packages that lambda_kit needs, from its metadata, and which of them are installed. Imports none of them."""

import importlib.metadata
import sys
import tomllib
from typing import NamedTuple

from packaging import requirements
from packaging import version as versions

from lambda_kit import resources

TASKS = 'tasks'  # The extra of the Safety-Gymnasium tasks.
# In no metadata, since its own pins can't be met: it is installed without its dependencies.
SAFETY_GYMNASIUM = requirements.Requirement('safety-gymnasium==1.0.0')
# The version of MuJoCo whose physics are those of the published results.
TESTED_MUJOCO = '3.3.7'
_TESTED_PYTHONS = ('3.11', '3.13')


class Need(NamedTuple):
  """A required package."""

  requirement: requirements.Requirement
  installed: str | None  # The installed version; None if it is missing.

  @property
  def is_met(self) -> bool:
    return self.installed is not None and self.requirement.specifier.contains(self.installed, prereleases=True)

  def __str__(self) -> str:
    name, wanted = self.requirement.name, str(self.requirement.specifier)
    if self.installed is None:
      return f'{name} is missing'
    return f'{name} {self.installed}' if self.is_met else f'{name} is {self.installed}, but lambda_kit needs {wanted}'


def needs(extra: str = '') -> list[Need]:
  """Packages that lambda_kit needs, or those that an extra adds."""
  return [
    need(requirement)
    for requirement in _listed(extra)
    if requirement.marker is None or requirement.marker.evaluate({'extra': extra})
  ]


def need(requirement: requirements.Requirement) -> Need:
  try:
    return Need(requirement, importlib.metadata.version(requirement.name))
  except importlib.metadata.PackageNotFoundError:
    return Need(requirement, None)


def later_python() -> str:
  """A warning if this Python is later than the tested ones; else ''."""
  python = f'{sys.version_info.major}.{sys.version_info.minor}'
  if versions.Version(python) <= versions.Version(_TESTED_PYTHONS[1]):
    return ''
  return (
    f'Python {python} is later than those that were tested, {" to ".join(_TESTED_PYTHONS)}, and MuJoCo '
    f'{TESTED_MUJOCO} has no wheel for it; later ones simulate contacts a little differently.'
  )


def other_mujoco() -> str:
  """A warning if MuJoCo's minor version is not the tested one, and so its physics may differ; else ''."""
  installed = need(requirements.Requirement('mujoco')).installed
  if installed is None or versions.Version(installed).release[:2] == versions.Version(TESTED_MUJOCO).release[:2]:
    return ''
  return f'Scores are comparable under MuJoCo {TESTED_MUJOCO}, not under {installed}'


def _listed(extra: str) -> list[requirements.Requirement]:
  if resources.is_clone():  # The metadata of an editable installation may be out of date.
    project = tomllib.loads((resources.root() / 'pyproject.toml').read_text('utf-8'))['project']
    lines = project['optional-dependencies'][extra] if extra else project['dependencies']
    return [requirements.Requirement(line) for line in lines]
  listed = [requirements.Requirement(line) for line in importlib.metadata.requires('lambda-kit') or ()]
  if not extra:
    return [requirement for requirement in listed if 'extra' not in str(requirement.marker)]
  return [requirement for requirement in listed if f'extra == "{extra}"' in str(requirement.marker)]
