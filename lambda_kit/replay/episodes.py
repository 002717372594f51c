"""Episodes, the unit of stored experience, and their files."""

from collections.abc import Iterator, Mapping
import contextlib
import dataclasses
import errno
import io
import json
import os
import pathlib
from typing import Any, BinaryIO, NamedTuple
import zipfile

import numpy as np

from lambda_kit import core
from lambda_kit import errors
from lambda_kit import files
from lambda_kit import reading

_FORMAT = 'lambda_kit episode'
_VERSION = 1
_SURPRISE = 'surprise'
_MAX_BYTES = 1 << 32  # Of an episode's arrays, which a file of a thousandth of that can hold.


class Episode(NamedTuple):
  """T agent steps, so T + 1 time steps. Entries of index t belong to the time step of o_t, as in a `Trajectory`."""

  observation: Mapping[str, np.ndarray]  # [T + 1, ...], in the dtype of the header: images uint8, vectors float32.
  action: np.ndarray  # [T + 1, A] float32, a_{t-1}, which led to o_t; 0 first.
  reward: np.ndarray  # [T + 1] float32, 0 first.
  cost: np.ndarray  # [T + 1, C] float32, 0 first.
  terminal: np.ndarray  # [T + 1] float32, 1 if the episode terminated in o_t. Only the last entry can be.
  # [T + 1] float32, how much more cost came around o_t than was forecast when the episode was new; None if unknown.
  surprise: np.ndarray | None = None

  @property
  def num_steps(self) -> int:
    """T."""
    return len(self.reward) - 1

  @property
  def num_bytes(self) -> int:
    return sum(array.nbytes for array in _stored_arrays(self).values())


class EpisodeFileError(errors.UserError, ValueError):
  """A file can't be used as an episode. The message names the file and the remedy."""


class WrongTaskError(EpisodeFileError):
  """A file holds an episode of another task."""


class Origin(NamedTuple):
  """Which run wrote an episode, and as which one of its own. Files of datasets have none."""

  run_id: str
  number: int


class Field(NamedTuple):
  """The shape and type of an array at one time step. In an episode, the time axis comes first."""

  shape: tuple[int, ...]
  dtype: str

  def __str__(self) -> str:
    return f'{self.dtype} {list(self.shape)}'


@dataclasses.dataclass(frozen=True)
class Header:
  """What the episodes of one task have in common."""

  task: str  # The environment's `task_name`.
  observations: Mapping[str, Field]
  action_shape: tuple[int, ...]
  constraint_names: tuple[str, ...]
  action_repeat: int  # Rewards and costs are sums over as many simulator steps.

  @classmethod
  def of(cls, environment_spec: core.EnvironmentSpec) -> 'Header':
    """The header of an environment's episodes. Floating point numbers are stored as float32."""
    observations = {}
    for name, spec in environment_spec.observations.items():
      dtype = np.float32 if np.issubdtype(spec.dtype, np.floating) else spec.dtype
      observations[name] = Field(tuple(spec.shape), np.dtype(dtype).name)
    return cls(
      environment_spec.task_name,
      observations,
      tuple(environment_spec.actions.shape),
      environment_spec.constraint_names,
      environment_spec.action_repeat,
    )

  @property
  def fields(self) -> dict[str, Field]:
    """One for each array of an episode, named as in `flatten`."""
    observations = {f'observation/{name}': field for name, field in self.observations.items()}
    return observations | {
      'action': Field(self.action_shape, 'float32'),
      'reward': Field((), 'float32'),
      'cost': Field((len(self.constraint_names),), 'float32'),
      'terminal': Field((), 'float32'),
    }

  @property
  def bytes_per_time_step(self) -> int:
    return sum(int(np.prod(field.shape)) * np.dtype(field.dtype).itemsize for field in self.fields.values())

  def differences(self, expected: 'Header') -> list[str]:
    """How this header differs from the expected one; empty if their episodes can be mixed."""
    found = []
    if self.task != expected.task:
      found.append(f'task is {self.task!r} instead of {expected.task!r}')
    for name in sorted({*self.observations, *expected.observations}):
      ours, theirs = self.observations.get(name, 'absent'), expected.observations.get(name, 'absent')
      if ours != theirs:
        found.append(f'observation {name!r} is {ours} instead of {theirs}')
    for name in ('action_shape', 'constraint_names', 'action_repeat'):
      ours, theirs = getattr(self, name), getattr(expected, name)
      if ours != theirs:
        found.append(f'{name} is {ours} instead of {theirs}')
    return found

  def to_json(self, origin: 'Origin | None' = None) -> str:
    written = {'format': _FORMAT, 'version': _VERSION, **dataclasses.asdict(self)}
    return json.dumps(written | ({} if origin is None else origin._asdict()))

  @classmethod
  def from_json(cls, text: str) -> 'Header':
    values = json.loads(text)
    if not isinstance(values, dict) or values.get('format') != _FORMAT:
      raise ValueError(f'its header does not say that it is a {_FORMAT}')
    if values['version'] != _VERSION:
      raise ValueError(f'it has version {values["version"]} of the format, but this code reads version {_VERSION}')
    observations = {name: Field(tuple(shape), dtype) for name, (shape, dtype) in values['observations'].items()}
    return cls(
      values['task'],
      observations,
      tuple(values['action_shape']),
      tuple(values['constraint_names']),
      values['action_repeat'],
    )


