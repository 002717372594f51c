"""The doctor finds what is missing."""

import os
import subprocess
import sys
import types

import numpy as np
from PIL import Image

from lambda_kit.environments import opengl
from lambda_kit.experiments import doctor


def test_a_healthy_machine(tmp_path):
  findings = doctor.examine(tmp_path / 'views.png')
  assert doctor.healthy(findings), findings
  sheet = np.asarray(Image.open(tmp_path / 'views.png'))
  # Two views in a row of three pictures of 256 pixels.
  assert sheet.shape[1] == 2 * 3 * 256 + 8
  assert any('ms for a 64x64 picture' in finding.detail for finding in findings)


def test_one_backend_is_enough_and_none_is_not():
  good, bad = doctor.Finding('OpenGL by egl', True, ''), doctor.Finding('OpenGL by osmesa', False, '')
  assert doctor.healthy([good, bad])
  assert not doctor.healthy([bad])
  assert not doctor.healthy([good, doctor.Finding('python', False, '')])


def test_missing_packages_are_named_with_a_remedy():
  finding = doctor._packages('learning', ('numpy', 'no-such-package'), 'pip install it')
  assert not finding.works and 'no-such-package' in finding.detail and 'pip install it' in finding.detail


def test_known_complaints_of_opengl_have_remedies():
  for complaint, package in (
      ("'NoneType' object has no attribute 'eglQueryString'", 'libegl1'),
      ('Cannot initialize a EGL device display. This likely means ...', 'libgl1-mesa-dri'),
      ("'NoneType' object has no attribute 'glGetError'", 'libosmesa6'),
      ('an OpenGL platform library has not been loaded into this process', 'libopengl0')):
    assert package in opengl.explain(complaint)


def test_a_backend_without_drivers_fails_in_its_probe(tmp_path):
  environment = dict(os.environ, MUJOCO_GL='egl', __EGL_VENDOR_LIBRARY_DIRS=str(tmp_path))
  done = subprocess.run([sys.executable, '-m', 'lambda_kit.environments.opengl', '--probe'], env=environment,
                        capture_output=True, text=True, check=True)
  assert 'false' in done.stdout and 'apt-get install' in done.stdout


def test_the_next_backend_is_tried_after_a_failure(tmp_path):
  """Without MUJOCO_GL, a broken EGL gives way to OSMesa in the same process; where it is missing, both are told."""
  code = ('from lambda_kit.environments import opengl; opengl.import_mujoco(); print(opengl.make_current())')
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
