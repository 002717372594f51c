"""`lambda-kit setup` with a pip that installs nothing, and setup.sh with Pythons that are shell scripts."""

import pathlib
import shutil
import subprocess
import sys
import types

from packaging import requirements as packaging_requirements
import pytest

from lambda_kit.commands import requirements
from lambda_kit.commands import setup
from lambda_kit.environments import opengl

_ROOT = pathlib.Path(__file__).resolve().parents[2]


class _Machine:
  """Which packages are there; a pip or uv adds those that it is asked for."""

  def __init__(self, installed, code=0):
    self.installed = dict(installed)
    self.commands = []
    self._code = code

  def need(self, requirement):
    return requirements.Need(requirement, self.installed.get(requirement.name))

  def run(self, command, **options):
    del options
    self.commands.append(command)
    for word in command:
      requirement = None if word.startswith(('-', '/')) else packaging_requirements.Requirement(word)
      if requirement is not None and requirement.specifier and not self._code:
        self.installed[requirement.name] = next(iter(requirement.specifier)).version
    return types.SimpleNamespace(returncode=self._code, stderr='WARNING: slow\nERROR: no network\n')


@pytest.fixture(name='make_machine')
def fixture_make_machine(monkeypatch, tmp_path):
  def make(installed=(), code=0, opengl_works=True):
    machine = _Machine(installed, code)
    monkeypatch.setattr(requirements, 'need', machine.need)
    monkeypatch.setattr(setup.subprocess, 'run', machine.run)
    monkeypatch.setattr(setup.sysconfig, 'get_path', lambda name: str(tmp_path))
    monkeypatch.setattr(requirements, 'later_python', lambda: '')
    monkeypatch.setattr(opengl, 'probe', lambda backend: opengl.Probe(backend, opengl_works, 'detail'))
    return machine

  return make


_ALL = {
  'gymnasium': '1.4.0',
  'imageio': '2.38.1',
  'mujoco': '3.17.0',
  'pyopengl': '3.1.10',
  'pyyaml': '6.0.3',
  'xmltodict': '1.0.4',
  'safety-gymnasium': '1.0.0',
}


def test_everything_is_installed_with_the_tested_mujoco_and_without_pins_of_safety_gymnasium(make_machine, capsys):
  machine = make_machine()
  setup.main(['setup'])
  needed, itself = machine.commands
  assert needed[:4] == [sys.executable, '-m', 'pip', 'install'] and '--no-deps' not in needed
  assert set(needed[-6:]) == {
    'gymnasium>=1',
    'imageio>=2.31',
    'mujoco==3.3.7',
    'pyopengl>=3.1.7',
    'pyyaml>=6',
    'xmltodict>=0.13',
  }
  assert itself[-2:] == ['--no-deps', 'safety-gymnasium==1.0.0']
  assert 'OpenGL works: egl, detail.' in capsys.readouterr().out


def test_what_is_there_stays(make_machine):
  machine = make_machine(_ALL)
  setup.main(['setup'])
  assert not machine.commands


def test_what_is_too_old_is_replaced(make_machine):
  machine = make_machine({**_ALL, 'mujoco': '2.3.3'})
  setup.main(['setup'])
  assert [command[-1] for command in machine.commands] == ['mujoco==3.3.7']


def test_environments_without_pip_are_those_of_uv(make_machine, monkeypatch):
  machine = make_machine({**_ALL, 'safety-gymnasium': None})
  monkeypatch.setattr(setup.importlib.util, 'find_spec', lambda name: None)
  monkeypatch.setattr(setup.shutil, 'which', lambda name: '/bin/uv' if name == 'uv' else None)
  setup.main(['setup'])
  assert machine.commands == [
    ['uv', 'pip', 'install', '--quiet', '--python', sys.executable, '--no-deps', 'safety-gymnasium==1.0.0']
  ]
  machine.installed.pop('safety-gymnasium')
  monkeypatch.setattr(setup.shutil, 'which', lambda name: None)
  with pytest.raises(SystemExit, match='has no pip, and there is no uv'):
    setup.main(['setup'])


def test_an_environment_that_is_not_writable_is_told(make_machine, monkeypatch):
  machine = make_machine()
  monkeypatch.setattr(setup.os, 'access', lambda path, mode: False)
  with pytest.raises(SystemExit, match='is not writable. Make your own environment'):
    setup.main(['setup'])
  assert not machine.commands


