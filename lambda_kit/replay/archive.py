"""A run's replay on disk: one file for each episode, written once."""

import os
import pathlib

from absl import logging

from lambda_kit import errors
from lambda_kit import files
from lambda_kit.replay import buffer as buffer_lib
from lambda_kit.replay import episodes as episodes_lib
from lambda_kit.replay import offline


class StrangeEpisodeError(errors.UserError):
  """A file where an episode of the run belongs was not written by the run, or as another one of its episodes."""


class ReplayArchive:
  """Mirrors a buffer in a folder that is also an offline dataset (`LambdaAgent.offline_data`).

  Each save writes only the episodes that are new since the last one. A checkpoint names the episodes that the buffer
  held when it was taken; a resumed run deletes the files of later ones, and plays those episodes again. Each file says
  which run wrote it, and as which episode. Nothing else is read, replaced or deleted.

  Args:
    folder: Created by the first save.
    buffer: The buffer to mirror.
    run_id: Of the run; None for runs that are older than ids.
    compress: Whether to trade time for space: compressed images take about a fifth.
  """

  def __init__(
    self, folder: str | os.PathLike, buffer: buffer_lib.EpisodeBuffer, run_id: str | None = None, compress: bool = True
  ):
    self._folder = pathlib.Path(folder)
    self._buffer = buffer
    self._run_id = run_id
    self._compress = compress
    self._next_number = 0

  def save(self) -> tuple[int, int]:
    """Writes new episodes. Returns the range of the buffer's episode numbers: the first, and one past the last."""
    files.make_folder(self._folder)
    first = None
    for number, episode in self._buffer.items():
      first = number if first is None else first
      if number >= self._next_number:
        self._write(number, episode)
        self._next_number = number + 1
    return (self._next_number if first is None else first), self._next_number

  def restore(self, first: int, next_number: int) -> None:
    """Fills the buffer with a range of episodes, and deletes the files after it.

    Raises:
      EpisodeFileError: A file of the range is missing, damaged, or from another task. No file was changed.
      StrangeEpisodeError: The run did not write a file of the range, or after it. No file was changed.
    """
    missing = [number for number in range(first, next_number) if not self._path(number).exists()]
    if missing:
      raise episodes_lib.EpisodeFileError(
        f'{self._path(missing[0])} is missing, one of {len(missing)} episodes that the checkpoint needs. Restore the '
        'folder from a backup, or start a new run.'
      )
    self._buffer.rebuild((number, self._read(number)) for number in range(first, next_number))
    self._delete_from(next_number)
    self._next_number = next_number

  def restore_none(self) -> None:
    """Deletes what the run has written: it begins, or begins again because it had no checkpoint yet."""
    self._delete_from(0)

  def prune(self, first: int) -> None:
    """Deletes the files of episodes before `first`."""
    for number in self._numbers():
      if number < first and self._is_own(number):
        self._path(number).unlink()

  def _write(self, number: int, episode: episodes_lib.Episode) -> None:
    try:
      episodes_lib.write_episode(self._path(number), episode, self._buffer.header, self._compress, self._origin(number))
    except FileExistsError:
      raise self._strange(number) from None

  def _read(self, number: int) -> episodes_lib.Episode:
    path = self._path(number)
    if episodes_lib.read_origin(path) != self._origin(number):
      raise self._strange(number)
    return episodes_lib.read_episode(path, self._buffer.header)[0]

  def _delete_from(self, first: int) -> None:
    """Deletes the files of the episodes from a number on. Damaged ones, which may be anybody's, are renamed."""
    doomed = [number for number in self._numbers() if number >= first]
    owned = {number: self._is_own(number) for number in doomed}
    for number in doomed:
      if owned[number] is False:
        raise self._strange(number)
    for number in doomed:
      if owned[number]:
        self._path(number).unlink()
      else:
        self._set_aside(self._path(number))
    self._remove_partial()

  def _is_own(self, number: int) -> bool | None:
    """Whether the run wrote a file as the episode of its name; None if the file is damaged."""
    try:
      return episodes_lib.read_origin(self._path(number)) == self._origin(number)
    except episodes_lib.EpisodeFileError:
      return None

  def _set_aside(self, path: pathlib.Path) -> None:
    target, count = path.with_name(f'{path.name}.damaged'), 0
    while target.exists():
      count += 1
      target = path.with_name(f'{path.name}.damaged.{count}')
    path.rename(target)
    logging.warning('%s is damaged, and is played again. The damaged file is now %s.', path, target.name)

  def _strange(self, number: int) -> StrangeEpisodeError:
    origin = episodes_lib.read_origin(self._path(number))
    found = 'of no run' if origin is None else f'episode {origin.number} of run {origin.run_id}'
    return StrangeEpisodeError(
      f'{self._path(number)} is {found}, not episode {number} of this run ({self._run_id}). Move it out of the folder, '
      "and put back the run's own file if it has one."
    )

  def _numbers(self) -> list[int]:
    """Numbers of the files that are named like episodes of this run."""
    if not self._folder.is_dir():
      return []
    return sorted(number for number in offline.episode_files(self._folder) if self._path(number).exists())

  def _remove_partial(self) -> None:
    """Deletes what a killed process left while writing an episode. No other run writes to this folder."""
    for path in self._folder.glob('episode-*.npz.*.partial'):
      path.unlink()

  def _origin(self, number: int) -> episodes_lib.Origin | None:
    return None if self._run_id is None else episodes_lib.Origin(self._run_id, number)

  def _path(self, number: int) -> pathlib.Path:
    return self._folder / f'episode-{number:06d}.npz'
