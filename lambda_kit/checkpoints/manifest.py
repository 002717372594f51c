"""The manifest of a checkpoint: which files it has, how large they are, and their checksums."""

import dataclasses
import hashlib
import json
import pathlib
from typing import Any, Mapping

from lambda_kit.checkpoints import errors
from lambda_kit.checkpoints import files

NAME = 'manifest.json'

_FORMAT = 'lambda_kit checkpoint'
_VERSION = 1
_KEY = 'sha256'


@dataclasses.dataclass(frozen=True)
class Entry:
  """One file."""
  size: int  # Bytes.
  sha256: str

  @classmethod
  def of(cls, content: bytes) -> 'Entry':
    return cls(len(content), hashlib.sha256(content).hexdigest())


@dataclasses.dataclass(frozen=True)
class Manifest:
  """What `manifest.json` says."""
  step: int
  score: Mapping[str, Any] | None  # See `scores.py`.
  files: Mapping[str, Entry]

  def to_bytes(self) -> bytes:
    content = {'format': _FORMAT, 'version': _VERSION, **dataclasses.asdict(self)}
    return _dump({**content, _KEY: hashlib.sha256(_dump(content)).hexdigest()})


def read(folder: pathlib.Path) -> Manifest:
  """Reads the manifest of the checkpoint in a folder.

  Raises:
    DamagedError: It is not what was written.
    CheckpointError: It is of another version of the format.
  """
  path = folder / NAME
  with files.missing_is_damage(path):
    text = path.read_bytes()
  try:
    content = json.loads(text)
  except ValueError as error:
    raise errors.DamagedError(f'{path} ({len(text)} bytes) is no JSON: {error}') from error
  if not isinstance(content, dict) or content.get('format') != _FORMAT:
    raise errors.DamagedError(f'{path} does not say that it is of a {_FORMAT}')
  checked = {key: value for key, value in content.items() if key != _KEY}
  # Bytes are compared, not values: JSON has many texts for one value, and only one of them was written.
  if text != _dump({**checked, _KEY: hashlib.sha256(_dump(checked)).hexdigest()}):
    raise errors.DamagedError(f'{path} has another checksum than its content')
  if content['version'] != _VERSION:
    raise errors.CheckpointError(f'{path} has version {content["version"]} of the format, and this code reads version '
                                 f'{_VERSION}. Resume with the version of lambda_kit that wrote it.')
  entries = {name: Entry(**entry) for name, entry in content['files'].items()}
  return Manifest(content['step'], content['score'], entries)


def verify(folder: pathlib.Path, manifest: Manifest) -> None:
  """Raises `DamagedError` unless all files of a checkpoint are what was written."""
  for name, entry in manifest.files.items():
    path = folder / name
    with files.missing_is_damage(path):
      size = path.stat().st_size
      if size != entry.size:
        raise errors.DamagedError(f'{path} has {size} bytes instead of {entry.size}')
      with open(path, 'rb') as file:
        checksum = hashlib.file_digest(file, 'sha256').hexdigest()
    if checksum != entry.sha256:
      raise errors.DamagedError(f'{path} has another checksum than {NAME} says')


def _dump(content: Mapping[str, Any]) -> bytes:
  return json.dumps(content, indent=1, sort_keys=True).encode()
