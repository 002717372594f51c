"""JSON files that name their format, and hold a checksum of their own content."""

from collections.abc import Mapping
import hashlib
import json
import pathlib
from typing import Any

from lambda_kit import reading
from lambda_kit.training.checkpoints import errors

_KEY = 'sha256'


def to_bytes(format_name: str, version: int, content: Mapping[str, Any]) -> bytes:
  """Returns the text of a file. `content` is anything that JSON can hold, under keys other than those added here."""
  content = {**content, 'format': format_name, 'version': version}
  return _dump({**content, _KEY: _checksum(content)})


def read(path: pathlib.Path, format_name: str, version: int, remedy: str) -> dict[str, Any]:
  """Reads a file.

  Args:
    path: The file.
    format_name: The expected format.
    version: The expected version of the format.
    remedy: What a user can do about another version, the end of the error's message.

  Raises:
    DamagedError: It is not what was written.
    CheckpointError: It has another version of the format.
  """
  with errors.missing_is_damage(path):
    text = reading.read_bytes(path, reading.MAX_BYTES, follow_links=True)
  try:
    content = reading.parse_json(text)
  except ValueError as error:
    raise errors.DamagedError(f'{path} ({len(text)} bytes): {error}') from error
  if not isinstance(content, dict) or content.get('format') != format_name:
    raise errors.DamagedError(f'{path} is not marked as the file of a {format_name}')
  checked = {key: value for key, value in content.items() if key != _KEY}
  # Compares bytes, not values: JSON has many texts for one value, and only one of them was written.
  if text != _dump({**checked, _KEY: _checksum(checked)}):
    raise errors.DamagedError(f'{path}: its checksum does not match its content')
  if content.get('version') != version:
    raise errors.CheckpointError(
      f'{path} has version {content.get("version")} of the format, and this code reads version {version}. {remedy}'
    )
  return checked


def _checksum(content: Mapping[str, Any]) -> str:
  return hashlib.sha256(_dump(content)).hexdigest()


def _dump(content: Mapping[str, Any]) -> bytes:
  return json.dumps(content, indent=1, sort_keys=True).encode()
