"""Imports safety-gymnasium 1.0.0 on current versions of Python, gymnasium and numpy.

  * Its dataclasses have arrays as defaults, which Python 3.11 and later reject: they become default factories.
  * Its wrappers, vector environments, multi-agent tasks and `make` need gymnasium 0.28.1 and gymnasium-robotics. The
    tasks use none of them: stubs replace them in `sys.modules` during the import.
  * It registers its tasks with gymnasium. They go into a registry here instead, for `making.make`.
  * MuJoCo chooses an OpenGL library at import, and fails if there is none. Gymnasium's viewers open contexts of their
    own, and pictures come back as garbage when there are two. `opengl` handles both.

Afterwards, gymnasium, dataclasses and `sys.modules` are unchanged, except for safety-gymnasium's own modules.
"""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import functools
import importlib
import sys
import types as python_types
from typing import Any, NamedTuple
from unittest import mock

from lambda_kit import errors
from lambda_kit.environments import opengl
from lambda_kit.environments.safety_gym import physics

INSTALL = '`lambda-kit setup`, or `make setup` in a clone'
_REGISTRATION = 'safety_gymnasium.utils.registration'
_MULTI_AGENT = 'safety_gymnasium.tasks.safe_multi_agent.safe_mujoco_multi'
_UNUSED = ('safety_gymnasium.vector', 'safety_gymnasium.wrappers', _MULTI_AGENT)


class SimulatorMissing(errors.UserError, ImportError):
  """safety-gymnasium, MuJoCo or gymnasium is not installed. The message holds the remedy."""


class TaskSpec(NamedTuple):
  """What safety-gymnasium registers for a task."""

  entry_point: str  # 'module:class'.
  kwargs: dict[str, Any]
  max_episode_steps: int


_tasks: dict[str, TaskSpec] = {}


def tasks() -> dict[str, TaskSpec]:
  """Safety-gymnasium's tasks by id."""
  safety_gymnasium()
  return _tasks


@functools.cache
def safety_gymnasium() -> Any:
  """Returns the imported package."""
  if 'safety_gymnasium' in sys.modules and not _tasks:
    raise SimulatorMissing(
      'safety_gymnasium was imported before lambda_kit could adapt it. Leave its import to '
      'lambda_kit: lambda_kit.environments.safety_gym.loading.safety_gymnasium().'
    )
  try:
    mujoco = opengl.import_mujoco()
    gymnasium = importlib.import_module('gymnasium')
    rendering = importlib.import_module('gymnasium.envs.mujoco.mujoco_rendering')
    with _array_defaults(), _stand_ins(), mock.patch.object(gymnasium, 'register', lambda **_: None):
      package = importlib.import_module('safety_gymnasium')
      importlib.import_module('safety_gymnasium.builder')  # All tasks, with their dataclasses.
  except ImportError as error:
    raise SimulatorMissing(
      f'The Safety-Gymnasium tasks are not installed here ({error}). Install them: {INSTALL}. '
      'The built-in CMDP (gin/tasks/grid*.gin) needs no simulator.'
    ) from error
  if mujoco.MjvOption().geomgroup.strides != (1,):
    import numpy as np

    raise SimulatorMissing(
      f'MuJoCo {mujoco.__version__} under numpy {np.__version__} hands out arrays with zero strides: hazards, vases '
      f'and goals would silently vanish from camera images. Install MuJoCo 3.1.4 or later: {INSTALL}.'
    )
  if hasattr(package, 'make'):  # Still the stub: this is the first call.
    _adapt(package, mujoco, gymnasium, rendering)
  physics.warn_if_different(mujoco.__version__)
  return package


def _adapt(package: Any, mujoco: Any, gymnasium: Any, rendering: Any) -> None:
  """Removes the stubs from the package, and makes it work with current versions of its dependencies."""
  from safety_gymnasium.bases import base_agent
  from safety_gymnasium.bases import underlying

  for name in ('vector', 'wrappers', 'make', 'make_ma'):
    delattr(package, name)
  package.gymnasium_register = gymnasium.register
  # All worlds get the physics of MuJoCo 2.3.3.
  compile_model = lambda *arguments: physics.restore_physics(mujoco.MjModel.from_xml_string(*arguments))
  package.world.mujoco = Facade(mujoco, MjModel=Facade(mujoco.MjModel, from_xml_string=compile_model))
  underlying.OffScreenViewer = functools.partial(_make_viewer, rendering.OffScreenViewer)
  base_agent.float = _as_float
  robot = base_agent.BaseAgent
  robot._init_jnt_sensors = _with_joints_by_array(robot._init_jnt_sensors)


@contextlib.contextmanager
def _array_defaults() -> Iterator[None]:
  original = dataclasses.dataclass

  def dataclass(cls=None, /, **options):
    def decorate(cls):
      # Not by annotations, which Python 3.14 stores elsewhere. All attributes of these classes are fields.
      for name, default in list(vars(cls).items()):
        # Python 3.11's own rule: unhashable values can't be defaults.
        if not name.startswith('__') and default.__class__.__hash__ is None:
          setattr(cls, name, dataclasses.field(default_factory=functools.partial(_same, default)))
      return original(cls, **options)

    return decorate if cls is None else decorate(cls)

  with mock.patch.object(dataclasses, 'dataclass', dataclass):
    yield


def _same(value: Any) -> Any:
  return value


@contextlib.contextmanager
def _stand_ins() -> Iterator[None]:
  modules = {name: python_types.ModuleType(name) for name in (*_UNUSED, _REGISTRATION)}
  vars(modules[_MULTI_AGENT]).update(make_ma=None)
  vars(modules[_REGISTRATION]).update(make=None, register=_register)
  sys.modules.update(modules)
  try:
    yield
  finally:
    for name in modules:
      del sys.modules[name]


def _register(
  id: str, entry_point: str, max_episode_steps: int, kwargs: dict[str, Any], reward_threshold: float | None = None
) -> None:
  del reward_threshold
  _tasks[id] = TaskSpec(entry_point, kwargs, max_episode_steps)


def _make_viewer(viewer: Any, model: Any, data: Any) -> Any:
  """Makes a viewer of the model's size, which gymnasium 1 takes as arguments."""
  with opengl.shared_viewers():
    return viewer(model, data, model.vis.global_.offwidth, model.vis.global_.offheight)


# Since numpy 2.5, arrays of one element no longer convert to numbers. Two lines of safety-gymnasium rely on that.


def _as_float(value: Any) -> float:
  """`float` that also takes a sensor's only reading as an array."""
  return value.item() if hasattr(value, 'item') else float(value)


def _with_joints_by_array(method: Callable[[Any], None]) -> Callable[[Any], None]:
  """The method of an agent, with a model that finds joints by an array of one number, too."""

  @functools.wraps(method)
  def wrapped(agent: Any) -> None:
    engine = agent.engine
    model = Facade(engine.model, jnt=lambda number: engine.model.jnt(number.item()))
    agent.set_engine(Facade(engine, model=model))
    method(agent)
    agent.set_engine(engine)

  return wrapped


class Facade:
  """An object with some attributes replaced."""

  def __init__(self, original: Any, **replaced: Any):
    self._original = original
    self.__dict__.update(replaced)

  def __getattr__(self, name: str) -> Any:
    return getattr(self._original, name)
