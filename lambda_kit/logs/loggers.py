"""Loggers of a run's rows: JSON lines, TensorBoard, and groups of loggers.

A row is a dict of scalars and small arrays, and always has 'environment_steps'. Its kind is one of:
  'episode'     one finished training episode: episode_return, cost_return [C], cost_regret, length, ...
  'evaluation'  means over E episodes, and the episodes themselves as `episode_returns` [E], `cost_returns` [E, C].
  'learner'     scalar metrics of the learner.
  'diagnosis'   a warning about the run.
"""

from collections.abc import Iterator, Sequence
import contextlib
import errno
import io
import json
import math
import os
import pathlib
import time
from typing import Any, BinaryIO

from absl import logging
import numpy as np
from PIL import Image
from tensorboardX import event_file_writer
from tensorboardX import summary as summary_lib
from tensorboardX.proto import event_pb2
from tensorboardX.proto import summary_pb2

from lambda_kit import core
from lambda_kit import files
from lambda_kit.analysis import rows as rows_lib

KINDS = ('episode', 'evaluation', 'learner', 'diagnosis')

# Rows hold these for each evaluation episode: distributions, not vectors over constraints.
PER_EPISODE = ('episode_returns', 'cost_returns')
_RGB = 3  # In TensorBoard's numbering of colour spaces.


class JsonlLogger(core.Logger):
  """Appends each row as one line of strict JSON to `<directory>/<kind>.jsonl`, with its unix `time`.

  JSON has no NaN and no infinities. They are written as null, which `np.asarray(values, float)` reads as NaN. Every row
  is flushed, so a crash can tear only the last line. A torn line is removed before the file is continued.

  Args:
    directory: Where the files are, or will be; created if needed.
    suffix: Of the files' names.
    run_id: Of the run, which seals its rows; see `analysis/rows.py`. By default they have no seal.
  """

  def __init__(self, directory: str | os.PathLike, suffix: str = '.jsonl', run_id: str | None = None):
    self._directory = pathlib.Path(directory)
    self._suffix = suffix
    self._run_id = run_id
    self._files: dict[str, BinaryIO] = {}
    with naming(self._directory):
      self._directory.mkdir(parents=True, exist_ok=True)

  def path(self, kind: str) -> pathlib.Path:
    """The file of a kind of rows."""
    return self._directory / f'{kind}{self._suffix}'

  def write(self, kind: str, row: dict[str, Any]) -> None:
    self.append(kind, self.encode(row))

  def encode(self, row: dict[str, Any]) -> bytes:
    """Returns a row as a line of a file, with the time of this moment."""
    line = json.dumps({**_to_json(row), 'time': time.time()}, allow_nan=False)
    if self._run_id is not None:
      line = rows_lib.seal(line, self._run_id)
    return f'{line}\n'.encode()

  def append(self, kind: str, line: bytes) -> None:
    """Writes a row that is encoded already."""
    path = self.path(kind)
    with naming(path):
      if kind not in self._files:
        files.refuse_others(path)
        _cut_torn_line(path)
        self._files[kind] = open(path, 'ab')
      try:
        self._files[kind].write(line)
        self._files[kind].flush()
      except OSError:
        # Part of the line may be on disk. Without an open file, the next write opens and repairs it.
        with contextlib.suppress(OSError):
          self._files.pop(kind).close()
        raise

  def close(self) -> None:
    with contextlib.ExitStack() as stack:
      for file in self._files.values():
        stack.callback(file.close)
    self._files = {}


