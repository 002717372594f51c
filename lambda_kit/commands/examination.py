"""Finds out what is installed, what works, and the remedy for what doesn't.

Packages are imported late and one at a time, so that a missing or broken one is reported instead of ending the command.
"""

from collections.abc import Callable, Sequence
import enum
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import sys
import time
from typing import NamedTuple

from lambda_kit import resources
from lambda_kit.commands import requirements
from lambda_kit.environments import opengl

_SIMULATORS = 'simulators'
_SETUP = 'lambda-kit setup'
_TASKS_ONLY = (_SIMULATORS, 'safety-gymnasium', 'OpenGL', 'views of SG6')  # The built-in CMDP doesn't need these.


class State(enum.Enum):
  """The result of a check; the value is what is printed."""

  OK = 'ok'
  WARNING = 'warning'
  FAILS = 'fails'
  NOT_NEEDED = 'not needed'


class Finding(NamedTuple):
  """One line of the report."""

  what: str
  state: State
  detail: str
  remedy: str = ''  # For a failure.


def examine(contact_sheet: pathlib.Path | None) -> list[Finding]:
  """Checks everything that a run needs, and draws the views of SG6 into `contact_sheet`."""
  findings = [
    Finding('machine', State.OK, f'{platform.platform()}, {os.cpu_count()} cores, {_memory()}'),
    _python(),
    _packages('packages', requirements.needs()),
    _attempt('jax', _jax, _reinstall('jax')),
    _attempt('ffmpeg', _ffmpeg, _reinstall('imageio-ffmpeg')),
  ]
  simulators = _packages(
    _SIMULATORS, [*requirements.needs(requirements.TASKS), requirements.need(requirements.SAFETY_GYMNASIUM)], _SETUP
  )
  findings.append(simulators)
  if simulators.state is not State.FAILS:
    findings.append(_simulation())
    imports = findings[-1].state is not State.FAILS
    findings += _backends(draw=imports)
    if contact_sheet is not None and imports:
      findings.append(
        _attempt(
          'views of SG6', lambda: _draw(contact_sheet), 'another file with --contact_sheet, or none: --contact_sheet='
        )
      )
  return findings


def verdict(findings: Sequence[Finding]) -> tuple[str, bool]:
  """One sentence about all findings, and whether everything works."""
  failing = [finding.what for finding in findings if finding.state is State.FAILS]
  if failing:
    built_in = (
      ' The built-in CMDP (gin/tasks/grid.gin) runs without them.'
      if all(what.startswith(_TASKS_ONLY) for what in failing)
      else ''
    )
    return f'not ready: {", ".join(failing)}. The remedies are above.{built_in}', False
  warnings = ', '.join(finding.what for finding in findings if finding.state is State.WARNING)
  return f'everything works, with a warning about {warnings}.' if warnings else 'everything works.', True


def _python() -> Finding:
  """Only warns of later versions: with one that is too old, no command starts."""
  text = f'{platform.python_version()}, {sys.executable}'
  later = requirements.later_python()
  return Finding('python', State.WARNING if later else State.OK, f'{text}. {later}' if later else text)


def _packages(what: str, needs: Sequence[requirements.Need], remedy: str = '') -> Finding:
  unmet = [need for need in needs if not need.is_met]
  if unmet:
    wanted = ' '.join(f"'{need.requirement.name}{need.requirement.specifier}'" for need in unmet)
    return Finding(what, State.FAILS, '; '.join(map(str, unmet)), remedy or _clone_first(f'pip install {wanted}'))
  return Finding(what, State.OK, ', '.join(map(str, needs)))


def _reinstall(package: str) -> str:
  return _clone_first(f'pip install --force-reinstall {package}')


def _clone_first(remedy: str) -> str:
  return f'make setup, or {remedy}' if resources.is_clone() else remedy


def _attempt(what: str, check: Callable[[], str], remedy: str) -> Finding:
  try:
    return Finding(what, State.OK, check())
  except Exception as error:
    return Finding(what, State.FAILS, f'{type(error).__name__}: {error}', remedy)


def _memory() -> str:
  try:
    return f'{os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30:.0f} GiB of memory'
  except (ValueError, OSError):
    return 'memory unknown'


def _jax() -> str:
  import jax
  import jax.numpy as jnp

  size = 1024
  product = jax.jit(lambda x: x @ x)
  matrix = jnp.ones((size, size), jnp.float32)
  product(matrix).block_until_ready()
  started = time.perf_counter()
  for _ in range(5):
    product(matrix).block_until_ready()
  rate = 5 * 2 * size**3 / (time.perf_counter() - started) / 1e9
  return f'{", ".join(str(device) for device in jax.devices())}; {rate:.0f} GFLOP/s in float32 products'


def _simulation() -> Finding:
  finding = _attempt('safety-gymnasium', _import_simulators, _SETUP)
  warning = requirements.other_mujoco()
  if finding.state is State.FAILS or not warning:
    return finding
  return finding._replace(state=State.WARNING, detail=f'{finding.detail}. {warning}')


def _import_simulators() -> str:
  from lambda_kit.environments.safety_gym import loading

  loading.safety_gymnasium()
  numpy = importlib.metadata.version('numpy')
  return f'imports; MuJoCo {opengl.import_mujoco().__version__} under numpy {numpy} draws all objects'


def _ffmpeg() -> str:
  import imageio_ffmpeg

  return imageio_ffmpeg.get_ffmpeg_version()


def _draw(path: pathlib.Path) -> str:
  from lambda_kit.commands import sg6_views

  return sg6_views.draw_contact_sheet(path)


def _backends(draw: bool) -> list[Finding]:
  """One working back end is enough; the others are then not needed."""
  found = [_backend(backend, draw) for backend in opengl.BACKENDS]
  if all(finding.state is State.FAILS for finding in found):
    return found
  return [
    finding._replace(state=State.NOT_NEEDED, remedy='') if finding.state is State.FAILS else finding
    for finding in found
  ]


def _backend(backend: str, draw: bool) -> Finding:
  what, all_packages = f'OpenGL by {backend}', f'apt-get install --no-install-recommends {opengl.PACKAGES}'
  probe = opengl.probe(backend)
  if not probe.works:
    cause, _, remedy = probe.detail.partition('; remedy: ')
    return Finding(what, State.FAILS, cause, remedy or all_packages)
  if not draw:
    return Finding(what, State.OK, probe.detail)
  command = [sys.executable, '-c', 'from lambda_kit.commands import sg6_views; sg6_views.print_render_time()']
  done = subprocess.run(command, env=dict(os.environ, MUJOCO_GL=backend), capture_output=True, text=True, check=False)
  try:
    seconds = json.loads(done.stdout.splitlines()[-1])
  except (IndexError, json.JSONDecodeError):
    return Finding(what, State.FAILS, f'{probe.detail}; rendering failed: {done.stderr.strip()[-300:]}', all_packages)
  return Finding(what, State.OK, f'{probe.detail}; {seconds * 1e3:.1f} ms for a 64x64 picture of PointGoal1')
