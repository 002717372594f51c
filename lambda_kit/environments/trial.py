"""Tries an environment out before a run is built on it, so that what is wrong with it is a sentence and costs nothing.

Environments are other people's code: they can raise anything, and return anything.
"""

from collections.abc import Iterator, Mapping
import contextlib
from typing import Any

import dm_env
import numpy as np

from lambda_kit import core
from lambda_kit import errors
from lambda_kit import types
from lambda_kit.environments.processes import isolated

_ATTEMPTS = 2  # Episodes: a run survives one that fails, so it must not be refused for one.


def make(factory: core.EnvironmentFactory, seed: int) -> core.Environment:
  """Makes an environment."""
  with _explained('Making the environment failed'):
    return factory(seed=seed)


def check(environment: core.Environment, spec: core.EnvironmentSpec) -> None:
  """Begins an episode and takes a step. Refuses an environment that fails, or that returns other than `spec` says.

  Episodes don't depend on those before, so the environment is left as it was.
  """
  first, failures = environment.next_episode, []
  for number in range(first, first + _ATTEMPTS):
    environment.next_episode = number
    try:
      _begin(environment, spec)
      break
    except errors.UserError as failure:
      failures.append(failure)
  environment.next_episode = first
  if len(failures) == _ATTEMPTS:
    raise failures[0]


def draw(environment: core.Environment, size: int) -> np.ndarray:
  """A picture of the environment's state, uint8 [height, width, 3]."""
  name = environment.task_name
  with _explained(f'{name} can not be drawn: `render` failed', hint='.'):
    picture = environment.render(size, size)
  if not isinstance(picture, np.ndarray) or picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
    raise errors.SetupError(
      f'{name} can not be drawn: `render` returned {_describe(picture)}, and not uint8 [height, width, 3].'
    )
  return picture


def find_drawing_problem(environment: core.Environment, size: int) -> str | None:
  """Why an environment can't be drawn; None if it can."""
  first = environment.next_episode
  try:
    with _explained(f'{environment.task_name} can not be drawn: its reset failed', hint='.'):
      environment.reset()
    draw(environment, size)
  except errors.UserError as error:
    return str(error)
  finally:
    environment.next_episode = first
  return None


def _begin(environment: core.Environment, spec: core.EnvironmentSpec) -> None:
  """Begins an episode, and takes the first step with an action in the middle of its range."""
  name, actions = spec.task_name, spec.actions
  with _explained(f'The first reset of {name} failed'):
    timestep = environment.reset()
    if not timestep.first():
      raise errors.SetupError(f'The first reset of {name} returned a time step of type {timestep.step_type!r}.')
    _check_observation(timestep, spec, 'reset')
  with _explained(f'The first step of {name} failed'):
    middle = np.broadcast_to((actions.minimum + actions.maximum) / 2.0, actions.shape).astype(actions.dtype)
    timestep = environment.step(middle)
    _check_observation(timestep, spec, 'step')
    _check_reward(timestep.reward, spec)


def _check_observation(timestep: dm_env.TimeStep, spec: core.EnvironmentSpec, call: str) -> None:
  observation, where = timestep.observation, f'in its first {call}'
  if not isinstance(observation, Mapping) or observation.keys() != spec.observations.keys():
    raise errors.SetupError(
      f'{spec.task_name} returned the observation {_describe(observation)} {where}, and its specs have '
      f'{_describe(spec.observations)}.'
    )
  for part, field in spec.observations.items():
    value = np.asarray(observation[part])
    # As the replay takes them: any number may become a float.
    fits = np.can_cast(value.dtype, field.dtype) or (value.dtype.kind in 'biuf' and field.dtype.kind == 'f')
    if value.shape != field.shape or not fits:
      raise errors.SetupError(
        f'{spec.task_name} returned the observation {part!r} as {_describe(value)} {where}, and its specs say '
        f'{_describe(field)}.'
      )
    if value.dtype.kind == 'f' and not np.isfinite(value).all():
      raise errors.SetupError(
        f'{spec.task_name} returned the observation {part!r} with entries that are not finite {where}: {value}.'
      )


def _check_reward(reward: Any, spec: core.EnvironmentSpec) -> None:
  if not isinstance(reward, types.CmdpReward):
    raise errors.SetupError(
      f'{spec.task_name} returned the reward {reward!r}, and not a reward with costs, CmdpReward.'
    )
  for what, value, shape in (('reward', reward.reward, ()), ('cost', reward.cost, (spec.num_constraints,))):
    array = np.asarray(value)
    if array.shape != shape or array.dtype.kind not in 'biuf' or not np.isfinite(array).all():
      raise errors.SetupError(
        f'{spec.task_name} returned the {what} {value!r} in its first step, and not finite numbers {list(shape)}.'
      )


def _describe(value: Any) -> str:
  if isinstance(value, Mapping):
    return str(sorted(value))
  return f'{value.dtype} {list(value.shape)}' if hasattr(value, 'dtype') else f'{value!r}'


@contextlib.contextmanager
def _explained(what: str, hint: str = errors.HINT) -> Iterator[None]:
  """Turns any error into a one-sentence `SetupError`."""
  try:
    with errors.explained(what, hint):
      yield
  except isolated.EnvironmentFailure as failure:  # With the stack trace of the other process.
    raise errors.SetupError(f'{str(failure).splitlines()[0]}{hint}') from failure
