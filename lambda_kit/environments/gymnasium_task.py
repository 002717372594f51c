"""Adapts any gymnasium environment that reports costs to `core.Environment`."""

from collections.abc import Callable, Sequence
from typing import Any

from dm_env import specs
import numpy as np
from PIL import Image

import gin
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit.environments import episodic
from lambda_kit.environments import opengl
from lambda_kit.environments.safety_gym import loading


@gin.register
@ranges.checked
class GymnasiumTask(episodic.EpisodicEnvironment):
  """Adapts a gymnasium environment with costs in `info`, or whose `step` returns safety-gymnasium's six values.

  The numbers of an observation become 'vector' (flattened, in the order of the space); a picture becomes 'image'.

  Args:
    seed: With an episode's number, it seeds `reset`.
    task: A registered id. For safety-gymnasium's navigation tasks prefer `SafetyGymnasium`, which is faster.
    make: Called with `task` and `render_mode` to make the environment. By default `gymnasium.make`, or `making.make`
      for safety-gymnasium's ids.
    cost_keys: Keys of the C costs in `info`. The cost among six values gets the key 'cost'.
    episode_length: Simulator steps after which an episode is truncated; None for the environment's registered
      `max_episode_steps`, if it has any.
  """

  def __init__(
    self,
    seed: int,
    task: str,
    make: Callable[..., Any] | None = None,
    cost_keys: Sequence[str] = ('cost',),
    episode_length: ranges.Count | None = None,
  ):
    super().__init__(seed, task, tuple(cost_keys))
    self._gymnasium = _make(make or _maker(task), task)
    self._task = task
    registered = getattr(self._gymnasium.spec, 'max_episode_steps', None)
    self._episode_length = min((length for length in (episode_length, registered) if length), default=None)
    self._time = 0  # Simulator steps since `begin`.
    self._leaves = _leaves(self._gymnasium.observation_space)
    if sum(_is_image(space) for _, space in self._leaves) > 1:
      raise errors.SetupError(
        f'{task} observes several pictures, and one is supported: write a wrapper that joins them.'
      )
    actions = self._gymnasium.action_space
    if hasattr(actions, 'low') and np.any(actions.low > actions.high):  # dm_env's specs can't say so.
      raise errors.SetupError(f'{task} has the action space {actions}, whose lower bounds are above the upper ones.')
    if not hasattr(actions, 'low'):
      raise errors.SetupError(f'{task} has the action space {actions}; actions must be continuous (Box).')

  def begin(self, seed: int) -> dict[str, np.ndarray]:
    result = self._gymnasium.reset(seed=seed)
    if not isinstance(result, tuple) or len(result) != 2:
      raise errors.SetupError(
        f'`reset` of {self._task} has to return an observation and a dictionary, (observation, {{}}).'
      )
    self._time = 0
    return self._convert(result[0])

  def advance(self, action: np.ndarray, count: int) -> episodic.Outcome:
    total_reward, total_cost = 0.0, np.zeros(len(self.constraint_names))
    for step_count in range(1, count + 1):  # noqa: B007 (returned below)
      match self._gymnasium.step(action):
        case observation, reward, terminated, truncated, info:
          pass
        case observation, reward, cost, terminated, truncated, info:
          info = dict(info, cost=cost)
        case result:
          raise errors.SetupError(
            f'`step` of {self._task} has to return (observation, reward, terminated, truncated, info), with costs in '
            f'`info`, and returned {len(result)} values.'
          )
      total_reward += float(reward)
      total_cost += self._costs(info)
      self._time += 1
      truncated = truncated or self._time == self._episode_length
      if terminated or truncated:
        break
    return episodic.Outcome(
      self._convert(observation), total_reward, total_cost, bool(terminated), bool(truncated), step_count
    )

  def observation_spec(self) -> dict[str, specs.Array]:
    result = {}
    size = 0
    for _, space in self._leaves:
      if _is_image(space):
        result['image'] = specs.BoundedArray(space.shape, np.uint8, 0, 255, name='image')
      else:
        size += int(np.prod(space.shape))
    if size:
      result['vector'] = specs.Array((size,), np.float64, name='vector')
    return result

  def action_spec(self) -> specs.BoundedArray:
    space = self._gymnasium.action_space
    return specs.BoundedArray(space.shape, space.dtype, space.low, space.high, name='action')

  @property
  def episode_length(self) -> int | None:
    return self._episode_length

  def render(self, height: int = 256, width: int = 256) -> np.ndarray:
    renderer = getattr(self._gymnasium.unwrapped, 'mujoco_renderer', None)
    if renderer is None:
      picture = self._gymnasium.render()
    else:
      with opengl.shared_viewers():
        if renderer.viewer is not None:
          opengl.draw_into(renderer.viewer.con)  # Another camera may have drawn last.
        picture = self._gymnasium.render()
    if getattr(picture, 'dtype', None) != np.uint8:
      return picture  # None, for example. Callers say what is wrong with it.
    return np.asarray(Image.fromarray(picture).resize((width, height)))

  def close(self) -> None:
    self._gymnasium.close()

  def _costs(self, info: dict[str, Any]) -> np.ndarray:
    missing = [key for key in self.constraint_names if key not in info]
    if missing:
      raise errors.SetupError(
        f'{self._task} reports no cost {missing}: `info` has {sorted(info)}. Set '
        'GymnasiumTask.cost_keys, or choose a task that has costs.'
      )
    try:
      return np.array([float(info[key]) for key in self.constraint_names])
    except (TypeError, ValueError):
      costs = {key: info[key] for key in self.constraint_names}
      raise errors.SetupError(
        f'{self._task} reports the costs {costs} in `info`, and each has to be one number: return numbers under the '
        'keys that GymnasiumTask.cost_keys names.'
      ) from None

  def _convert(self, observation: Any) -> dict[str, np.ndarray]:
    result, numbers = {}, []
    for path, space in self._leaves:
      value = observation
      for key in path:
        value = value[key]
      if _is_image(space):
        result['image'] = np.asarray(value)
      else:
        numbers.append(np.asarray(value, np.float64).ravel())
    if numbers:
      result['vector'] = np.concatenate(numbers)
    return result


