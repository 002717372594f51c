"""Folders of episodes: datasets to begin with instead of random data, and the episodes of a run to keep."""

from collections.abc import Iterable, Iterator
import os
import pathlib
import re

import gin
from lambda_kit.replay import episodes as episodes_lib

_NAME = re.compile(r'episode-(\d+)\.npz')


@gin.register
class EpisodeWriter:
  """Writes each episode that it gets to a file of its own, `episode-000123.npz`. Never overwrites one."""

  def __init__(self, folder: str | os.PathLike, header: episodes_lib.Header, compress: bool = True):
    """Makes the folder if needed.

    Args:
      folder: Where the files go. Numbers continue those of files that are there.
      header: The task of all episodes. A folder with episodes of another one is refused.
      compress: Whether to trade time for space: images then take about a fifth.
    """
    self._header = header
    self._folder = pathlib.Path(folder)
    self._compress = compress
    self._folder.mkdir(parents=True, exist_ok=True)
    files = episode_files(self._folder)
    if files:
      # The last one speaks for all: each run has checked it before it wrote.
      episodes_lib.read_episode(files[max(files)], header)
    self._next_number = max(files, default=-1) + 1

  @property
  def next_number(self) -> int:
    """The number of the next file."""
    return self._next_number

  def write(self, episode: episodes_lib.Episode) -> pathlib.Path:
    """Writes an episode and returns the path of its file."""
    while True:
      path = self._folder / f'episode-{self._next_number:06d}.npz'
      self._next_number += 1
      try:
        episodes_lib.write_episode(path, episode, self._header, self._compress)
        return path
      except FileExistsError:  # Another run writes to the same folder.
        continue


def save_dataset(
  folder: str | os.PathLike,
  episodes: Iterable[episodes_lib.Episode],
  header: episodes_lib.Header,
  compress: bool = True,
) -> int:
  """Writes episodes to a folder, after those that it has. Returns how many there were to write."""
  writer = EpisodeWriter(folder, header, compress)
  count = 0
  for episode in episodes:
    writer.write(episode)
    count += 1
  return count


@gin.register
def load_dataset(
  folder: str | os.PathLike, expected_header: episodes_lib.Header | None = None
) -> Iterator[episodes_lib.Episode]:
  """Reads the episodes of a folder one by one, by number: algorithm 2, line 1, 'from an offline dataset'.

  Args:
    folder: Made by `EpisodeWriter` or `save_dataset`.
    expected_header: The task that all episodes must belong to. By default, that of the first one.

  Raises:
    FileNotFoundError: There is no such folder, or no episode in it. Raised at once, not by the iterator.
    EpisodeFileError: A file is damaged. Raised by the iterator when it comes to the file.
    WrongTaskError: A file is of another task than expected, or than the first one. Likewise.
  """
  folder = pathlib.Path(folder)
  if not folder.is_dir():
    raise FileNotFoundError(
      f'There is no dataset folder {folder}. Give a folder that a run with an EpisodeWriter, or '
      'save_dataset, has written.'
    )
  files = episode_files(folder)
  if not files:
    raise FileNotFoundError(
      f'The dataset folder {folder} has no episodes: no file is named like episode-000000.npz. '
      'Give a folder that a run with an EpisodeWriter, or save_dataset, has written.'
    )
  return _read_all([files[number] for number in sorted(files)], expected_header)


def _read_all(paths: list[pathlib.Path], expected: episodes_lib.Header | None) -> Iterator[episodes_lib.Episode]:
  first_header = None
  for path in paths:
    episode, header = episodes_lib.read_episode(path, expected)
    first_header = first_header or header
    differences = header.differences(first_header)
    if differences:
      raise episodes_lib.WrongTaskError(
        f'{path} belongs to another task than {paths[0]}: {"; ".join(differences)}. Keep the episodes of each task '
        'in a folder of their own.'
      )
    yield episode


def episode_files(folder: pathlib.Path) -> dict[int, pathlib.Path]:
  """The episodes in a folder, by number."""
  matches = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir())
  return {int(match[1]): path for match, path in matches if match}
