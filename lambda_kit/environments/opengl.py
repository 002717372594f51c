"""Headless OpenGL: finds a back end that works, and keeps one context for the process.

`python -m lambda_kit.environments.opengl` tries all back ends and prints what they say.
"""

import atexit
from collections.abc import Iterator
import contextlib
import importlib
import json
import logging
import os
import subprocess
import sys
from typing import Any, NamedTuple
from unittest import mock

from lambda_kit import errors

BACKENDS = ('egl', 'osmesa')
PACKAGES = 'libegl1 libgl1-mesa-dri libopengl0 libosmesa6'

# A fragment of PyOpenGL's or MuJoCo's error, its cause, and the packages to install.
_KNOWN_FAILURES = (
  ('eglQueryString', 'the EGL library is missing', 'libegl1'),
  ('Cannot initialize a EGL device display', 'EGL finds no driver', 'libgl1-mesa-dri'),
  ('glGetError', 'the OpenGL library is missing', 'libosmesa6 libopengl0'),
  ('OSMesa', 'the OSMesa library is missing', 'libosmesa6'),
  ('OpenGL platform library has not been loaded', 'the OpenGL library is missing', 'libopengl0'),
)


class OpenGLError(errors.UserError):
  """No back end can render. The message holds the remedy."""


class Probe(NamedTuple):
  """The result of trying a back end in its own process."""

  backend: str
  works: bool
  detail: str  # The renderer's name, or what failed and its remedy.


def candidates() -> tuple[str, ...]:
  """The back ends to try, in order of preference: the one that MUJOCO_GL names, or all."""
  wanted = os.environ.get('MUJOCO_GL', '').lower().strip()
  if not wanted:
    return BACKENDS
  if wanted not in BACKENDS:
    raise OpenGLError(
      f'MUJOCO_GL={wanted} is not a headless back end. Unset it, or set it to one of: {", ".join(BACKENDS)}.'
    )
  return (wanted,)


def explain(error: BaseException | str) -> str:
  """Turns a back end's error into its cause and remedy."""
  text = str(error)
  for fragment, cause, packages in _KNOWN_FAILURES:
    if fragment in text:
      return f'{cause}; remedy: apt-get install --no-install-recommends {packages}'
  return f'{text.splitlines()[0] if text else "unknown failure"}'


_context: Any = None
_backend = ''
_target: Any = None  # The renderer whose buffer is being drawn into.


def make_current() -> str:
  """Makes the process's only OpenGL context current, and returns its back end. The first call creates it.

  All cameras of a process share one context: with a second one, pictures came back as garbage.
  """
  global _context, _backend, _target
  if _context is None:
    # To be set before the driver loads. A 64x64 picture is one tile, so more threads only add hand-overs; 0 rasterises
    # in the calling thread.
    os.environ.setdefault('LP_NUM_THREADS', '0')
    logging.getLogger('OpenGL').setLevel(logging.WARNING)  # It logs every optional module that is missing.
    failures = []
    for backend in candidates():
      try:
        module = importlib.import_module(f'mujoco.{backend}')
        # `GLContext.__del__` reads it, even if `__init__` failed before setting it.
        module.GLContext._context = None
        context = module.GLContext(64, 64)
        context.make_current()
      except Exception as error:
        # The libraries raise AttributeError, ImportError, RuntimeError or GLError depending on what is missing.
        failures.append(f'  {backend}: {explain(error)}')
        _forget_pyopengl()
        continue
      _context, _backend = context, backend
      atexit.register(free)
      break
    else:
      raise OpenGLError(
        'No OpenGL back end works, so cameras cannot render:\n'
        + '\n'.join(failures)
        + f'\nOn Debian and Ubuntu one command installs all: apt-get install --no-install-recommends '
        f'{PACKAGES}\nTasks on vector observations need no OpenGL.'
      )
  _context.make_current()
  _target = None
  return _backend


def draw_into(renderer: Any) -> None:
  """Makes the off-screen buffer of an `MjrContext` the target of what is drawn next; each camera has one."""
  global _target
  if _target is renderer:
    return
  make_current()
  mujoco = import_mujoco()
  mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, renderer)
  _target = renderer


class SharedContext:
  """The process's context, with the interface that gymnasium's viewers expect of their own."""

  def __init__(self, width: int = 0, height: int = 0):
    del width, height
    make_current()

  def make_current(self) -> None:
    make_current()

  def free(self) -> None:
    """Does nothing: others may still be drawing."""


@contextlib.contextmanager
def shared_viewers() -> Iterator[None]:
  """While active, the viewers that gymnasium makes draw into the process's context."""
  make_current()  # Here, since gymnasium would hide which library is missing.
  rendering = importlib.import_module('gymnasium.envs.mujoco.mujoco_rendering')
  renderers = rendering._ALL_RENDERERS
  with mock.patch.dict(renderers, dict.fromkeys(renderers, SharedContext)):
    yield


def free() -> None:
  """Frees the context. Left to the garbage collector, it would print an error at exit."""
  global _context, _target
  if _context is not None:
    _context.free()
    _context = _target = None


def _forget_pyopengl() -> None:
  """PyOpenGL binds to one platform at import; after a failure it has to be forgotten before the next can be tried."""
  os.environ.pop('PYOPENGL_PLATFORM', None)
  for name in list(sys.modules):
    if name == 'OpenGL' or name.startswith(('OpenGL.', 'mujoco.egl', 'mujoco.osmesa')):
      del sys.modules[name]


def probe(backend: str, timeout: float = 60.0) -> Probe:
  """Tries a back end in its own process."""
  command = [sys.executable, '-m', 'lambda_kit.environments.opengl', '--probe']
  environment = dict(os.environ, MUJOCO_GL=backend)
  environment.pop('PYOPENGL_PLATFORM', None)
  try:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
  except subprocess.TimeoutExpired:
    return Probe(backend, False, f'no answer within {timeout:.0f} s')
  try:
    return Probe(*json.loads(done.stdout.splitlines()[-1]))
  except (IndexError, json.JSONDecodeError):
    lines = done.stderr.strip().splitlines()
    return Probe(backend, False, f'the process died: {lines[-1] if lines else done.returncode}')


def _probe_here() -> Probe:
  backend = candidates()[0]
  try:
    import_mujoco()
    make_current()
    from OpenGL import GL

    return Probe(backend, True, GL.glGetString(GL.GL_RENDERER).decode())
  except OpenGLError as error:
    return Probe(backend, False, str(error).splitlines()[1].strip().removeprefix(f'{backend}: '))
  except ImportError as error:
    return Probe(backend, False, f'{error}; remedy: lambda-kit setup, or make setup in a clone')


def import_mujoco() -> Any:
  """Imports MuJoCo without letting it choose an OpenGL library: without one, that fails at import."""
  if 'mujoco' in sys.modules:
    return sys.modules['mujoco']
  chosen = os.environ.get('MUJOCO_GL')
  os.environ['MUJOCO_GL'] = 'disable'
  try:
    return importlib.import_module('mujoco')
  finally:
    if chosen is None:
      del os.environ['MUJOCO_GL']
    else:
      os.environ['MUJOCO_GL'] = chosen


def main(arguments: list[str]) -> int:
  if '--probe' in arguments:
    print(json.dumps(_probe_here()))
    return 0
  probes = [probe(backend) for backend in BACKENDS]
  if '--quiet' not in arguments:
    for each in probes:
      print(f'{each.backend:8s}{"works" if each.works else "fails"}: {each.detail}')
  return 0 if any(each.works for each in probes) else 1


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
