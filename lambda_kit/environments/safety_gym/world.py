"""Compiles new layouts without textures.

safety-gymnasium compiles the MuJoCo model at each reset. Nearly all of the 1.4 s that this takes goes into decoding the
six large pictures of the sky, which never change. Here the world is compiled with one-pixel pictures instead, in about
10 ms. Cameras use a second model with all textures, compiled once, into which each layout's numbers are copied.
"""

from collections.abc import Iterator
import contextlib
import functools
import io
import re
from typing import Any
from unittest import mock

import numpy as np
from PIL import Image

from lambda_kit.environments import opengl
from lambda_kit.environments.safety_gym import loading
from lambda_kit.environments.safety_gym import physics

_TEXTURE_FILE = re.compile(r'\bfile\w*="([^"]+\.(?:png|PNG))"')
_TEXTURE_FOLDER = re.compile(r'texturedir="[^"]*"')
_STATISTICS = ('extent', 'meaninertia', 'meanmass', 'meansize')


def compile_layout(xml: str) -> Any:
  """Compiles an `MjModel` from MJCF, with one-pixel textures and MuJoCo 2.3.3's physics."""
  pixels = {name: _pixel() for name in _TEXTURE_FILE.findall(xml)}
  return physics.restore_physics(opengl.import_mujoco().MjModel.from_xml_string(_TEXTURE_FOLDER.sub('', xml), pixels))


class PictureModel:
  """A model with all textures, for cameras, which takes over the layouts of a model without them."""

  def __init__(self, xml: str):
    self.model = physics.restore_physics(opengl.import_mujoco().MjModel.from_xml_string(xml))
    self._fields = numeric_fields(self.model)

  def follow(self, layout: Any) -> None:
    """Copies everything but textures from `layout`, an `MjModel` of the same objects."""
    if layout.names != self.model.names:
      raise ValueError('The task changed its objects between two episodes; only layouts may change.')
    for name in self._fields:
      getattr(self.model, name)[...] = getattr(layout, name)
    for name in _STATISTICS:
      setattr(self.model.stat, name, getattr(layout.stat, name))
    self.model.stat.center[:] = layout.stat.center


def numeric_fields(model: Any) -> tuple[str, ...]:
  """Names of a model's arrays, except textures."""
  return tuple(
    name for name in dir(model) if not name.startswith(('_', 'tex_')) and isinstance(getattr(model, name), np.ndarray)
  )


@contextlib.contextmanager
def quick_compilation() -> Iterator[None]:
  """While active, safety-gymnasium builds its worlds with `compile_layout`."""
  loading.safety_gymnasium()
  from safety_gymnasium import world

  mujoco = loading.Facade(world.mujoco, MjModel=loading.Facade(world.mujoco.MjModel, from_xml_string=compile_layout))
  yaml = world.yaml
  reader = loading.Facade(yaml, load=lambda file, Loader: _load_yaml(file.name, yaml.load, Loader))
  with mock.patch.object(world, 'mujoco', mujoco), mock.patch.object(world, 'yaml', reader):
    yield


@functools.cache
def _pixel() -> bytes:
  buffer = io.BytesIO()
  Image.new('RGB', (1, 1)).save(buffer, 'PNG')
  return buffer.getvalue()


@functools.cache
def _load_yaml(path: str, load: Any, loader: Any) -> Any:
  """The assets file is read at each reset, and takes 26 ms to parse. Its readers don't modify it."""
  with open(path, encoding='utf-8') as file:
    return load(file, Loader=loader)