def _make(make: Callable[..., Any], task: str) -> Any:
  """Makes the environment, with pictures if it has any."""
  try:
    return make(task, render_mode='rgb_array')
  except TypeError as error:
    if 'render_mode' not in str(error):
      raise
    return make(task)
  except Exception as error:
    if type(error).__module__ != 'gymnasium.error':
      raise
    raise errors.SetupError(
      f'GymnasiumTask.task = {task!r}: {error} If it is your own, import the module that registers it in a gin '
      'file, by a line such as `import my_module`.'
    ) from error


def _maker(task: str) -> Callable[..., Any]:
  if ':' in task:  # gymnasium would import the module before it, although no gin file has an import statement.
    module, _, name = task.partition(':')
    raise errors.SetupError(
      f'GymnasiumTask.task = {task!r} names a module. Write `import {module}` in a gin file, and TASK = {name!r}.'
    )
  try:
    import gymnasium
  except ImportError as error:
    raise loading.SimulatorMissing(
      f'{task} needs gymnasium, which is not installed here ({error}). Install it by `pip install gymnasium`, or with '
      f'the Safety-Gymnasium tasks: {loading.INSTALL}.'
    ) from error
  if task.startswith('Safety') and task not in gymnasium.registry:
    from lambda_kit.environments.safety_gym import making

    return making.make
  if task in gymnasium.registry and 'mujoco' in str(gymnasium.registry[task].entry_point):
    opengl.import_mujoco()  # If the task imported it, it would choose an OpenGL library, and perhaps fail.
  return gymnasium.make


def _leaves(space: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
  """The boxes of a nested space, with the keys that lead to them."""
  if hasattr(space, 'spaces') and hasattr(space.spaces, 'items'):
    return [leaf for key, inner in space.spaces.items() for leaf in _leaves(inner, (*path, key))]
  if not hasattr(space, 'low'):
    raise errors.SetupError(f'Observations in {space} are not supported: only boxes and dictionaries of them.')
  return [(path, space)]


def _is_image(space: Any) -> bool:
  return len(space.shape) == 3 and space.dtype == np.uint8
