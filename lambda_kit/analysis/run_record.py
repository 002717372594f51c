"""`run.json` in a workdir: what the run is, its versions, how long it has worked, and whether it is finished.

Training writes it, for the first time before the first step. Reports and sweeps identify a run by it and by nothing
else in a workdir. It holds the run's id, which all other files of the run carry, too, the checksum of `config.gin`, and
a checksum of itself.
"""

from collections.abc import Mapping
import dataclasses
import datetime
import hashlib
import json
import pathlib
import secrets
from typing import Any

from lambda_kit import errors
from lambda_kit import files
from lambda_kit import reading
from lambda_kit.analysis import identity as identity_lib
from lambda_kit.analysis import versions as versions_lib
from lambda_kit.analysis.metrics import protocols

NAME = 'run.json'
_KEY = 'sha256'
_LARGEST = 2**53  # Beyond it, whole numbers have no exact floats.


class RecordError(errors.UserError):
  """A run has no record, or one that can't be read."""


@dataclasses.dataclass(frozen=True)
class Finished:
  """The mark of a finished run."""

  time: str  # UTC.
  environment_steps: int  # That the run took.


@dataclasses.dataclass(frozen=True)
class Earlier:
  """Configuration and versions of a run before it was resumed with others."""

  config_hash: str
  versions: versions_lib.Versions


@dataclasses.dataclass(frozen=True)
class Optimum:
  """Expected return and costs of the best policy within the limits."""

  episode_return: float
  cost_return: tuple[float, ...]  # [C]