def flatten(episode: Episode) -> dict[str, np.ndarray]:
  """The arrays of the task, observations as 'observation/<name>'."""
  observations = {f'observation/{name}': array for name, array in episode.observation.items()}
  return observations | {name: getattr(episode, name) for name in ('action', 'reward', 'cost', 'terminal')}


def _stored_arrays(episode: Episode) -> dict[str, np.ndarray]:
  """Those of `flatten`, and what is known beside them."""
  return flatten(episode) | ({} if episode.surprise is None else {_SURPRISE: episode.surprise})


def read_only_copy(episode: Episode) -> Episode:
  """A copy of all arrays that nobody can change, and none of which is a view that keeps a larger one alive."""
  arrays = {name: np.array(array, order='C') for name, array in _stored_arrays(episode).items()}
  for array in arrays.values():
    array.flags.writeable = False
  return Episode(**unflatten(arrays))


def unflatten(arrays: Mapping[str, Any]) -> dict[str, Any]:
  """The fields of an `Episode` or a `types.Trajectory`, from arrays named as by `flatten`."""
  prefix = 'observation/'
  fields: dict[str, Any] = {'observation': {}}
  for name, array in arrays.items():
    if name.startswith(prefix):
      fields['observation'][name.removeprefix(prefix)] = array
    else:
      fields[name] = array
  return fields


def check(episode: Episode, header: Header) -> None:
  """Raises a ValueError if an episode doesn't match its header, or has non-finite entries."""
  arrays, fields = flatten(episode), header.fields
  if arrays.keys() != fields.keys():
    raise ValueError(f'The episode has {sorted(arrays)}, but its task has {sorted(fields)}.')
  length = len(episode.reward)  # T + 1
  if length < 2:
    raise ValueError(f'An episode has at least 2 time steps, got {length}.')
  if episode.surprise is not None:
    arrays, fields = _stored_arrays(episode), {**fields, _SURPRISE: Field((), 'float32')}
    if np.any(episode.surprise < 0.0):
      raise ValueError(f'{_SURPRISE} has negative entries.')
  for name, field in fields.items():
    array = arrays[name]
    if array.shape != (length, *field.shape) or array.dtype != field.dtype:
      raise ValueError(
        f'{name} of an episode with {length} time steps is {array.dtype} {list(array.shape)} instead of '
        f'{field.dtype} {[length, *field.shape]}.'
      )
    if array.dtype.kind == 'f' and not np.isfinite(array).all():
      raise ValueError(
        f'{name} has entries that are not finite, first at time step '
        f'{np.argwhere(~np.isfinite(array))[0][0]} of {length}.'
      )


