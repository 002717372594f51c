"""What the package holds, and that it works away from the clone."""

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_BUILD = 'import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])'  # As pip calls it.


@pytest.fixture(scope='module', name='wheel')
def fixture_wheel(tmp_path_factory):
  source, out = tmp_path_factory.mktemp('source'), tmp_path_factory.mktemp('out')
  for name in ('lambda_kit', 'gin', 'benchmarks'):
    shutil.copytree(_ROOT / name, source / name, ignore=shutil.ignore_patterns('__pycache__'))
  for name in ('pyproject.toml', 'setup.py', 'README.md', 'LICENSE'):
    shutil.copy(_ROOT / name, source)
  done = subprocess.run(
    [sys.executable, '-c', _BUILD, str(out)], cwd=source, capture_output=True, text=True, timeout=120, check=False
  )
  assert done.returncode == 0, done.stderr
  return next(out.glob('lambda_kit-*.whl'))


def test_the_wheel_holds_everything_and_nothing_else(wheel):
  with zipfile.ZipFile(wheel) as file:
    names = set(file.namelist())
    points = file.read(next(name for name in names if name.endswith('entry_points.txt'))).decode()
  expected = {
    str(path.relative_to(_ROOT))
    for pattern in ('*.py', 'py.typed', 'reports/data/*')
    for path in (_ROOT / 'lambda_kit').rglob(pattern)
  }
  expected |= {f'lambda_kit/data/{path.relative_to(_ROOT)}' for path in (_ROOT / 'gin').rglob('*.gin')}
  assert {name for name in names if '.dist-info/' not in name} == expected
  assert 'lambda-kit = lambda_kit.commands.main:main' in points


def test_the_wheel_works_in_an_empty_folder(wheel, tmp_path):
  package, folder, cache = tmp_path / 'package', tmp_path / 'empty', tmp_path / 'cache'
  folder.mkdir()
  with zipfile.ZipFile(wheel) as file:
    file.extractall(package)
  environment = dict(os.environ, PYTHONPATH=str(package), XDG_CACHE_HOME=str(cache))
  environment.pop('JAX_COMPILATION_CACHE_DIR', None)
  python = lambda *arguments: subprocess.run(
    [sys.executable, *arguments], cwd=folder, env=environment, timeout=300, capture_output=True, text=True, check=False
  )
  assert python('-c', 'import lambda_kit; print(lambda_kit.__file__)').stdout.startswith(str(package))
  done = python('-m', 'lambda_kit', 'benchmark', '--parts=start')
  assert done.returncode == 1
  assert done.stderr == 'error: Benchmarks are not part of the installed package: run them in a clone of lambda_kit.\n'
  bindings = ('ENVIRONMENT_STEPS = 200', 'experiment.evaluation_episodes = 1', 'experiment.with_video = False')
  done = python(
    '-m',
    'lambda_kit',
    'sweep',
    '--gin_file=gin/tasks/grid.gin',
    '--variants=random',
    '--run_memory=1',
    *(f'--gin_bindings={binding}' for binding in bindings),
    '--folder=runs',
  )
  assert done.returncode == 0, done.stderr
  assert (folder / 'runs' / 'grid' / 'random' / 'seed0' / 'evaluations.txt').exists()
  assert (folder / 'runs' / 'report' / 'index.html').exists()
  assert (cache / 'lambda_kit' / 'jax').is_dir() and [path.name for path in folder.iterdir()] == ['runs']