class TensorBoardLogger(core.Logger):
  """Writes scalars `<kind>/<metric>`, arrays as `<kind>/<metric>/<i>`, evaluation episodes as histograms, and pictures.

  Events are written in the calling thread. tensorboardX's own `SummaryWriter` uses a thread that dies on a full disk.
  The training loop would then wait forever for room in its queue.
  """

  def __init__(self, directory: str | os.PathLike, resume_from: int | None = None):
    """Starts a new event file.

    Args:
      directory: Folder of the event files; created if needed.
      resume_from: Environment steps of the checkpoint that a run resumes from. TensorBoard then hides later events of
        earlier files.
    """
    self._directory = pathlib.Path(directory)
    with naming(self._directory):
      self._directory.mkdir(parents=True, exist_ok=True)
      # The writer names its file by the second, and truncates it. Without a suffix, a quick restart would erase rows.
      self._writer = event_file_writer.EventsWriter(str(self._directory / 'events'), f'.{time.time_ns()}')
      if resume_from is not None:
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._writer.write_event(event_pb2.Event(session_log=start, step=resume_from + 1, wall_time=time.time()))
      self._writer.flush()

  def write(self, kind: str, row: dict[str, Any]) -> None:
    values: list[summary_pb2.Summary.Value] = []
    for name, value in row.items():
      if name not in ('environment_steps', 'time'):
        values.extend(_summary_values(f'{kind}/{name}', value, histogram=name in PER_EPISODE))
    self._write(values, int(row['environment_steps']), row.get('time'))

  def write_image(self, tag: str, encoded: bytes, environment_steps: int) -> None:
    """Writes a picture or a video.

    Args:
      tag: Its name.
      encoded: A PNG; for a video, an animated GIF.
      environment_steps: Environment steps at this time.
    """
    with Image.open(io.BytesIO(encoded)) as image:
      width, height = image.size
    image = summary_pb2.Summary.Image(height=height, width=width, colorspace=_RGB, encoded_image_string=encoded)
    self._write([summary_pb2.Summary.Value(tag=tag, image=image)], environment_steps)

  def close(self) -> None:
    with naming(self._directory):
      self._writer.close()

  def _write(self, values: list[summary_pb2.Summary.Value], step: int, wall_time: float | None = None) -> None:
    wall_time = time.time() if wall_time is None else wall_time  # Rows that were read from a log have their time.
    event = event_pb2.Event(summary=summary_pb2.Summary(value=values), wall_time=wall_time, step=step)
    with naming(self._directory):
      self._writer.write_event(event)
      self._writer.flush()


class LoggerGroup(core.Logger):
  """Passes each row to all of its loggers."""

  def __init__(self, loggers: Sequence[core.Logger]):
    self._loggers = tuple(loggers)

  def write(self, kind: str, row: dict[str, Any]) -> None:
    for logger in self._loggers:
      logger.write(kind, row)

  def close(self) -> None:
    """Closes all loggers, even if some of them fail. The first error is raised, others are logged."""
    first_error = None
    for logger in self._loggers:
      try:
        logger.close()
      except Exception as error:
        if first_error is None:
          first_error = error
        else:
          logging.error('%s could not be closed either: %s', type(logger).__name__, error)
    if first_error is not None:
      raise first_error


def _to_json(value: Any) -> Any:
  """Converts nested NumPy or JAX values to Python's own types, with None for non-finite numbers."""
  if value is None or isinstance(value, str):
    return value
  if isinstance(value, dict):
    return {str(name): _to_json(item) for name, item in value.items()}
  if isinstance(value, (list, tuple)):
    return [_to_json(item) for item in value]
  if isinstance(value, float):
    return value if math.isfinite(value) else None
  if isinstance(value, (bool, int)):
    return value
  if not hasattr(value, '__array__'):
    raise TypeError(f'A row holds numbers, text, and arrays or dicts of them; got a {type(value).__name__}: {value!r}.')
  return _to_json(np.asarray(value).tolist())


def _summary_values(tag: str, value: Any, histogram: bool) -> Iterator[summary_pb2.Summary.Value]:
  if value is None or isinstance(value, str):
    return
  value = np.asarray(value, np.float64)  # None inside a list becomes NaN.
  if not histogram:
    for index, item in np.ndenumerate(value):
      yield summary_pb2.Summary.Value(tag='/'.join([tag, *map(str, index)]), simple_value=item)
    return
  columns = {tag: value} if value.ndim == 1 else {f'{tag}/{i}': column for i, column in enumerate(value.T)}
  for name, column in columns.items():
    column = column[np.isfinite(column)]  # A histogram has no bin for other numbers.
    if column.size:
      yield from summary_lib.histogram(name, column, bins='auto').value


def _cut_torn_line(path: pathlib.Path) -> None:
  """Truncates a file to its last complete line."""
  size = path.stat().st_size if path.exists() else 0
  if not size:
    return
  with open(path, 'r+b') as file:
    complete = file.read(size).rfind(b'\n') + 1
    if complete < size:
      logging.warning('%s: the last line was torn, likely by a crash; %d bytes removed.', path, size - complete)
      file.truncate(complete)


_ADVICE = {
  errno.ENOSPC: 'The disk is full: free some space.',
  errno.EDQUOT: 'Your quota is used up: free some space.',
  errno.EACCES: 'Check its owner and permissions.',
  errno.EROFS: 'The file system is read-only: choose another directory.',
}


@contextlib.contextmanager
def naming(path: pathlib.Path) -> Iterator[None]:
  """Makes an `OSError` name the log that could not be written, and a remedy."""
  try:
    yield
  except OSError as error:
    advice = '' if error.errno is None else _ADVICE.get(error.errno, '')
    reason = f'The log can not be written: {error.strerror or error}. {advice}'.rstrip()
    raise OSError(error.errno, reason, str(path)) from error