def write_episode(
  path: str | os.PathLike, episode: Episode, header: Header, compress: bool = False, origin: Origin | None = None
) -> None:
  """Writes an episode as an archive for `np.load`. The file gets its name only when it is complete and on disk.

  A file of that name is not replaced: a `FileExistsError` is raised.

  Args:
    path: Its folder must exist.
    episode: Must fit the header.
    header: Goes into the file.
    compress: Whether to trade time for space: 6 MB of images become 1.3 MB in 0.15 s.
    origin: Goes into the file, too.
  """
  check(episode, header)
  path = pathlib.Path(path)
  partial = path.with_name(f'{path.name}.{os.getpid()}.partial')
  try:
    try:
      with open(partial, 'wb') as file:
        _write_arrays(file, {'header': np.array(header.to_json(origin)), **_stored_arrays(episode)}, compress)
        file.flush()
        os.fsync(file.fileno())
      _rename_to_new(partial, path)
      files.sync_folder(path.parent)
    finally:
      partial.unlink(missing_ok=True)
  except FileExistsError:
    raise
  except OSError as error:
    raise OSError(error.errno, f'The episode cannot be written: {error.strerror or error}', str(path)) from error


def read_episode(path: str | os.PathLike, expected: Header | None = None) -> tuple[Episode, Header]:
  """Reads a file and checks it.

  Args:
    path: A file written by `write_episode`.
    expected: The task that the episode must belong to. By default, any.

  Returns:
    The episode and the header of its file.

  Raises:
    EpisodeFileError: The file is damaged.
    WrongTaskError: It belongs to another task.
  """
  with _reading(path) as archive:
    header = Header.from_json(str(_read_array(archive, 'header')))
    differences = header.differences(expected) if expected else []
    if not differences:
      known = {_SURPRISE} & {name.removesuffix('.npy') for name in archive.namelist()}
      episode = Episode(**unflatten({name: _read_array(archive, name) for name in (*header.fields, *known)}))
      check(episode, header)
  if differences:
    raise WrongTaskError(
      f'{path} belongs to another task: {"; ".join(differences)}. Choose the dataset of this task, '
      'or configure the environment as it was when the file was written.'
    )
  return episode, header


def read_origin(path: str | os.PathLike) -> Origin | None:
  """Reads which run wrote a file; None if it is of a dataset, or of a run that is older than ids.

  Raises:
    EpisodeFileError: The file is damaged.
  """
  with _reading(path) as archive:
    values = json.loads(str(_read_array(archive, 'header')))
    return Origin(values['run_id'], values['number']) if 'run_id' in values else None


@contextlib.contextmanager
def _reading(path: str | os.PathLike) -> Iterator[zipfile.ZipFile]:
  try:
    file = reading.open_regular(path, follow_links=True)  # A missing file is not a damaged one.
  except reading.RefusedError as error:
    raise EpisodeFileError(f'{error} Choose a folder of episodes.') from error
  with file:
    try:
      with zipfile.ZipFile(file) as archive:
        expanded = sum(member.file_size for member in archive.infolist())
        if expanded > _MAX_BYTES:
          raise ValueError(f'it would expand to {expanded:,} bytes')
        yield archive
    except Exception as error:  # The zip and npy readers can raise anything on a damaged file.
      raise EpisodeFileError(
        f'{path} is damaged, or was not written by lambda_kit: {error or type(error).__name__}. '
        'Copy it again from its source; from a dataset, it may also be removed.'
      ) from error


def _write_arrays(file: BinaryIO, arrays: Mapping[str, np.ndarray], compress: bool) -> None:
  """Like `np.savez_compressed`, but compresses faster, and only if asked to."""
  compression = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
  with zipfile.ZipFile(file, 'w', compression, compresslevel=1) as archive:
    for name, array in arrays.items():
      with archive.open(f'{name}.npy', 'w', force_zip64=True) as member:
        np.lib.format.write_array(member, array, allow_pickle=False)


def _read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
  # Read as a whole first, which verifies the checksum. Of the size that it says: `ZipFile.read` expands all there is.
  member = archive.getinfo(f'{name}.npy')
  with archive.open(member) as file:
    content = io.BytesIO(file.read(member.file_size))
  return np.lib.format.read_array(content, allow_pickle=False)


def _rename_to_new(source: pathlib.Path, target: pathlib.Path) -> None:
  """Renames a file unless the target exists, even if it is created at the same time."""
  try:
    os.link(source, target)
  except OSError as error:
    if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):  # File systems without hard links.
      raise
    if target.exists():
      raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
    os.rename(source, target)
