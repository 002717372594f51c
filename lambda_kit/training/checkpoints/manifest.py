"""The manifest of a checkpoint: its files, their sizes and their checksums."""

from collections.abc import Mapping
import dataclasses
import hashlib
import os
import pathlib
import re
from typing import Any

from lambda_kit import reading
from lambda_kit.training.checkpoints import errors
from lambda_kit.training.checkpoints import scores
from lambda_kit.training.checkpoints import sealed

NAME = 'manifest.json'

_FORMAT = 'lambda_kit checkpoint'
_VERSION = 1
_FILE_NAME = re.compile(r'\w[\w.]*')


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
  """The content of `manifest.json`."""

  step: int
  score: Mapping[str, Any] | None  # See `scores.py`.
  files: Mapping[str, Entry]
  run_id: str | None = None  # Of the run that wrote it; runs had none at first.

  def to_bytes(self) -> bytes:
    return sealed.to_bytes(_FORMAT, _VERSION, dataclasses.asdict(self))


def read(folder: pathlib.Path) -> Manifest:
  """Reads the manifest of the checkpoint in a folder.

  Raises:
    DamagedError: It is not what was written.
    CheckpointError: It has another version of the format.
  """
  content = sealed.read(folder / NAME, _FORMAT, _VERSION, 'Resume with the version of lambda_kit that wrote it.')
  with errors.wrong_content_is_damage(folder / NAME):
    return Manifest(content['step'], scores.check(content['score']), entries(content['files']), content.get('run_id'))


def entries(content: Mapping[str, Any]) -> dict[str, Entry]:
  """Reads entries from JSON, by file name. Raises a ValueError for a name that could lead out of the folder."""
  for name in content:
    if not _FILE_NAME.fullmatch(name):
      raise ValueError(f'{name!r} is not the name of a file')
  return {name: Entry(**entry) for name, entry in content.items()}


def verify(folder: pathlib.Path, expected: Mapping[str, Entry], source: str = NAME) -> None:
  """Raises `DamagedError` unless the files of a folder are as the file `source` describes them."""
  for name, entry in expected.items():
    path = folder / name
    with errors.missing_is_damage(path):
      with reading.open_regular(path, follow_links=True) as file:
        size = os.fstat(file.fileno()).st_size
        if size != entry.size:
          raise errors.DamagedError(f'{path} has {size} bytes instead of {entry.size}')
        checksum = hashlib.file_digest(file, 'sha256').hexdigest()
    if checksum != entry.sha256:
      raise errors.DamagedError(f'{path} has another checksum than {source} says')
