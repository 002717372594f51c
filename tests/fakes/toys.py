"""Small components for tests of configurations, and a folder of gin files that are about them."""

from collections.abc import Callable
import dataclasses
import pathlib
import textwrap
from typing import Any, Protocol

import numpy as np
import pytest

import gin
from lambda_kit.config import configuration

ROOT = 'toy_run'


# The registry is shared with all other tests of a session, hence the names.
class ToyPosterior:
  pass


@gin.register
class ToySwag(ToyPosterior):
  def __init__(self, decay: float = 0.8, columns: int = 20):
    self.decay = decay
    self.columns = columns


@gin.register
class ToyEnsemble(ToyPosterior):
  def __init__(self, members: int = 5):
    self.members = members


@gin.register
class ToyMlp:
  def __init__(self, width: int = 1, name: str = ''):
    self.width = width
    self.name = name


@gin.register
class ToyCritic:
  def __init__(self, mlp: Any = None, eager: bool = False):
    self.mlp = mlp() if eager else mlp


@gin.register
class ToyBare:
  """Has no constructor of its own, so gin believes that it takes any argument."""


class ToyProtocol(Protocol):
  def __call__(self) -> None: ...


@gin.register
class ToyImplementation(ToyProtocol):
  """Inherits a constructor that claims to take any argument."""

  def __call__(self) -> None: ...


@gin.register
@dataclasses.dataclass
class ToyDataclass:
  size: int
  scale: float = 1.0


gin.external_configurable(np.tanh, 'toy_tanh')


@gin.register
def toy_environment(task: str, layout: dict[str, Any] | None = None) -> tuple[str, Any]:
  return task, layout


@gin.configurable
def toy_run(
  posterior: Any = None,
  critic: Any = None,
  parts: Any = (),
  steps: int = 1,
  learning_rate: float = 1e-3,
  environment: Any = None,
) -> Any:
  del posterior, parts, steps, learning_rate, environment
  return critic


@gin.configurable
def toy_run_that_checks(workdir: str, factory: Callable[[], Any] = gin.REQUIRED) -> None:
  del workdir, factory
  configuration.check_operative()


class Folder:
  """A folder of gin files, which is also the search path."""

  def __init__(self, path: pathlib.Path):
    self.path = path

  def write(self, name: str, text: str) -> str:
    path = self.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return name

  def parse(self, *layers: str, flags: tuple[str, ...] = (), root: str = ROOT) -> None:
    """Parses texts as the files 1.gin, 2.gin, ..., or files if the names of such are given."""
    files = [
      layer if layer.endswith('.gin') else self.write(f'{number}.gin', layer)
      for number, layer in enumerate(layers, start=1)
    ]
    configuration.parse(files, flags, search_paths=[str(self.path)], root=root)

  def error(self, *layers: str, flags: tuple[str, ...] = (), root: str = ROOT) -> str:
    with pytest.raises(configuration.ConfigurationError) as error:
      self.parse(*layers, flags=flags, root=root)
    return str(error.value)
