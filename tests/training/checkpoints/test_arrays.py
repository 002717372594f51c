"""Tests of files of arrays: what was written is read back to the bit, and nothing else is."""

import ast
import pathlib
import tempfile
from typing import Any, NamedTuple

import hypothesis
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from lambda_kit.training import checkpoints
from lambda_kit.training.checkpoints import arrays
from lambda_kit.training.checkpoints import errors
from tests.fakes import checkpoints as fakes

_DTYPES = (
  'bool',
  'uint8',
  'int8',
  'uint16',
  'int16',
  'uint32',
  'int32',
  'uint64',
  'int64',
  'float16',
  'bfloat16',
  'float32',
  'float64',
)


class _Pair(NamedTuple):
  first: Any
  second: Any


@st.composite
def _leaves(draw) -> np.ndarray:
  """Arrays of arbitrary bits, hence of all sorts of NaN."""
  dtype = np.dtype(jnp.dtype(draw(st.sampled_from(_DTYPES))))
  shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
  if dtype.kind == 'b':
    return np.array(draw(hnp.arrays(bool, shape)))
  size = int(np.prod(shape)) * dtype.itemsize
  return np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype).reshape(shape)


_NAMES = st.text(st.characters(codec='utf-8'), max_size=8) | st.just('__metadata__') | st.just('x"sha256')
_TREES = st.recursive(
  _leaves(),
  lambda children: (
    st.dictionaries(_NAMES, children, max_size=3)
    | st.lists(children, max_size=3)
    | st.tuples(children, st.none())
    | st.builds(_Pair, children, children)
  ),
  max_leaves=6,
)


@hypothesis.given(_TREES, st.dictionaries(st.sampled_from(['step', 'task', 'größe']), st.text(max_size=80)))
@hypothesis.settings(max_examples=80, deadline=None)
def test_files_give_back_what_was_written(tree, metadata):
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / 'a.safetensors'
    path.write_bytes(arrays.to_bytes(tree, metadata))
    like = jax.tree.map(np.zeros_like, tree)
    fakes.assert_identical(arrays.load_arrays(path, like), tree)
    with safetensors.safe_open(path, 'numpy') as file:
      found = file.metadata()
    assert len(found.pop('sha256')) == 64 and found == metadata


def test_arrays_of_jax_numbers_and_other_orders_of_memory(tmp_path):
  path = tmp_path / 'a.safetensors'
  tree = {
    'jax': jnp.arange(3.0),
    'number': 2.5,
    'fortran': np.asfortranarray(np.arange(6).reshape(2, 3)),
    'strided': np.arange(10)[::3],
    'big_endian': np.arange(3, dtype='>f4'),
  }
  path.write_bytes(arrays.to_bytes(tree, {}))
  found = arrays.load_arrays(path, tree)
  for name, array in found.items():
    np.testing.assert_array_equal(array, tree[name])
    array[...] = 1  # Can be written to.


def test_shapes_without_values_are_enough_to_load(tmp_path):
  path = tmp_path / 'a.safetensors'
  state = fakes.make_state(3)
  path.write_bytes(arrays.to_bytes(state, {}))
  fakes.assert_identical(arrays.load_arrays(path, jax.eval_shape(lambda: jax.tree.map(jnp.asarray, state))), state)


def test_other_readers_of_the_format_open_the_file(tmp_path):
  path = tmp_path / 'a.safetensors'
  path.write_bytes(arrays.to_bytes(_Pair({'w': np.arange(3.0)}, [np.array(True)]), {}))
  found = safetensors.numpy.load_file(path)
  assert sorted(found) == [".first['w']", '.second[0]']
  np.testing.assert_array_equal(found[".first['w']"], [0, 1, 2])


