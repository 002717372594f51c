"""What is installed, what works, and the remedy for what doesn't."""

import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import sys
import time
from typing import Callable, NamedTuple

import numpy as np
from PIL import Image
from PIL import ImageDraw
from PIL import ImageFont

from lambda_kit.environments import opengl
from lambda_kit.environments.safety_gym import environment as environment_lib
from lambda_kit.environments.safety_gym import loading

# The tasks of SG6, and the options that make each of its pictures.
SG6_VIEWS = {
    'PointGoal1': dict(task='SafetyPointGoal1-v0'),
    'PointGoal2': dict(task='SafetyPointGoal2-v0'),
    'CarGoal1': dict(task='SafetyCarGoal1-v0'),
    'PointPush1': dict(task='SafetyPointPush1-v0'),
    'PointButton1': dict(task='SafetyPointButton1-v0'),
    'DoggoGoal1': dict(task='SafetyDoggoGoal1-v0'),
    'ObservablePointPush1': dict(task='SafetyPointPush1-v0', box_alpha=0.5),
}
_LEARNING = ('jax', 'jaxlib', 'dm-haiku', 'optax', 'rlax', 'distrax', 'numpy', 'scipy', 'gin-config', 'dm-env')
_SIMULATING = ('mujoco', 'gymnasium', 'safety-gymnasium', 'pyopengl')
_REPORTING = ('tensorboardX', 'matplotlib', 'rich', 'imageio-ffmpeg')


class Finding(NamedTuple):
  """One line of the report."""
  what: str
  works: bool
  detail: str


def examine(contact_sheet: pathlib.Path | None) -> list[Finding]:
  """Looks at everything that a run needs; draws the views of SG6 into `contact_sheet`."""
  findings = [Finding('machine', True, f'{platform.platform()}, {os.cpu_count()} cores, {_memory()}'), _python()]
  findings += [_packages('learning', _LEARNING, 'make setup, or pip install -e .'),
               _packages('simulators', _SIMULATING, loading.INSTALL),
               _packages('reports', _REPORTING, 'make setup, or pip install -e .')]
  findings += [_attempt('jax', _jax), _attempt('safety-gymnasium', _import_simulators), _attempt('ffmpeg', _ffmpeg)]
  findings += [_backend(backend) for backend in opengl.BACKENDS]
  if contact_sheet is not None and all(finding.works for finding in findings if finding.what == 'safety-gymnasium'):
    findings.append(_attempt('views of SG6', lambda: _draw_contact_sheet(contact_sheet)))
  return findings


def healthy(findings: list[Finding]) -> bool:
  """Whether runs work: one OpenGL back end is enough."""
  backends = [finding for finding in findings if finding.what.startswith('OpenGL')]
  others = [finding for finding in findings if finding not in backends]
  return all(finding.works for finding in others) and any(finding.works for finding in backends)


def _attempt(what: str, check: Callable[[], str]) -> Finding:
  try:
    return Finding(what, True, check())
  except Exception as error:  # pylint: disable=broad-except
    return Finding(what, False, f'{type(error).__name__}: {error}')


def _memory() -> str:
  try:
    return f'{os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30:.0f} GiB of memory'
  except (ValueError, OSError):
    return 'memory unknown'


def _python() -> Finding:
  version = platform.python_version()
  if sys.version_info[:2] == (3, 11):
    return Finding('python', True, version)
  return Finding('python', False, f'{version}; the Safety-Gymnasium tasks need 3.11 (mujoco 2.3.3 has no wheels for '
                 'later ones). Remedy: PYTHON=python3.11 make setup. Everything else works.')


def _packages(what: str, names: tuple[str, ...], remedy: str) -> Finding:
  present, missing = [], []
  for name in names:
    try:
      present.append(f'{name} {importlib.metadata.version(name)}')
    except importlib.metadata.PackageNotFoundError:
      missing.append(name)
  if missing:
    return Finding(what, False, f'missing: {", ".join(missing)}. Remedy: {remedy}')
  return Finding(what, True, ', '.join(present))