def test_the_python_of_the_operating_system_is_left_alone(make_machine, monkeypatch, tmp_path):
  machine = make_machine()
  (tmp_path / 'EXTERNALLY-MANAGED').write_text('')
  monkeypatch.setattr(setup.sys, 'prefix', setup.sys.base_prefix)
  with pytest.raises(SystemExit, match='belongs to the operating system'):
    setup.main(['setup'])
  assert not machine.commands


def test_the_reason_of_a_failure_is_told(make_machine):
  make_machine(code=1)
  with pytest.raises(SystemExit, match='could not be installed: ERROR: no network'):
    setup.main(['setup'])


def test_a_machine_without_opengl_is_told_what_to_install(make_machine, capsys):
  make_machine(_ALL, opengl_works=False)
  setup.main(['setup'])
  assert f'apt-get install --no-install-recommends {opengl.PACKAGES}' in capsys.readouterr().out


_SHIM = '#!/bin/sh\necho "pyenv: python: command not found" >&2\nexit 127\n'
# Answers what setup.sh asks of a Python, and makes no environment.
_PYTHON = """#!/bin/sh
case "$*" in
  *version_info*) echo {version};;
  *ensurepip*) exit {without_venv};;
  *--version*) echo Python {version}.1;;
  *) exit 1;;
esac
"""


def _setup_script(folder, pythons, **environment):
  """Runs setup.sh where there are these Pythons and no others."""
  (folder / 'bin').mkdir()
  for name, text in pythons.items():
    (folder / 'bin' / name).write_text(text)
    (folder / 'bin' / name).chmod(0o755)
  for name in ('bash', 'sh', 'cat', 'cksum', 'dirname', 'rm'):
    (folder / 'bin' / name).symlink_to(shutil.which(name))
  for name in ('setup.sh', 'setup.py', 'pyproject.toml', 'requirements.lock'):
    shutil.copy(_ROOT / name, folder)
  environment = dict(PATH=str(folder / 'bin'), HOME=str(folder), **environment)
  return subprocess.run(
    ['bash', 'setup.sh'], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
  )


def _fake(version, has_venv=True):
  return _PYTHON.format(version=version, without_venv=int(not has_venv))


@pytest.mark.parametrize(
  'pythons,chosen',
  [
    ({'python3.13': _fake('3.13'), 'python3.12': _fake('3.12')}, '3.13'),
    ({'python3.13': _SHIM, 'python3.12': _fake('3.12'), 'python3.11': _fake('3.11')}, '3.12'),
    ({'python3.13': _fake('3.13', has_venv=False), 'python3.11': _fake('3.11')}, '3.11'),
    ({'python3': _fake('3.11'), 'python3.14': _fake('3.14')}, '3.11'),
    ({'python3': _fake('3.14')}, '3.14'),
  ],
)
def test_the_newest_python_that_works_is_taken(pythons, chosen, tmp_path):
  done = _setup_script(tmp_path, pythons)
  assert f'environment in .venv with Python {chosen}.1' in done.stdout, done.stderr


def test_without_a_python_it_says_what_to_install(tmp_path):
  done = _setup_script(tmp_path, {'python3': _fake('3.10')})
  assert done.returncode != 0
  for system in ('Debian 12', 'Debian 13', 'Ubuntu 22.04', 'Ubuntu 24.04', 'Fedora', 'macOS'):
    assert system in done.stderr


@pytest.mark.parametrize(
  'python,message',
  [
    ('python3.10', 'PYTHON=python3.10 is Python 3.10; lambda_kit needs 3.11, 3.12 or 3.13.'),
    ('python3.13', 'PYTHON=python3.13 does not run.'),
    ('python3.12', 'apt-get install python3.12-venv'),
  ],
)
def test_a_python_that_was_asked_for_and_will_not_do_is_told(python, message, tmp_path):
  done = _setup_script(
    tmp_path,
    {
      'python3.10': _fake('3.10'),
      'python3.13': _SHIM,
      'python3.11': _fake('3.11'),
      'python3.12': _fake('3.12', has_venv=False),
    },
    PYTHON=python,
  )
  assert done.returncode != 0 and message in done.stderr and 'environment' not in done.stdout
