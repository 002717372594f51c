"""Collects time steps into episodes."""

from collections.abc import Callable
from typing import Any

from absl import logging
import dm_env
import numpy as np

from lambda_kit import core
from lambda_kit import types
from lambda_kit.replay import buffer as buffer_lib
from lambda_kit.replay import episodes


class EpisodeAdder(core.Adder):
  """Collects the time steps of one environment, and adds each episode to a buffer when it ends.

  An episode is cut short if another one begins before its last time step (a worker was replaced), or if a time step
  can't be stored. What came before is kept as if a time limit had ended it, if it is at least one agent step. Nothing
  is sampled from an unfinished episode.

  Each environment needs its own adder; adders may share a buffer.
  """

  def __init__(
    self,
    buffer: buffer_lib.EpisodeBuffer,
    observe_episode: Callable[[types.Trajectory], types.Array | None] = lambda episode: None,
  ):
    """Waits for the first episode.

    Args:
      buffer: Gets the episodes.
      observe_episode: Called with each episode [T + 1, ...] before the buffer gets it, but not with those cut short.
        What it returns, [T + 1] or None, is stored as the episode's surprise, if the buffer draws by that.
    """
    self._buffer = buffer
    self._observe_episode = observe_episode
    self._fields = buffer.header.fields
    self._time_steps: list[dict[str, np.ndarray]] = []  # Of the unfinished episode.

  def add_first(self, timestep: dm_env.TimeStep) -> None:
    if not timestep.first():
      raise ValueError(f'An episode begins with a first time step, got {timestep.step_type}.')
    self.cut()
    nothing = {
      name: np.zeros(self._fields[name].shape, np.float32) for name in ('action', 'reward', 'cost', 'terminal')
    }
    self._time_steps = [self._observed(timestep) | nothing]

  def add(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
    """Adds the result of an action. If it is a first time step, an episode begins, and the action is ignored."""
    if next_timestep.first():
      self.add_first(next_timestep)
      return
    if not self._time_steps:
      raise ValueError('No episode has begun: call add_first with its first time step before add.')
    try:
      time_step = self._observed(next_timestep) | {
        'action': self._convert('action', action),
        'reward': self._convert('reward', next_timestep.reward.reward),
        'cost': self._convert('cost', next_timestep.reward.cost),
        'terminal': np.array(next_timestep.last() and next_timestep.discount == 0.0, np.float32),
      }
    except Exception:
      self._finish()  # Without this time step, the next one would seem to follow the one before.
      raise
    self._time_steps.append(time_step)
    if next_timestep.last():
      self._finish(is_complete=True)

  def cut(self) -> None:
    if self._time_steps:
      logging.warning('An episode was cut short after %d agent steps.', len(self._time_steps) - 1)
      self._finish()

  def _observed(self, timestep: dm_env.TimeStep) -> dict[str, np.ndarray]:
    expected = self._buffer.header.observations
    if timestep.observation.keys() != expected.keys():
      raise ValueError(
        f'The environment observed {sorted(timestep.observation)}, but the replay expects {sorted(expected)}.'
      )
    return {
      f'observation/{name}': self._convert(f'observation/{name}', value) for name, value in timestep.observation.items()
    }

  def _convert(self, name: str, value: Any) -> np.ndarray:
    """Converts a value to its stored type. Always a copy, since environments may reuse their arrays."""
    field = self._fields[name]
    value = np.asarray(value)
    # Any number may become a float32, but a float or a wide integer can't become a pixel.
    fits = np.can_cast(value.dtype, field.dtype) or (value.dtype.kind in 'biuf' and np.dtype(field.dtype).kind == 'f')
    if value.shape != field.shape or not fits:
      raise ValueError(f'The replay expects {name} to be {field}, got {value.dtype} {list(value.shape)}.')
    value = value.astype(field.dtype)
    if value.dtype.kind == 'f' and not np.isfinite(value).all():
      raise ValueError(f'The replay refuses {name} with entries that are not finite: {value}.')
    return value

  def _finish(self, is_complete: bool = False) -> None:
    time_steps, self._time_steps = self._time_steps, []
    if len(time_steps) < 2:
      return
    arrays = {name: np.stack([time_step[name] for time_step in time_steps]) for name in self._fields}
    fields = episodes.unflatten(arrays)
    surprise = self._observe_episode(types.Trajectory(**fields)) if is_complete else None
    if surprise is None or not self._buffer.draws_by_surprise:
      self._buffer.add(episodes.Episode(**fields))  # Without waiting for the learner's device.
    else:
      self._buffer.add(episodes.Episode(**fields, surprise=np.asarray(surprise, np.float32)))
