"""The logs of a run, with copies beside its checkpoints: a damaged or lost log is rewritten when the run resumes.

<workdir>/
  episode.jsonl               the log, for readers
  checkpoints/episode.rows    the same bytes

A checkpoint says of each kind how many bytes there were when it was taken, and their checksum. So it stands for all
rows so far, and its size doesn't depend on their number.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import hashlib
import itertools
import os
import pathlib
from typing import Any

from absl import logging

from lambda_kit import core
from lambda_kit import files
from lambda_kit.analysis import rows as rows_lib
from lambda_kit.logs import loggers


class RunLogs(core.Logger):
  """Writes each row to a log of the workdir and to its copy. `restore` comes before the first row.

  Args:
    folder: The workdir.
    copies: Folder of the copies.
    run_id: Of the run, which seals its rows; see `analysis/rows.py`. By default they have no seal.
    writing: Entered for each write, which it may refuse.
  """

  def __init__(
    self,
    folder: pathlib.Path,
    copies: pathlib.Path,
    run_id: str | None = None,
    writing: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
  ):
    self._logs = loggers.JsonlLogger(folder, run_id=run_id)
    self._copies = loggers.JsonlLogger(copies, suffix='.rows')
    self._writing = writing
    self._written = {kind: _Written(b'', 0) for kind in loggers.KINDS}

  def write(self, kind: str, row: dict[str, Any]) -> None:
    line, written = self._logs.encode(row), self._written[kind]
    with self._writing():
      self._copies.append(kind, line)
      self._logs.append(kind, line)
    written.add(line, int(row['environment_steps']))

  def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields all rows so far, one kind after the other."""
    for kind in loggers.KINDS:
      if (path := self._logs.path(kind)).exists():
        for row in rows_lib.read_jsonl(path):
          yield kind, row

  def close(self) -> None:
    self._logs.close()
    self._copies.close()

  def sync(self) -> None:
    """Makes all rows survive a power failure."""
    for logger in (self._logs, self._copies):
      paths = [path for kind in loggers.KINDS if (path := logger.path(kind)).exists()]
      for path in paths:
        files.sync_file(path)
      if paths:
        files.sync_folder(paths[0].parent)

  def save(self) -> dict[str, Any]:
    """Returns what a checkpoint needs to restore the logs of this moment, as plain JSON."""
    return {kind: written.to_json() for kind, written in self._written.items()}

  def restore(self, state: Mapping[str, Any]) -> None:
    """Brings all logs to the bytes that they had when `save` returned `state`; {} stands for none.

    Later rows are dropped: they describe steps that will be taken again. Damage is told, and repaired if either the log
    or its copy is good; otherwise the rows stay that can be read.

    Raises:
      NotPlainError: Something that is no file is in the place of a log. Nothing was changed.
    """
    for kind, (log, of_log), (copy, of_copy) in self._read():
      expected = state.get(kind) or _Written(b'', 0).to_json()
      kept = _agreed(log, of_log, copy, of_copy, expected)
      _bring_to(log, of_log, kept)
      _bring_to(copy, of_copy, kept)
      self._written[kind] = _Written(kept, expected['environment_steps'])

  def adopt(self, environment_steps: int) -> None:
    """Keeps the rows up to a step, and copies them: checkpoints of older versions say nothing about logs."""
    for kind, (log, of_log), (copy, _) in self._read():
      kept = b''.join(line for line in of_log.splitlines(keepends=True) if _is_row(line, environment_steps))
      _bring_to(log, of_log, kept)
      if kept:
        files.write_atomically(copy, kept)
      self._written[kind] = _Written(kept, environment_steps)

  def _read(self) -> list[tuple[str, tuple[pathlib.Path, bytes], tuple[pathlib.Path, bytes]]]:
    """Returns each kind with the paths and contents of its log and its copy."""
    self.close()
    found = []
    for kind in loggers.KINDS:
      log, copy = self._logs.path(kind), self._copies.path(kind)
      found.append((kind, (log, _read(log)), (copy, _read(copy))))
    return found


class _Written:
  """All lines of a kind so far, and the environment steps of the last."""

  def __init__(self, lines: bytes, environment_steps: int):
    self._size = len(lines)
    self._rows = lines.count(b'\n')
    self._environment_steps = environment_steps
    self._hash = hashlib.sha256(lines)

  def add(self, line: bytes, environment_steps: int) -> None:
    self._size += len(line)
    self._rows += 1
    self._environment_steps = environment_steps
    self._hash.update(line)

  def to_json(self) -> dict[str, Any]:
    return dict(
      bytes=self._size, rows=self._rows, environment_steps=self._environment_steps, sha256=self._hash.hexdigest()
    )


def _read(path: pathlib.Path) -> bytes:
  """Returns a file's content, nothing if there is none."""
  files.refuse_others(path)
  with loggers.naming(path):
    return path.read_bytes() if path.exists() else b''


def _agreed(log: pathlib.Path, of_log: bytes, copy: pathlib.Path, of_copy: bytes, expected: Mapping[str, Any]) -> bytes:
  """Returns the lines that a checkpoint stands for, as far as one of two files has them."""
  for content in (of_log, of_copy):
    lines = content[: expected['bytes']]
    if hashlib.sha256(lines).hexdigest() == expected['sha256']:
      return lines
  last = expected['environment_steps']
  readable = [
    [line for line in content.splitlines(keepends=True) if _is_row(line, last)] for content in (of_log, of_copy)
  ]
  most = max(readable, key=len)
  logging.warning(
    '%s and %s are both damaged: %d of %d rows could be read, the others are lost.',
    log,
    copy,
    len(most),
    expected['rows'],
  )
  return b''.join(most)


def _is_row(line: bytes, last_step: int) -> bool:
  row = rows_lib.parse(line) if line.endswith(b'\n') else None
  return row is not None and row['environment_steps'] <= last_step


def _bring_to(path: pathlib.Path, content: bytes, kept: bytes) -> None:
  """Cuts a file to what is kept of it, or rewrites it. Cutting works on a full disk, too."""
  with loggers.naming(path):
    if not content.startswith(kept):
      old, new = (lines.splitlines() for lines in (content, kept))
      line = next(i for i, (a, b) in enumerate(itertools.zip_longest(old, new), start=1) if a != b)
      what = f'damaged from line {line} on' if content else 'lost'
      logging.warning('%s was %s. It is written again, with the %d rows up to the checkpoint.', path, what, len(new))
      files.write_atomically(path, kept)
      return
    # Rows behind the checkpoint are no loss, since the run repeats them.
    lines = content[len(kept) :].splitlines(keepends=True)
    rubbish = sum(len(line) for line in lines if not line.endswith(b'\n') or rows_lib.parse(line) is None)
    if rubbish:
      logging.warning('%s: %d bytes at its end are not rows, likely because of a crash; removed.', path, rubbish)
    if not kept:
      path.unlink(missing_ok=True)
    elif lines:
      os.truncate(path, len(kept))