@pytest.mark.parametrize(
  'like, difference',
  [
    ({'a': np.zeros((2, 3), np.float32)}, r'leaf "\[\'b\'\]" is int32 \[\] instead of absent'),
    (
      {'a': np.zeros((2, 3), np.float32), 'b': np.int32(0), 'c': np.zeros(2)},
      r'leaf "\[\'c\'\]" is absent instead of float64 \[2\]',
    ),
    (
      {'a': np.zeros((3, 2), np.float32), 'b': np.int32(0)},
      r'leaf "\[\'a\'\]" is float32 \[2, 3\] instead of float32 \[3, 2\]',
    ),
    ({'a': np.zeros((2, 3), np.float32), 'b': np.uint32(0)}, r'leaf "\[\'b\'\]" is int32 \[\] instead of uint32 \[\]'),
  ],
)
def test_other_arrays_are_named(tmp_path, like, difference):
  path = tmp_path / 'a.safetensors'
  path.write_bytes(arrays.to_bytes({'a': np.zeros((2, 3), np.float32), 'b': np.int32(0)}, {}))
  with pytest.raises(errors.MismatchError, match=f'{path} holds other arrays.*: {difference}. Use the configuration'):
    arrays.load_arrays(path, like)


def test_many_differences_are_counted(tmp_path):
  (tmp_path / 'a').write_bytes(arrays.to_bytes([np.zeros(1)] * 9, {}))
  with pytest.raises(errors.MismatchError, match='; and 4 more'):
    arrays.load_arrays(tmp_path / 'a', [np.zeros(2)] * 9)


def test_a_flipped_bit_in_any_byte_and_every_cut_are_found(tmp_path):
  path = tmp_path / 'a.safetensors'
  tree = {'w': np.arange(3, dtype=np.float32), 'e': np.zeros(0, bool)}
  path.write_bytes(arrays.to_bytes(tree, {'step': '3'}))
  content = path.read_bytes()
  damaged = [content[:size] for size in range(len(content))] + [content + b'\0']
  for position in range(len(content)):
    flipped = bytearray(content)
    flipped[position] ^= 1 << position % 8
    damaged.append(bytes(flipped))
  for other in damaged:
    path.write_bytes(other)
    with pytest.raises(errors.DamagedError, match=f'{path} .*is damaged'):
      arrays.load_arrays(path, tree)


def test_missing_files_and_files_of_others_are_refused(tmp_path):
  with pytest.raises(errors.DamagedError, match='nothing is missing'):
    arrays.load_arrays(tmp_path / 'nothing', {})
  with pytest.raises(errors.DamagedError, match='is a folder'):
    arrays.load_arrays(tmp_path, {})
  safetensors.numpy.save_file({'a': np.zeros(3)}, tmp_path / 'foreign')
  with pytest.raises(errors.DamagedError, match='foreign .*not written by lambda_kit: no checksum'):
    arrays.load_arrays(tmp_path / 'foreign', {'a': np.zeros(3)})


@pytest.mark.parametrize('leaf', [np.array('text'), np.array([None]), np.zeros(2, complex)])
def test_what_can_not_be_stored_is_named(leaf):
  with pytest.raises(TypeError, match=r"Leaf .*\['x'\].* has dtype"):
    arrays.to_bytes({'x': leaf}, {})


@pytest.mark.parametrize('key', ['sha256', 'a"sha256', ''])
def test_keys_that_would_hide_the_checksum_are_refused(key):
  with pytest.raises(ValueError, match='Keys of metadata'):
    arrays.to_bytes({}, {key: '0' * 64})


def test_nothing_in_the_package_can_unpickle():
  modules = list(pathlib.Path(checkpoints.__file__).parent.glob('*.py'))
  assert len(modules) > 5
  for module in modules:
    for node in ast.walk(ast.parse(module.read_text())):
      names = {alias.name for alias in node.names} if isinstance(node, (ast.Import, ast.ImportFrom)) else set()
      names |= {node.module} if isinstance(node, ast.ImportFrom) and node.module else set()
      for name in names:
        assert not {'pickle', 'cloudpickle', 'dill', 'shelve', 'marshal', 'joblib'} & set(name.split('.')), module
      if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ('np', 'jnp'):
        assert node.attr not in ('load', 'save', 'savez'), module
