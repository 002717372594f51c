"""A pytree of arrays as one safetensors file, which any reader of that format opens.

The header's metadata hold a SHA-256 of the rest of the file, so that every flipped bit is found. Nothing is pickled.
"""

from collections.abc import Iterator, Mapping
import hashlib
import math
import os
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from lambda_kit import reading
from lambda_kit.training.checkpoints import errors

# By name in safetensors.
_DTYPES = {
  'BOOL': np.dtype(bool),
  'U8': np.dtype('uint8'),
  'I8': np.dtype('int8'),
  'U16': np.dtype('uint16'),
  'I16': np.dtype('int16'),
  'U32': np.dtype('uint32'),
  'I32': np.dtype('int32'),
  'U64': np.dtype('uint64'),
  'I64': np.dtype('int64'),
  'F16': np.dtype('float16'),
  'BF16': np.dtype(jnp.bfloat16),
  'F32': np.dtype('float32'),
  'F64': np.dtype('float64'),
}
_SUPPORTED = frozenset(dtype.name for dtype in _DTYPES.values())

# The checksum in the header follows this mark. It occurs only once: keys of metadata are identifiers, quotes within
# values are escaped, and the name of an array is followed by an object.
_KEY = 'sha256'
_MARK = f'"{_KEY}":"'.encode()
_DIGITS = 64

_MAX_OTHER_BYTES = 1 << 28  # Beyond twice the expected arrays: names, and others that an error can describe.
_MAX_NAMED = 5  # Differences named in one message.


class _Field(NamedTuple):
  """Shape and dtype of an array."""

  shape: tuple[int, ...]
  dtype: str

  def __str__(self) -> str:
    return f'{self.dtype} {list(self.shape)}'


def to_bytes(tree: Any, metadata: Mapping[str, str]) -> bytes:
  """Returns the content of a file.

  Args:
    tree: Leaves are arrays or numbers. Their names in the file are their paths, such as `.policy.params['mlp']['w']`.
    metadata: For readers of the file. Keys are identifiers.
  """
  for key in metadata:
    if not key.isidentifier() or key == _KEY:
      raise ValueError(f'Keys of metadata are identifiers other than {_KEY!r}, got {key!r}.')
  arrays = {}
  for name, leaf in _named_leaves(tree):
    arrays[name] = np.asarray(leaf, order='C')
    if arrays[name].dtype.name not in _SUPPORTED:
      raise TypeError(
        f'Leaf {name!r} has dtype {arrays[name].dtype}, which can not be stored. '
        f'Supported: {", ".join(sorted(_SUPPORTED))}.'
      )
  content = safetensors.numpy.save(arrays, {**metadata, _KEY: '0' * _DIGITS})
  start = content.index(_MARK) + len(_MARK)
  return b''.join((content[:start], _checksum(content, start), memoryview(content)[start + _DIGITS :]))


def load_arrays(path: str | os.PathLike, like: Any) -> Any:
  """Reads a pytree.

  Args:
    path: A file with the content that `to_bytes` returned.
    like: A pytree of arrays, or of anything else with a shape and a dtype, such as `jax.eval_shape` returns.

  Returns:
    A tree with the structure of `like` and the file's values as NumPy arrays, equal to the bit.

  Raises:
    DamagedError: The file is truncated, changed, or missing.
    MismatchError: It holds arrays of other names, shapes or dtypes.
  """
  path = pathlib.Path(path)
  expected = {name: _field(leaf) for name, leaf in _named_leaves(like)}
  content = _read_checked(path, _max_bytes(expected))
  found = {}
  try:
    for name, tensor in safetensors.deserialize(content):
      dtype = _DTYPES[tensor['dtype']]
      # `frombuffer` returns a view, which is read-only under some versions of safetensors.
      found[name] = np.frombuffer(tensor['data'], dtype).reshape(tensor['shape']).copy()
  except (safetensors.SafetensorError, KeyError, ValueError) as error:
    raise errors.DamagedError(f'{path} was not written by lambda_kit: {type(error).__name__}: {error}') from error
  differences = _differences({name: _field(array) for name, array in found.items()}, expected)
  if differences:
    more = len(differences) - _MAX_NAMED
    listed = '; '.join(differences[:_MAX_NAMED]) + (f'; and {more} more' if more > 0 else '')
    raise errors.MismatchError(
      f'{path} holds other arrays than this run has: {listed}. Use the configuration that the file was written with.'
    )
  return jax.tree.unflatten(jax.tree.structure(like), [found[name] for name in expected])


def _named_leaves(tree: Any) -> Iterator[tuple[str, Any]]:
  seen = set()
  for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
    name = jax.tree_util.keystr(path)
    if name in seen:
      raise ValueError(f'Two leaves of the tree have the path {name!r}.')
    seen.add(name)
    yield name, leaf


def _field(leaf: Any) -> _Field:
  dtype = leaf.dtype if hasattr(leaf, 'dtype') else np.asarray(leaf).dtype
  return _Field(tuple(np.shape(leaf)), dtype.name)


def _differences(found: Mapping[str, _Field], expected: Mapping[str, _Field]) -> list[str]:
  differences = []
  for name in sorted({*found, *expected}):
    ours, theirs = found.get(name, 'absent'), expected.get(name, 'absent')
    if ours != theirs:
      differences.append(f'leaf {name!r} is {ours} instead of {theirs}')
  return differences


def _max_bytes(expected: Mapping[str, _Field]) -> int:
  """Bytes that are read for these arrays. Larger files, which may not fit into memory, hold others."""
  sizes = (math.prod(field.shape) * np.dtype(field.dtype).itemsize for field in expected.values())
  return _MAX_OTHER_BYTES + 2 * sum(sizes)


def _read_checked(path: pathlib.Path, max_bytes: int) -> bytes:
  """Reads a whole file, and verifies its checksum before any of it is used."""
  with errors.missing_is_damage(path):
    with reading.open_regular(path, follow_links=True) as file:
      size = os.fstat(file.fileno()).st_size
      if size > max_bytes:
        raise errors.MismatchError(
          f'{path} has {size:,} bytes, more than twice those of the arrays of this run. Use the configuration that '
          'the file was written with.'
        )
      content = file.read(max_bytes)
  end = 8 + int.from_bytes(content[:8], 'little')  # The header, after its own size.
  mark = content.find(_MARK, 8, end)
  if mark < 0:
    raise errors.DamagedError(
      f'{path} ({len(content)} bytes) is damaged, or was not written by lambda_kit: no checksum in its header'
    )
  start = mark + len(_MARK)
  if content[start : start + _DIGITS] != _checksum(content, start):
    raise errors.DamagedError(f'{path} ({len(content)} bytes) is damaged: its checksum does not match its content')
  return content


def _checksum(content: bytes, start: int) -> bytes:
  """Checksum of everything except the digits of the checksum itself, which begin at `start`."""
  view = memoryview(content)
  digest = hashlib.sha256(view[:start])
  digest.update(view[start + _DIGITS :])
  return digest.hexdigest().encode()
