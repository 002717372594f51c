"""Installs the Safety-Gymnasium tasks, which `pip install lambda-kit` can't, and says whether cameras work.

  lambda-kit setup

safety-gymnasium 1.0.0 is installed without its dependencies, whose pins no current Python can meet; the packages that
its tasks need are installed beside it. Packages that fit already are left alone. The built-in CMDP (gin/tasks/grid.gin)
needs none of this.
"""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

from absl import app

from lambda_kit.commands import requirements
from lambda_kit.environments import opengl


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}.')
  if requirements.later_python():
    print(f'warning: {requirements.later_python()}')
  unmet = [need for need in requirements.needs(requirements.TASKS) if not need.is_met]
  if unmet:
    _install([_wanted(need) for need in unmet])
  if not requirements.need(requirements.SAFETY_GYMNASIUM).is_met:
    _install([str(requirements.SAFETY_GYMNASIUM)], '--no-deps')
  print(f'{requirements.need(requirements.SAFETY_GYMNASIUM)} and what it needs are installed.')
  _tell_about_opengl()


def _wanted(need: requirements.Need) -> str:
  name = need.requirement.name
  if name == 'mujoco' and not requirements.later_python():  # Later versions of Python have no wheels of it.
    return f'{name}=={requirements.TESTED_MUJOCO}'
  return f'{name}{need.requirement.specifier}'


def _install(packages: list[str], *options: str) -> None:
  names = ', '.join(packages)
  site = pathlib.Path(sysconfig.get_path('purelib'))
  own = 'Make your own environment: python -m venv <folder>, and install lambda_kit there.'
  if sys.prefix == sys.base_prefix and pathlib.Path(sysconfig.get_path('stdlib'), 'EXTERNALLY-MANAGED').exists():
    sys.exit(f'error: {sys.executable} belongs to the operating system, whose packages must not be changed. {own}')
  if not os.access(site, os.W_OK):
    sys.exit(f'error: {names} cannot be installed, because {site} is not writable. {own}')
  installer = _installer()
  print(f'Installing {names} ...', flush=True)
  done = subprocess.run([*installer, *options, *packages], capture_output=True, text=True, check=False)
  if done.returncode:
    errors = [line for line in done.stderr.splitlines() if 'error' in line.lower()] or done.stderr.splitlines() or ['?']
    sys.exit(f'error: {names} could not be installed: {errors[-1].strip()}')
  importlib.invalidate_caches()


def _installer() -> list[str]:
  """This environment's pip, or uv: its environments have no pip."""
  if importlib.util.find_spec('pip'):
    return [sys.executable, '-m', 'pip', 'install', '--quiet', '--disable-pip-version-check']
  if shutil.which('uv'):
    return ['uv', 'pip', 'install', '--quiet', '--python', sys.executable]
  sys.exit(f'error: {sys.executable} has no pip, and there is no uv. Install pip: {sys.executable} -m ensurepip')


def _tell_about_opengl() -> None:
  probes = [opengl.probe(backend) for backend in opengl.BACKENDS]
  working = [probe for probe in probes if probe.works]
  if working:
    print(f'OpenGL works: {working[0].backend}, {working[0].detail}.')
    return
  print(
    'OpenGL does not work, so there are no images and no videos; tasks on vectors need none. On Debian and Ubuntu: '
    f'apt-get install --no-install-recommends {opengl.PACKAGES}'
  )
  for probe in probes:
    print(f'  {probe.backend}: {probe.detail}')
