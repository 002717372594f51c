"""From time steps to episodes."""

from typing import Any

from absl import logging
import dm_env
import numpy as np

from lambda_kit import core
from lambda_kit.replay import buffer as buffer_lib
from lambda_kit.replay import episodes


class EpisodeAdder(core.Adder):
  """Collects the time steps of one environment, and puts each episode into a buffer when it has ended.

  An episode is cut short if another one begins before its last time step (a worker was replaced), or if a time step
  can't be stored. What was complete until then is kept, as if a time limit had ended it, if that is at least one
  step. Nothing is sampled from an episode that goes on.

  Several environments need an adder each; they may share a buffer.
  """

  def __init__(self, buffer: buffer_lib.EpisodeBuffer):
    """Waits for the first episode.

    Args:
      buffer: Gets the episodes.
    """
    self._buffer = buffer
    self._fields = buffer.header.fields
    self._moments: list[dict[str, np.ndarray]] = []  # Of the episode that goes on.

  def add_first(self, timestep: dm_env.TimeStep) -> None:
    if not timestep.first():
      raise ValueError(f'An episode begins with a first time step, got {timestep.step_type}.')
    self.cut()
    nothing = {
      name: np.zeros(self._fields[name].shape, np.float32) for name in ('action', 'reward', 'cost', 'terminal')
    }
    self._moments = [self._observed(timestep) | nothing]

  def add(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
    """Adds what an action led to. A first time step begins an episode, and its action counts for nothing."""
    if next_timestep.first():
      self.add_first(next_timestep)
      return
    if not self._moments:
      raise ValueError('No episode goes on: call add_first with its first time step before add.')
    try:
      moment = self._observed(next_timestep) | {
        'action': self._convert('action', action),
        'reward': self._convert('reward', next_timestep.reward.reward),
        'cost': self._convert('cost', next_timestep.reward.cost),
        'terminal': np.float32(next_timestep.last() and next_timestep.discount == 0.0),
      }
    except Exception:
      self._finish()  # Without this moment, the next one would seem to follow the last.
      raise
    self._moments.append(moment)
    if next_timestep.last():
      self._finish()

  def cut(self) -> None:
    if self._moments:
      logging.warning('An episode was cut short after %d agent steps.', len(self._moments) - 1)
      self._finish()

  def _observed(self, timestep: dm_env.TimeStep) -> dict[str, np.ndarray]:
    expected = self._buffer.header.observations
    if timestep.observation.keys() != expected.keys():
      raise ValueError(
        f'The environment observed {sorted(timestep.observation)}, and the replay expects {sorted(expected)}.'
      )
    return {
      f'observation/{name}': self._convert(f'observation/{name}', value) for name, value in timestep.observation.items()
    }

  def _convert(self, name: str, value: Any) -> np.ndarray:
    """A copy as it is stored: environments may reuse their arrays."""
    field = self._fields[name]
    value = np.asarray(value)
    # Any number can be a float32. A float or a wide integer is no pixel, though.
    fits = np.can_cast(value.dtype, field.dtype) or (value.dtype.kind in 'biuf' and np.dtype(field.dtype).kind == 'f')
    if value.shape != field.shape or not fits:
      raise ValueError(f'The replay expects {name} to be {field}, got {value.dtype} {list(value.shape)}.')
    value = value.astype(field.dtype)
    if value.dtype.kind == 'f' and not np.isfinite(value).all():
      raise ValueError(f'The replay refuses {name} with entries that are not finite: {value}.')
    return value

  def _finish(self) -> None:
    moments, self._moments = self._moments, []
    if len(moments) < 2:
      return
    arrays = {name: np.stack([moment[name] for moment in moments]) for name in self._fields}
    episode = episodes.Episode(**episodes.unflatten(arrays))
    self._buffer.add(episode)
