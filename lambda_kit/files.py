"""Writes files that are on the disk, not only in the operating system's cache, when a function returns."""

from collections.abc import Iterator
import contextlib
import os
import pathlib


def write(path: pathlib.Path, content: bytes) -> None:
  """Writes a new file. Its name survives a power failure only after `sync_folder`."""
  with open(path, 'xb') as file:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[pathlib.Path]:
  """Yields a path to write to, which is renamed to `path` at the end. After a failure, `path` is as it was before.

  The file extension is the same, for programs that choose a format by it.
  """
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  partial = path.with_name(f'.{path.stem}.{os.getpid()}.partial{path.suffix}')
  try:
    yield partial
    sync_file(partial)
    os.replace(partial, path)
    sync_folder(path.parent)
  finally:
    partial.unlink(missing_ok=True)


def write_atomically(path: str | os.PathLike, content: bytes | str) -> None:
  """Writes or replaces a file, completely or not at all. Text is UTF-8."""
  with replacing(path) as partial:
    partial.write_bytes(content.encode() if isinstance(content, str) else content)


def sync_file(path: pathlib.Path) -> None:
  """Makes a file's content survive a power failure."""
  with open(path, 'rb') as file:
    os.fsync(file.fileno())


def sync_folder(folder: pathlib.Path) -> None:
  """Makes the names in a folder survive a power failure."""
  descriptor = os.open(folder, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)