@dataclasses.dataclass(frozen=True)
class RunRecord:
  """The content of run.json."""

  identity: identity_lib.Identity
  versions: versions_lib.Versions  # The latest.
  earlier: tuple[Earlier, ...] = ()  # In order.
  optimum: Optimum | None = None  # Of the task; None if it is unknown.
  seconds: float = 0.0  # Of work so far, summed over the run's processes.
  finished: Finished | None = None
  run_id: str | None = None  # Runs had none at first.
  config_sha256: str | None = None  # Of config.gin.
  begun: bool = True  # From the first checkpoint on, which is saved before the first step.

  def going_on(self, before: 'RunRecord') -> 'RunRecord':
    """Returns the record of a resumed run, whose record was `before`."""
    if not before.begun:
      return dataclasses.replace(self, run_id=before.run_id)
    past = Earlier(before.identity.config_hash, before.versions)
    changed = past != Earlier(self.identity.config_hash, self.versions)
    return dataclasses.replace(
      self, earlier=before.earlier + (past,) * changed, seconds=before.seconds, run_id=before.run_id, begun=before.begun
    )

  def after(self, seconds: float) -> 'RunRecord':
    """Returns the record after further work."""
    return dataclasses.replace(self, seconds=self.seconds + seconds)

  def finish(self, environment_steps: int) -> 'RunRecord':
    """Returns the record with the mark of a finished run."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')
    return dataclasses.replace(self, finished=Finished(now, environment_steps))


def new_id() -> str:
  """Returns the id of a new run."""
  return secrets.token_hex(8)


def write(folder: pathlib.Path, record: RunRecord) -> None:
  """Writes the record of a workdir, complete or not at all."""
  identity = {**dataclasses.asdict(record.identity), 'protocol': record.identity.protocol.to_json()}
  others = dataclasses.asdict(record)
  del others['identity']
  try:
    files.write_atomically(folder / NAME, _seal({**identity, **others}))
  except OSError as error:
    raise OSError(
      error.errno, f'The record of the run can not be written: {error.strerror or error}', str(folder / NAME)
    ) from error


def read(folder: pathlib.Path) -> RunRecord:
  """Reads the record of a workdir.

  Raises:
    RecordError: It is missing or damaged.
  """
  try:
    text = reading.read_bytes(folder / NAME, reading.MAX_BYTES)
    value = reading.parse_json(text)
    record = _parse(value)
    # Records that are older than checksums have none.
    if (record.run_id is not None or _KEY in value) and text != _seal(value).encode():
      raise RecordError(f'{NAME} is damaged (its checksum does not match), so nobody knows what ran')
    return record
  except FileNotFoundError as error:
    raise RecordError(f'there is no {NAME}, so nobody knows what ran') from error
  except RecordError:
    raise
  except reading.RefusedError as error:
    raise RecordError(f'{NAME} is damaged ({error.reason}), so nobody knows what ran') from error
  except KeyError as error:
    raise RecordError(f'{NAME} is damaged (it has no {error.args[0]!r}), so nobody knows what ran') from error
  except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
    raise RecordError(f'{NAME} is damaged ({type(error).__name__}: {error}), so nobody knows what ran') from error


def _seal(value: Mapping[str, Any]) -> str:
  """Returns the text of a record with its checksum."""
  content = {name: item for name, item in value.items() if name != _KEY}
  checksum = hashlib.sha256(json.dumps(content).encode()).hexdigest()
  return json.dumps({**content, _KEY: checksum}, indent=1) + '\n'


def is_finished(folder: pathlib.Path) -> bool:
  """Whether a workdir holds a finished run."""
  try:
    record = read(folder)
  except (OSError, RecordError):
    return False
  return record.finished is not None and record.finished.environment_steps >= record.identity.environment_steps


def _parse(value: Any) -> RunRecord:
  if not isinstance(value, dict):
    raise TypeError(f'it is a {type(value).__name__}')
  identity = identity_lib.Identity(
    task=_name(value, 'task'),
    algorithm=_name(value, 'algorithm'),
    parts={role: _text(name) for role, name in _typed(value, 'parts', dict).items()},
    seed=_whole(value, 'seed'),
    protocol=protocols.Protocol.from_json(_typed(value, 'protocol', dict)),
    config_hash=_name(value, 'config_hash'),
    configuration=tuple(map(_text, _typed(value, 'configuration', list))),
    environment_steps=_whole(value, 'environment_steps'),
    evaluate_every=_whole(value, 'evaluate_every'),
  )
  if identity.protocol.task != identity.task or not 1 <= identity.protocol.environment_steps < _LARGEST:
    raise ValueError(f'its protocol is {identity.protocol}')
  seconds, finished = value['seconds'], value['finished']
  if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < _LARGEST:
    raise TypeError(f'seconds is {seconds!r}')
  return RunRecord(
    identity,
    _versions(value),
    tuple(Earlier(_typed(item, 'config_hash', str), _versions(item)) for item in _typed(value, 'earlier', list)),
    _optimum(value.get('optimum')),  # Records had none at first.
    float(seconds),
    None if finished is None else Finished(_typed(finished, 'time', str), _whole(finished, 'environment_steps')),
    # Records had none of these at first.
    _optional_text(value, 'run_id'),
    _optional_text(value, 'config_sha256'),
    _typed(value, 'begun', bool) if 'begun' in value else True,
  )


def _optimum(value: Any) -> Optimum | None:
  if value is None:
    return None
  optimum = Optimum(float(value['episode_return']), tuple(map(float, _typed(value, 'cost_return', list))))
  if not all(abs(number) < _LARGEST for number in (optimum.episode_return, *optimum.cost_return)):
    raise ValueError(f'its optimum is {optimum}')
  return optimum


def _versions(value: dict[str, Any]) -> versions_lib.Versions:
  found = _typed(value, 'versions', dict)
  if 'mujoco' not in found or not all(version is None or reading.is_line(version) for version in found.values()):
    raise RecordError(f'{NAME} is damaged (its versions are {found}), so nobody knows under which MuJoCo it ran')
  return found


def _typed(value: dict[str, Any], name: str, kind: type) -> Any:
  if not isinstance(value[name], kind):
    raise TypeError(f'{name} is {value[name]!r}')
  return value[name]


def _name(value: dict[str, Any], name: str) -> str:
  """A name, which reports show."""
  if not reading.is_line(value[name]):
    raise TypeError(f'{name} is {value[name]!r}')
  return value[name]


def _text(value: Any) -> str:
  if not isinstance(value, str):
    raise TypeError(f'{value!r} is not text')
  return value


def _optional_text(value: dict[str, Any], name: str) -> str | None:
  return None if value.get(name) is None else _typed(value, name, str)


def _whole(value: dict[str, Any], name: str) -> int:
  number = _typed(value, name, int)
  if isinstance(number, bool) or not 0 <= number < _LARGEST:
    raise ValueError(f'{name} is {number!r}')
  return number
