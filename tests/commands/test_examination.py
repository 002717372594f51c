"""The doctor finds what is missing."""

import os
import subprocess
import sys
import types

import numpy as np
from packaging import requirements as packaging_requirements
from PIL import Image
import pytest

from lambda_kit.commands import examination
from lambda_kit.commands import requirements
from lambda_kit.environments import opengl

_OK, _FAILS, _NOT_NEEDED = examination.State.OK, examination.State.FAILS, examination.State.NOT_NEEDED


def _need(line, installed):
  return requirements.Need(packaging_requirements.Requirement(line), installed)


@pytest.mark.slow
def test_a_healthy_machine(tmp_path):
  findings = examination.examine(tmp_path / 'views.png')
  assert examination.verdict(findings)[1], findings
  sheet = np.asarray(Image.open(tmp_path / 'views.png'))
  # Two views in a row of three pictures of 256 pixels.
  assert sheet.shape[1] == 2 * 3 * 256 + 8
  assert any('ms for a 64x64 picture' in finding.detail for finding in findings)


@pytest.mark.parametrize(
  'working,states', [(('egl',), [_OK, _NOT_NEEDED]), (('osmesa',), [_NOT_NEEDED, _OK]), ((), [_FAILS, _FAILS])]
)
def test_one_backend_is_enough_and_none_is_not(working, states, monkeypatch):
  detail = {True: 'llvmpipe', False: 'EGL finds no driver; remedy: apt-get install libgl1-mesa-dri'}
  monkeypatch.setattr(opengl, 'probe', lambda name: opengl.Probe(name, name in working, detail[name in working]))
  findings = examination._backends(draw=False)
  assert [finding.state for finding in findings] == states
  assert [finding.remedy for finding in findings] == [
    'apt-get install libgl1-mesa-dri' if state is _FAILS else '' for state in states
  ]
  assert examination.verdict(findings)[1] == bool(working)


def test_the_verdict_names_what_fails_and_what_works_nevertheless():
  good, warning = examination.Finding('machine', _OK, ''), examination.Finding('python', examination.State.WARNING, '')
  assert examination.verdict([good]) == ('everything works.', True)
  assert examination.verdict([good, warning]) == ('everything works, with a warning about python.', True)
  sentence, works = examination.verdict([good, examination.Finding('simulators', _FAILS, '')])
  assert not works and 'simulators' in sentence and 'The built-in CMDP' in sentence
  sentence, works = examination.verdict(
    [examination.Finding('jax', _FAILS, ''), examination.Finding('simulators', _FAILS, '')]
  )
  assert not works and 'jax, simulators' in sentence and 'The built-in CMDP' not in sentence


def test_packages_that_are_missing_or_too_old_are_named_with_a_remedy():
  finding = examination._packages(
    'packages', [_need('rich>=13', '15.0'), _need('numpy>=2', '1.26.4'), _need('jax>=0.10', None)]
  )
  assert finding.state is _FAILS
  assert finding.detail == 'numpy is 1.26.4, but lambda_kit needs >=2; jax is missing'
  assert "pip install 'numpy>=2' 'jax>=0.10'" in finding.remedy
  old = examination._packages('simulators', [_need('mujoco>=3.3.7', '2.3.3')], 'lambda-kit setup')
  assert old.state is _FAILS and 'mujoco is 2.3.3' in old.detail and old.remedy == 'lambda-kit setup'


def test_without_simulators_nothing_that_needs_them_is_tried(monkeypatch):
  monkeypatch.setattr(requirements, 'need', lambda requirement: requirements.Need(requirement, None))
  findings = {finding.what: finding for finding in examination.examine(None)}
  assert findings['simulators'].state is _FAILS and findings['simulators'].remedy == 'lambda-kit setup'
  assert 'safety-gymnasium' not in findings and 'OpenGL by egl' not in findings


