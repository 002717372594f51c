"""`run.json` in a workdir: what the run is, its versions, how long it has worked, and whether it is finished.

Training writes it, for the first time before the first step. Reports and sweeps identify a run by it and by nothing
else in a workdir.
"""

import dataclasses
import datetime
import json
import pathlib
from typing import Any

from lambda_kit import errors
from lambda_kit import files
from lambda_kit import reading
from lambda_kit.analysis import identity as identity_lib
from lambda_kit.analysis import versions as versions_lib
from lambda_kit.analysis.metrics import protocols

NAME = 'run.json'
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

  def going_on(self, before: 'RunRecord') -> 'RunRecord':
    """Returns the record of a resumed run, whose record was `before`."""
    past = Earlier(before.identity.config_hash, before.versions)
    changed = past != Earlier(self.identity.config_hash, self.versions)
    return dataclasses.replace(self, earlier=before.earlier + (past,) * changed, seconds=before.seconds)

  def after(self, seconds: float) -> 'RunRecord':
    """Returns the record after further work."""
    return dataclasses.replace(self, seconds=self.seconds + seconds)

  def finish(self, environment_steps: int) -> 'RunRecord':
    """Returns the record with the mark of a finished run."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')
    return dataclasses.replace(self, finished=Finished(now, environment_steps))


def write(folder: pathlib.Path, record: RunRecord) -> None:
  """Writes the record of a workdir, complete or not at all."""
  identity = {**dataclasses.asdict(record.identity), 'protocol': record.identity.protocol.to_json()}
  others = dataclasses.asdict(record)
  del others['identity']
  try:
    files.write_atomically(folder / NAME, json.dumps({**identity, **others}, indent=1) + '\n')
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
    return _parse(reading.read_json(folder / NAME))
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


def _whole(value: dict[str, Any], name: str) -> int:
  number = _typed(value, name, int)
  if isinstance(number, bool) or not 0 <= number < _LARGEST:
    raise ValueError(f'{name} is {number!r}')
  return number
