"""Makes and reads the `EnvironmentSpec` of an environment."""

from collections.abc import Mapping, Sequence
import math
import numbers
from typing import Any

from dm_env import specs
import numpy as np

from lambda_kit import core
from lambda_kit import errors


def make_spec(environment: core.Environment, cost_limit: float | Sequence[float]) -> core.EnvironmentSpec:
  """Collects the facts about an environment, with the limits on its costs.

  Args:
    environment: As the agent sees it, with the action repeat.
    cost_limit: d, on an episode's undiscounted costs: one for all constraints, or one for each.
  """
  names = tuple(environment.constraint_names)
  check_actions(environment.task_name, environment.action_spec())
  return core.EnvironmentSpec(
    task_name=environment.task_name,
    observations=_check_observations(environment.task_name, environment.observation_spec()),
    actions=environment.action_spec(),
    constraint_names=names,
    cost_limits=_check_limits(cost_limit, names),
    action_repeat=environment.action_repeat,
    episode_length=environment.episode_length,
  )


def known_episode_length(spec: core.EnvironmentSpec, user: str) -> int:
  """The episode length for `user`, which can't do without it."""
  if spec.episode_length is None:
    raise errors.SetupError(
      f'{user} needs the length of episodes, and {spec.task_name} registers none: bind '
      'GymnasiumTask.episode_length to the simulator steps of an episode.'
    )
  return spec.episode_length


def check_actions(task_name: str, actions: Any) -> None:
  """Refuses actions that are not a vector of real numbers between finite bounds."""
  if not isinstance(actions, specs.BoundedArray) or len(actions.shape) != 1 or actions.dtype.kind != 'f':
    raise errors.SetupError(
      f'{task_name} takes actions that are {actions.dtype} {list(actions.shape)}, and agents choose vectors of real '
      'numbers between bounds: a Box or BoundedArray of shape (A,). Write a wrapper that takes these.'
    )
  lows, highs = (np.broadcast_to(ends, actions.shape) for ends in (actions.minimum, actions.maximum))
  for index, (low, high) in enumerate(zip(lows, highs)):
    if not (np.isfinite(low) and np.isfinite(high)):
      raise errors.SetupError(
        f'{task_name} takes actions without bounds, which cannot be rescaled to [-1, 1]: entry {index} is between '
        f'{low:g} and {high:g}. Give them finite bounds.'
      )


def _check_observations(task_name: str, observations: Any) -> dict[str, specs.Array]:
  if not isinstance(observations, Mapping) or not observations:
    raise errors.SetupError(
      f"{task_name} observes {observations}, and not a mapping from names to arrays, such as {{'vector': ...}}."
    )
  known = {'image': (3, 'u', 'uint8 [height, width, 3]'), 'vector': (1, 'f', 'real numbers [D]')}
  for name, field in observations.items():
    rank, kind, expected = known.get(name, (len(field.shape), field.dtype.kind, ''))
    if (len(field.shape), field.dtype.kind) != (rank, kind):
      raise errors.SetupError(f'{task_name} observes {field} as {name!r}, which has to be {expected}.')
  return dict(observations)


def _check_limits(cost_limit: Any, names: tuple[str, ...]) -> tuple[float, ...]:
  """Returns a limit for each constraint, [C]."""
  is_sequence = isinstance(cost_limit, Sequence) and not isinstance(cost_limit, str)
  limits = tuple(cost_limit) if is_sequence else (cost_limit,) * len(names)
  if len(limits) not in (1, len(names)):
    raise errors.SetupError(
      f'experiment.cost_limit = {cost_limit} has {len(limits)} limits for the {len(names)} '
      f'constraints {names}: give one for all of them, or one for each.'
    )
  for limit in limits:
    if isinstance(limit, bool) or not isinstance(limit, numbers.Real):
      raise errors.SetupError(
        f'experiment.cost_limit = {cost_limit!r}: {limit!r} is not a number; write one such as 25.0.'
      )
    if not math.isfinite(limit):
      raise errors.SetupError(
        f'experiment.cost_limit = {cost_limit}: a limit must be finite; to train without '
        'constraints, bind the solver to @Unconstrained().'
      )
    if limit < 0:
      raise errors.SetupError(f'experiment.cost_limit = {cost_limit}: a limit must not be negative; 0 allows no cost.')
  return tuple(float(limit) for limit in (limits if len(limits) == len(names) else limits * len(names)))
