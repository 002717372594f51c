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

from collections.abc import Callable, Iterable, Mapping
import contextlib
import dataclasses
import errno
import json
import operator
import os
import pathlib
import re
from typing import Any

from absl import logging

from lambda_kit import files
from lambda_kit import reading
from lambda_kit.training.checkpoints import arrays as arrays_lib
from lambda_kit.training.checkpoints import errors
from lambda_kit.training.checkpoints import folders
from lambda_kit.training.checkpoints import manifest as manifest_lib
from lambda_kit.training.checkpoints import scores

_STATE = 'state.json'
_MAX_STATE = 1 << 28  # Bytes.
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
    folder: Created by the first save.
    keep: Number of latest checkpoints to keep, in addition to the best safe one.
    run_id: Of the run. Checkpoints of other runs are refused, and never deleted. By default those of any run are read.
    writing: Entered when a new checkpoint gets its place, and when others are deleted, which it may refuse.
  """

  def __init__(
    self,
    folder: str | os.PathLike,
    keep: int = 3,
    run_id: str | None = None,
    writing: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
  ):
    if keep < 1:
      raise ValueError(f'At least one checkpoint must be kept, got keep={keep}.')
    self._folder = pathlib.Path(folder)
    self._keep = keep
    self._run_id = run_id
    self._writing = writing

  def restore_replaced(self) -> None:
    """Gives checkpoints their names back that a process was replacing when it died. For the writer only."""
    for match in self._leftovers():
      target = self._folder / match[1]
      if match[2] == 'replaced' and not target.exists():
        os.replace(self._folder / match[0], target)

  def remove_leftovers(self) -> None:
    """Removes what else processes left when they died while writing. For the writer only."""
    self.restore_replaced()
    for match in self._leftovers():
      folders.remove(self._folder / match[0])

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
        folders.remove(partial)  # An earlier save may have failed to.
        partial.mkdir()
        entries: dict[str, manifest_lib.Entry] = {}
        for name, tree in arrays.items():
          _write(partial / _file_of(name), arrays_lib.to_bytes(tree, {'step': str(step)}), entries)
        _write(partial / _STATE, encoded_state, entries)
        manifest = manifest_lib.Manifest(step, score, entries, self._run_id)
        files.write(partial / manifest_lib.NAME, manifest.to_bytes())
        files.sync_folder(partial)
        with self._writing():
          self._make_way(step, replaced)
          os.replace(partial, target)
          files.sync_folder(self._folder)
      finally:
        folders.remove(partial)
        folders.restore_or_remove(replaced, target)
    except OSError as error:
      raise OSError(
        error.errno, f'The checkpoint can not be written: {error.strerror or error}. {_remedy(error)}', str(target)
      ) from error
    with self._writing():
      self._prune(step)
    return target

  def newest(self, before: int | None = None) -> Checkpoint | None:
    """Finds the newest good checkpoint. Damaged ones are set aside with a warning.

    Args:
      before: If given, only checkpoints of smaller steps count.

    Returns:
      None if the run has no checkpoint yet, or none before that step.

    Raises:
      CheckpointError: There are checkpoints, but all are damaged, or one is of another run or another version of the
        format.
    """
    found = self._first_good(step for step in reversed(self.steps()) if before is None or step < before)
    if found is None and before is None and (damaged := sorted(match[0] for match in self._matches(_DAMAGED))):
      raise errors.CheckpointError(
        f'No checkpoint in {self._folder} can be used; damaged are {", ".join(damaged)}. Copy a good one '
        'from a backup into the folder, or give --restart, which moves the whole run aside and starts anew.'
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
    return self._read(step)

  def set_aside(self, checkpoint: Checkpoint, reason: Exception) -> None:
    """Renames a checkpoint that can't be used although its own files are good, with a warning."""
    folders.set_aside(checkpoint.path, str(reason).rstrip('.'))

  def states(self) -> list[dict[str, Any]]:
    """Returns the states of all good checkpoints, oldest first. Their arrays are not verified."""
    found = []
    for step, manifest in self._manifests().items():
      with contextlib.suppress(errors.DamagedError):  # `newest` reports it.
        found.append(_read_state(self._path_of(step), manifest))
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

  def _leftovers(self) -> list[re.Match[str]]:
    """What processes of this machine left that are not alive."""
    return [match for match in self._matches(_LEFTOVER) if not files.is_alive(int(match[3]))]

  def _path_of(self, step: int) -> pathlib.Path:
    return self._folder / f'step_{step:012d}'

  def _manifests(self) -> dict[int, manifest_lib.Manifest]:
    """Manifests by step, of this run's checkpoints whose manifest can be read."""
    found = {}
    for step in self.steps():
      try:
        found[step] = manifest_lib.read(self._path_of(step))
      except errors.CheckpointError:  # `newest` reports it.
        continue
    return {step: manifest for step, manifest in found.items() if self._is_own(manifest)}

  def _scores(self) -> dict[int, Mapping[str, Any] | None]:
    return {step: manifest.score for step, manifest in self._manifests().items()}

  def _is_own(self, manifest: manifest_lib.Manifest) -> bool:
    return self._run_id is None or manifest.run_id == self._run_id

  def _read(self, step: int) -> Checkpoint:
    path = self._path_of(step)
    manifest = manifest_lib.read(path)
    if not self._is_own(manifest):
      raise errors.MismatchError(
        f'{path} was written by {f"run {manifest.run_id}" if manifest.run_id else "an older run"}, and this is run '
        f"{self._run_id}. Move it out of the folder, and put back this run's own checkpoints if they are elsewhere."
      )
    if manifest.step != step:
      raise errors.DamagedError(f'{path / manifest_lib.NAME} is of step {manifest.step}')
    manifest_lib.verify(path, manifest.files)
    names = tuple(file.removesuffix('.safetensors') for file in manifest.files if file != _STATE)
    return Checkpoint(path, step, _read_state(path, manifest), manifest.score, names)

  def _make_way(self, step: int, replaced: pathlib.Path) -> None:
    """Renames an earlier checkpoint of a step."""
    path = self._path_of(step)
    if step in self._manifests():
      os.replace(path, replaced)
    elif path.exists():
      folders.set_aside(path, f'{path} is damaged, or was not written by this run')

  def _first_good(self, steps: Iterable[int]) -> Checkpoint | None:
    for step in steps:
      path = self._path_of(step)
      try:
        return self._read(step)
      except errors.DamagedError as error:
        if path.exists():  # Otherwise another process deleted it meanwhile.
          folders.set_aside(path, str(error))
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
        folders.remove(doomed)


def _file_of(name: str) -> str:
  return f'{name}.safetensors'


def _write(path: pathlib.Path, content: bytes, entries: dict[str, manifest_lib.Entry]) -> None:
  """Writes a file, and adds it to the entries of the manifest."""
  files.write(path, content)
  entries[path.name] = manifest_lib.Entry.of(content)


def _read_state(path: pathlib.Path, manifest: manifest_lib.Manifest) -> dict[str, Any]:
  if _STATE not in manifest.files:
    raise errors.DamagedError(f'{path / manifest_lib.NAME} does not name {_STATE}')
  manifest_lib.verify(path, {_STATE: manifest.files[_STATE]})
  with errors.missing_is_damage(path / _STATE):
    state = reading.read_json(path / _STATE, _MAX_STATE, follow_links=True)
  if not isinstance(state, dict):
    raise errors.DamagedError(f'{path / _STATE} holds no state of a run')
  return state


def _remedy(error: OSError) -> str:
  if error.errno in (errno.ENOSPC, errno.EDQUOT):
    return 'Free some space on this disk, or keep fewer checkpoints. Earlier checkpoints are untouched'
  return 'Earlier checkpoints are untouched'
