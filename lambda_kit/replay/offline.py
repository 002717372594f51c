"""Offline datasets: folders of episodes, to start from instead of random data."""

from collections.abc import Iterable, Iterator
import os
import pathlib
import re

from lambda_kit.replay import episodes as episodes_lib

_NAME = re.compile(r'episode-(\d+)\.npz')


def save_dataset(
  folder: str | os.PathLike,
  episodes: Iterable[episodes_lib.Episode],
  header: episodes_lib.Header,
  compress: bool = True,
) -> int:
  """Writes each episode to a file of its own, such as `episode-000123.npz`, and returns how many there were.

  Args:
    folder: Created if needed. Numbers continue those of its files, which are never overwritten.
    episodes: Episodes of one task.
    header: The task. A folder with episodes of another one is refused.
    compress: Whether to trade time for space: compressed images take about a fifth.
  """
  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  files = episode_files(folder)
  if files:
    episodes_lib.read_episode(files[max(files)], header)  # One is enough: each was checked when it was written.
  number, count = max(files, default=-1), 0
  for episode in episodes:
    count += 1
    while True:
      number += 1
      try:
        episodes_lib.write_episode(folder / f'episode-{number:06d}.npz', episode, header, compress)
        break
      except FileExistsError:  # Another process writes to the same folder.
        continue
  return count


def load_dataset(
  folder: str | os.PathLike, expected_header: episodes_lib.Header | None = None
) -> Iterator[episodes_lib.Episode]:
  """Reads the episodes of a folder one by one, by number: algorithm 2, line 1, 'from an offline dataset'.

  Args:
    folder: Written by `save_dataset`, or the `replay` folder of a run.
    expected_header: The task that all episodes must belong to. By default, that of the first one.

  Raises:
    FileNotFoundError: There is no such folder, or no episode in it. Raised at once, not by the iterator.
    EpisodeFileError: A file is damaged. Raised when the iterator reaches it.
    WrongTaskError: A file belongs to another task than expected, or than the first file. Likewise.
  """
  folder = pathlib.Path(folder)
  if not folder.is_dir():
    raise FileNotFoundError(
      f'There is no dataset folder {folder}. Give the replay folder of a run, or one that save_dataset has written.'
    )
  files = episode_files(folder)
  if not files:
    raise FileNotFoundError(
      f'The dataset folder {folder} has no episodes: no file is named like episode-000000.npz. '
      'Give the replay folder of a run, or one that save_dataset has written.'
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
        'in their own folder.'
      )
    yield episode


def episode_files(folder: pathlib.Path) -> dict[int, pathlib.Path]:
  """The episodes in a folder, by number."""
  matches = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir())
  return {int(match[1]): path for match, path in matches if match}
