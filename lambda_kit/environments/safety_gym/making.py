"""Makes safety-gymnasium's environments like its own `make`, which needs gymnasium 0.28.1.

Worlds of navigation tasks get the physics of MuJoCo 2.3.3 when they are compiled. Velocity tasks need no correction:
they have no welds, and only planes, spheres and capsules, whose collisions didn't change.
"""

import copy
import difflib
import importlib
from typing import Any

import gymnasium
import numpy as np

from lambda_kit import errors
from lambda_kit.environments.safety_gym import loading


def make(task: str, **options: Any) -> 'TimeLimit':
  """Makes any of safety-gymnasium's tasks: a gymnasium environment whose `step` returns six values, the cost third.

  Args:
    task: An id such as 'SafetyAntVelocity-v1'.
    **options: For the environment's class, e.g. `render_mode='rgb_array'`.
  """
  known = loading.tasks()
  if task not in known:
    near = difflib.get_close_matches(task, known, n=3, cutoff=0.4)
    raise errors.SetupError(
      f'Neither gymnasium nor safety-gymnasium has a task {task!r}.'
      + (f' Did you mean {", ".join(near)}?' if near else '')
    )
  spec = known[task]
  module, name = spec.entry_point.split(':')
  with np.errstate(over='ignore'):  # In gymnasium's spaces, at each start.
    environment = getattr(importlib.import_module(module), name)(**copy.deepcopy(spec.kwargs), **options)
  return TimeLimit(environment, spec.max_episode_steps)


class TimeLimit(gymnasium.Wrapper):
  """Truncates episodes; gymnasium's own wrapper expects five values from `step`."""

  def __init__(self, env: Any, max_episode_steps: int):
    super().__init__(env)
    self.env: Any = env  # Not a `gymnasium.Env`, by its `step`.
    self._max_episode_steps = max_episode_steps
    self._steps = 0

  def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
    self._steps = 0
    return self.env.reset(**options)

  def step(  # type: ignore[override]  # Six values, where gymnasium's interface has five.
    self, action: Any
  ) -> tuple[Any, float, float, bool, bool, dict[str, Any]]:
    observation, reward, cost, terminated, truncated, info = self.env.step(action)
    self._steps += 1
    return observation, reward, cost, terminated, truncated or self._steps >= self._max_episode_steps, info
