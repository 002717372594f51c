"""The checkpoints of one run, each a folder that is complete or absent.

checkpoints/
  step_000000012345/
    learner.safetensors    the arrays that were saved under the name `learner`
    state.json             whatever else the run needs to resume
    manifest.json          sizes and checksums of the other files, and the score
  step_000000012345.damaged          set aside, never deleted
  step_000000023456.partial.4711     being written, or being deleted, by process 4711
  step_000000012345.replaced.4711    being replaced by process 4711
"""

from collections.abc import Iterable, Mapping
import dataclasses
import errno
import json
import operator
import os
import pathlib
import re
import shutil
from typing import Any

from absl import logging

from lambda_kit import files
from lambda_kit.training.checkpoints import arrays as arrays_lib
from lambda_kit.training.checkpoints import errors
from lambda_kit.training.checkpoints import manifest as manifest_lib
from lambda_kit.training.checkpoints import scores

_STATE = 'state.json'
_COMPLETE = re.compile(r'step_(\d{12,})')
_DAMAGED = re.compile(r'step_\d{12,}\.damaged(\.\d+)?')
_LEFTOVER = re.compile(r'(step_\d{12,})\.(partial|replaced)\.(\d{1,9})')


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """A checkpoint with verified files."""

  path: pathlib.Path
  step: int
  state: dict[str, Any]
  score: Mapping[str, Any] | None
  names: tuple[str, ...]  # What `load` can read.

  def load(self, name: str, like: Any) -> Any:
    """Reads the arrays that were saved under a name; see `arrays.load_arrays`."""
    if name not in self.names:
      raise errors.MismatchError(
        f'{self.path} has no arrays named {name!r}, only {list(self.names)}. Resume with the '
        'configuration that it was written with.'
      )
    return arrays_lib.load_arrays(self.path / _file_of(name), like)


