"""A run's replay on disk: one file for each episode, written once."""

import os
import pathlib
import sys

from lambda_kit.replay import buffer as buffer_lib
from lambda_kit.replay import episodes as episodes_lib
from lambda_kit.replay import offline


class ReplayArchive:
  """Mirrors a buffer in a folder that is also an offline dataset (`LambdaAgent.offline_data`).

  Each save writes only the episodes that are new since the last one. A checkpoint names the episodes that the buffer
  held when it was taken; a resumed run deletes the files of later ones, and plays those episodes again.

  Args:
    folder: Created by the first save.
    buffer: The buffer to mirror.
    compress: Whether to trade time for space: compressed images take about a fifth.
  """

  def __init__(self, folder: str | os.PathLike, buffer: buffer_lib.EpisodeBuffer, compress: bool = True):
    self._folder = pathlib.Path(folder)
    self._buffer = buffer
    self._compress = compress
    self._next_number = 0

  def save(self) -> tuple[int, int]:
    """Writes new episodes. Returns the range of the buffer's episode numbers: the first, and one past the last."""
    self._folder.mkdir(parents=True, exist_ok=True)
    first, next_number = None, self._next_number
    for number, episode in self._buffer.items():
      first = number if first is None else first
      if number >= self._next_number:
        episodes_lib.write_episode(self._path(number), episode, self._buffer.header, self._compress, overwrite=True)
        next_number = number + 1
    self._next_number = next_number
    return (next_number if first is None else first), next_number

  def restore(self, first: int, next_number: int) -> None:
    """Fills the buffer with a range of episodes, and deletes the files after it.

    Raises:
      EpisodeFileError: A file of the range is missing, damaged, or from another task. No file was changed.
    """
    files = offline.episode_files(self._folder) if self._folder.is_dir() else {}
    missing = [number for number in range(first, next_number) if number not in files]
    if missing:
      raise episodes_lib.EpisodeFileError(
        f'{self._path(missing[0])} is missing, one of {len(missing)} episodes that the checkpoint needs. Restore the '
        'folder from a backup, or start a new run.'
      )
    self._buffer.rebuild(
      (number, episodes_lib.read_episode(files[number], self._buffer.header)[0]) for number in range(first, next_number)
    )
    for number, path in files.items():
      if number >= next_number:
        path.unlink()
    self._remove_partial()
    self._next_number = next_number

  def restore_none(self) -> None:
    """Deletes all files: the run starts, or starts again because it had no checkpoint yet."""
    if self._folder.is_dir():
      self.prune(sys.maxsize)
      self._remove_partial()

  def prune(self, first: int) -> None:
    """Deletes the files of episodes before `first`."""
    for number, path in offline.episode_files(self._folder).items():
      if number < first:
        path.unlink()

  def _remove_partial(self) -> None:
    """Deletes what a killed process left while writing an episode. No other run writes to this folder."""
    for path in self._folder.glob('episode-*.npz.*.partial'):
      path.unlink()

  def _path(self, number: int) -> pathlib.Path:
    return self._folder / f'episode-{number:06d}.npz'