def _jax() -> str:
  import jax  # pylint: disable=g-import-not-at-top
  import jax.numpy as jnp  # pylint: disable=g-import-not-at-top
  size = 1024
  product = jax.jit(lambda x: x @ x)
  matrix = jnp.ones((size, size), jnp.float32)
  product(matrix).block_until_ready()
  started = time.perf_counter()
  for _ in range(5):
    product(matrix).block_until_ready()
  rate = 5 * 2 * size**3 / (time.perf_counter() - started) / 1e9
  return f'{", ".join(str(device) for device in jax.devices())}; {rate:.0f} GFLOP/s in float32 products'


def _import_simulators() -> str:
  loading.safety_gymnasium()
  return f'imports; MuJoCo {opengl.import_mujoco().__version__} under numpy {np.__version__} draws all objects'


def _ffmpeg() -> str:
  import imageio_ffmpeg  # pylint: disable=g-import-not-at-top
  return imageio_ffmpeg.get_ffmpeg_version()


def _backend(backend: str) -> Finding:
  probe = opengl.probe(backend)
  if not probe.works:
    return Finding(f'OpenGL by {backend}', False, probe.detail)
  command = [sys.executable, '-c', 'from lambda_kit.experiments import doctor; doctor.print_render_time()']
  done = subprocess.run(command, env=dict(os.environ, MUJOCO_GL=backend), capture_output=True, text=True, check=False)
  try:
    seconds = json.loads(done.stdout.splitlines()[-1])
  except (IndexError, json.JSONDecodeError):
    return Finding(f'OpenGL by {backend}', False, f'{probe.detail}; rendering failed: {done.stderr.strip()[-300:]}')
  return Finding(f'OpenGL by {backend}', True, f'{probe.detail}; {seconds * 1e3:.1f} ms for a 64x64 picture of PointGoal1')


def print_render_time(count: int = 100) -> None:
  """Prints the mean seconds of a picture on a turn around the start of PointGoal1; runs in a process of its own."""
  environment = environment_lib.SafetyGymnasium(seed=0, task='SafetyPointGoal1-v0')
  environment.reset()
  elapsed = 0.0
  for _ in range(count):
    environment.step_many(np.array([0.0, 1.0]), 3)
    started = time.perf_counter()
    environment.render(64, 64)
    elapsed += time.perf_counter() - started
  print(json.dumps(elapsed / count))


def _draw_contact_sheet(path: pathlib.Path, scale: int = 4, columns: int = 3, layouts: int = 12) -> str:
  """Draws for each view of SG6 the starts of a few episodes: of `layouts`, those with the most to see."""
  side, label = 64 * scale, 22
  sheet = Image.new('RGB', (columns * side * 2 + 8, -(-len(SG6_VIEWS) // 2) * (side + label)), (255, 255, 255))
  draw = ImageDraw.Draw(sheet)
  for i, (name, options) in enumerate(SG6_VIEWS.items()):
    environment = environment_lib.SafetyGymnasium(seed=0, original_camera=True, **options)
    images = [environment.reset().observation['image'] for _ in range(layouts)]
    environment.close()
    images.sort(key=_colorfulness, reverse=True)
    left, top = (i % 2) * (columns * side + 8), (i // 2) * (side + label)
    draw.text((left + 4, top + 3), name, fill=(0, 0, 0), font=ImageFont.load_default(14))
    for column, image in enumerate(images[:columns]):
      sheet.paste(Image.fromarray(image).resize((side, side), Image.NEAREST), (left + column * side, top + label))
  path.parent.mkdir(parents=True, exist_ok=True)
  sheet.save(path)
  return f'drawn into {path}'


def _colorfulness(image: np.ndarray) -> float:
  """Floor and sky are nearly grey; objects are not."""
  return float(np.ptp(image.astype(int), axis=-1).mean())