class CheckpointStore:
  """Writes, finds and deletes checkpoints. Only one process writes to a folder; others may read meanwhile.

  Args:
    folder: Created by the first save. Leftovers of processes that died while writing to it are removed.
    keep: Number of latest checkpoints to keep, in addition to the best safe one.
  """

  def __init__(self, folder: str | os.PathLike, keep: int = 3):
    if keep < 1:
      raise ValueError(f'At least one checkpoint must be kept, got keep={keep}.')
    self._folder = pathlib.Path(folder)
    self._keep = keep
    self._remove_leftovers()

  def save(
    self, step: int, arrays: Mapping[str, Any], state: Mapping[str, Any], score: Mapping[str, Any] | None = None
  ) -> pathlib.Path:
    """Writes a checkpoint, replacing one of the same step, then deletes those that need not be kept.

    Args:
      step: Orders checkpoints.
      arrays: Pytrees of arrays, by identifiers that become file names.
      state: Anything that JSON can hold. Tuples come back as lists, keys as strings.
      score: As in `scores.py`; None if the checkpoint was not evaluated.

    Returns:
      The checkpoint's folder.

    Raises:
      OSError: It could not be written, for example because the disk is full. Earlier checkpoints are untouched.
    """
    step = operator.index(step)
    if step < 0:
      raise ValueError(f'Steps are not negative, got {step}.')
    for name in arrays:
      if not name.isidentifier():
        raise ValueError(f'Arrays are named by identifiers, got {name!r}.')
    score = scores.check(score)
    encoded_state = json.dumps(state, indent=1).encode()
    target = self._path_of(step)
    partial, replaced = (target.with_name(f'{target.name}.{kind}.{os.getpid()}') for kind in ('partial', 'replaced'))
    try:
      try:
        self._folder.mkdir(parents=True, exist_ok=True)
        files.sync_folder(self._folder.parent)
        _remove(partial)  # An earlier save may have failed to.
        partial.mkdir()
        entries: dict[str, manifest_lib.Entry] = {}
        for name, tree in arrays.items():
          _write(partial / _file_of(name), arrays_lib.to_bytes(tree, {'step': str(step)}), entries)
        _write(partial / _STATE, encoded_state, entries)
        files.write(partial / manifest_lib.NAME, manifest_lib.Manifest(step, score, entries).to_bytes())
        files.sync_folder(partial)
        if target.exists():
          os.replace(target, replaced)
        os.replace(partial, target)
        files.sync_folder(self._folder)
      finally:
        _remove(partial)
        _restore_or_remove(replaced, target)
    except OSError as error:
      raise OSError(
        error.errno, f'The checkpoint can not be written: {error.strerror or error}. {_remedy(error)}', str(target)
      ) from error
    self._prune(step)
    return target

  def newest(self, before: int | None = None) -> Checkpoint | None:
    """Finds the newest good checkpoint. Damaged ones are set aside with a warning.

    Args:
      before: If given, only checkpoints of smaller steps count.

    Returns:
      None if the run has no checkpoint yet, or none before that step.

    Raises:
      CheckpointError: There are checkpoints, but all are damaged, or one has another version of the format.
    """
    found = self._first_good(step for step in reversed(self.steps()) if before is None or step < before)
    if found is None and before is None and (damaged := sorted(match[0] for match in self._matches(_DAMAGED))):
      raise errors.CheckpointError(
        f'No checkpoint in {self._folder} can be used; damaged are {", ".join(damaged)}. Copy a good one '
        'from a backup into the folder, or remove the damaged ones to start from the beginning.'
      )
    return found

  def best(self) -> Checkpoint | None:
    """Finds the good checkpoint with the highest return among the safe ones. None if there is none."""
    return self._first_good(scores.rank_safe(self._scores()))

  def at(self, step: int) -> Checkpoint:
    """Reads the checkpoint of a step.

    Raises:
      CheckpointError: There is none, or it is damaged.
    """
    if step not in self.steps():
      found = ', '.join(map(str, self.steps())) or 'none'
      raise errors.CheckpointError(f'{self._folder} has no checkpoint of step {step}. There are: {found}.')
    return _read(self._path_of(step), step)

  def set_aside(self, checkpoint: Checkpoint, reason: Exception) -> None:
    """Renames a checkpoint that can't be used although its own files are good, with a warning."""
    _set_aside(checkpoint.path, str(reason).rstrip('.'))

  def states(self) -> list[dict[str, Any]]:
    """Returns the states of all complete checkpoints that can be read, oldest first. Nothing is verified."""
    found = []
    for step in self.steps():
      try:
        found.append(json.loads((self._path_of(step) / _STATE).read_bytes()))
      except (OSError, ValueError):  # Deleted meanwhile, or damaged, which `newest` reports.
        continue
    return found

  def steps(self) -> list[int]:
    """Returns the steps of all complete checkpoints, good or not, in ascending order."""
    return sorted(int(match[1]) for match in self._matches(_COMPLETE))

  def _matches(self, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    """Matches of a pattern with the names in the folder."""
    try:
      return [match for name in os.listdir(self._folder) if (match := pattern.fullmatch(name))]
    except FileNotFoundError:
      return []

  def _path_of(self, step: int) -> pathlib.Path:
    return self._folder / f'step_{step:012d}'

  def _scores(self) -> dict[int, Mapping[str, Any] | None]:
    """Scores by step, of the checkpoints whose manifest can be read."""
    found = {}
    for step in self.steps():
      try:
        found[step] = manifest_lib.read(self._path_of(step)).score
      except errors.CheckpointError:  # `newest` reports it.
        continue
    return found

  def _first_good(self, steps: Iterable[int]) -> Checkpoint | None:
    for step in steps:
      path = self._path_of(step)
      try:
        return _read(path, step)
      except errors.DamagedError as error:
        if path.exists():  # Otherwise another process deleted it meanwhile.
          _set_aside(path, str(error))
    return None

  def _prune(self, saved: int) -> None:
    """Deletes what need not be kept, except what can't be read: `newest` deals with that."""
    found = self._scores()
    kept = {saved, *sorted(found)[-self._keep :], *scores.rank_safe(found)[:1]}
    for step in sorted(found.keys() - kept):
      path = self._path_of(step)
      doomed = path.with_name(f'{path.name}.partial.{os.getpid()}')
      try:
        os.replace(path, doomed)  # Otherwise a half-deleted checkpoint would look like a damaged one.
      except OSError as error:
        logging.warning('%s is no longer needed, but can not be deleted: %s', path, error)
      else:
        _remove(doomed)

  def _remove_leftovers(self) -> None:
    for match in self._matches(_LEFTOVER):
      original, kind, pid = match.groups()
      if int(pid) != os.getpid() and _is_alive(int(pid)):
        continue
      if kind == 'replaced':
        _restore_or_remove(self._folder / match[0], self._folder / original)
      else:
        _remove(self._folder / match[0])


def _file_of(name: str) -> str:
  return f'{name}.safetensors'


def _write(path: pathlib.Path, content: bytes, entries: dict[str, manifest_lib.Entry]) -> None:
  """Writes a file, and adds it to the entries of the manifest."""
  files.write(path, content)
  entries[path.name] = manifest_lib.Entry.of(content)


def _read(path: pathlib.Path, step: int) -> Checkpoint:
  manifest = manifest_lib.read(path)
  if manifest.step != step:
    raise errors.DamagedError(f'{path / manifest_lib.NAME} is of step {manifest.step}')
  manifest_lib.verify(path, manifest.files)
  with errors.missing_is_damage(path / _STATE):
    state = json.loads((path / _STATE).read_bytes())
  names = tuple(file.removesuffix('.safetensors') for file in manifest.files if file != _STATE)
  return Checkpoint(path, step, state, manifest.score, names)


def _set_aside(path: pathlib.Path, reason: str) -> None:
  target, number = path.with_name(f'{path.name}.damaged'), 0
  while target.exists():
    number += 1
    target = path.with_name(f'{path.name}.damaged.{number}')
  try:
    os.replace(path, target)
    logging.warning('A checkpoint is damaged and skipped: %s. Its folder is now %s.', reason, target.name)
  except OSError as problem:
    logging.warning('A checkpoint is damaged and skipped: %s. Its folder could not be renamed: %s', reason, problem)


def _remove(path: pathlib.Path) -> None:
  shutil.rmtree(path, ignore_errors=True)
  if path.exists():
    logging.warning('%s is no longer needed, but could not be deleted.', path)


def _restore_or_remove(replaced: pathlib.Path, target: pathlib.Path) -> None:
  """Finishes a replacement: restores the old checkpoint if the new one didn't get in place, else removes it."""
  if replaced.exists() and not target.exists():
    os.replace(replaced, target)
  else:
    _remove(replaced)


def _is_alive(pid: int) -> bool:
  try:
    os.kill(pid, 0)
  except ProcessLookupError:
    return False
  except PermissionError:  # The process exists, and belongs to another user.
    return True
  return True


def _remedy(error: OSError) -> str:
  if error.errno in (errno.ENOSPC, errno.EDQUOT):
    return 'Free some space on this disk, or keep fewer checkpoints. Earlier checkpoints are untouched'
  return 'Earlier checkpoints are untouched'