@pytest.mark.parametrize('version,state', [((3, 11), _OK), ((3, 13), _OK), ((3, 14), examination.State.WARNING)])
def test_a_later_python_is_warned_of(version, state, monkeypatch):
  info = types.SimpleNamespace(major=version[0], minor=version[1])
  monkeypatch.setattr(requirements, 'sys', types.SimpleNamespace(version_info=info))
  assert examination._python().state is state


@pytest.mark.parametrize('version,state', [('3.3.7', _OK), ('3.3.2', _OK), ('3.17.0', examination.State.WARNING)])
def test_another_mujoco_is_warned_of(version, state, monkeypatch):
  monkeypatch.setattr(requirements, 'need', lambda requirement: requirements.Need(requirement, version))
  monkeypatch.setattr(examination, '_import_simulators', lambda: 'imports')
  assert examination._simulation().state is state


def test_known_complaints_of_opengl_have_remedies():
  for complaint, package in (
    ("'NoneType' object has no attribute 'eglQueryString'", 'libegl1'),
    ('Cannot initialize a EGL device display. This likely means ...', 'libgl1-mesa-dri'),
    ("'NoneType' object has no attribute 'glGetError'", 'libosmesa6'),
    ('an OpenGL platform library has not been loaded into this process', 'libopengl0'),
  ):
    assert package in opengl.explain(complaint)


def test_a_backend_without_drivers_fails_in_its_probe(tmp_path):
  environment = dict(os.environ, MUJOCO_GL='egl', __EGL_VENDOR_LIBRARY_DIRS=str(tmp_path))
  done = subprocess.run(
    [sys.executable, '-m', 'lambda_kit.environments.opengl', '--probe'],
    env=environment,
    capture_output=True,
    text=True,
    check=True,
  )
  assert 'false' in done.stdout and 'apt-get install' in done.stdout


def test_the_next_backend_is_tried_after_a_failure(tmp_path):
  """Without MUJOCO_GL, a broken EGL gives way to OSMesa in the same process; where it is missing, both are told."""
  code = 'from lambda_kit.environments import opengl; opengl.import_mujoco(); print(opengl.make_current())'
  environment = dict(os.environ, __EGL_VENDOR_LIBRARY_DIRS=str(tmp_path))
  environment.pop('MUJOCO_GL', None)
  done = subprocess.run([sys.executable, '-c', code], env=environment, capture_output=True, text=True, check=False)
  if opengl.probe('osmesa').works:
    assert done.stdout.split() == ['osmesa'] and done.returncode == 0, done.stderr
  else:  # Set-up is content with one back end that works.
    assert done.returncode != 0 and 'egl: EGL finds no driver' in done.stderr
    assert 'osmesa: the OpenGL library is missing; remedy: apt-get install' in done.stderr


def test_the_next_backend_serves_after_a_failure(monkeypatch):
  """The same with back ends of our own, whatever is installed: the first fails, the second one's context is current."""
  made_current = []

  class Context:
    def __init__(self, width, height):
      del width, height

    def make_current(self):
      made_current.append(self)

    def free(self):
      """Nothing to free."""

  def import_module(name):
    if name == 'mujoco.egl':
      raise AttributeError("'NoneType' object has no attribute 'eglQueryString'")
    assert name == 'mujoco.osmesa'
    return types.SimpleNamespace(GLContext=Context)

  monkeypatch.delenv('MUJOCO_GL', raising=False)
  monkeypatch.setattr(opengl, 'importlib', types.SimpleNamespace(import_module=import_module))
  for name in ('_context', '_backend', '_target'):
    monkeypatch.setattr(opengl, name, None)
  forgotten = []
  monkeypatch.setattr(opengl, '_forget_pyopengl', lambda: forgotten.append(True))
  monkeypatch.setattr(opengl.atexit, 'register', lambda function: None)
  assert opengl.make_current() == 'osmesa' and made_current and forgotten == [True]
