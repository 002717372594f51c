"""Fuzzers for what runs, evaluations and exported policies read: configurations, checkpoints, episodes."""

import json
import pathlib
import tempfile
from typing import Any

from hypothesis import strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gin
from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit import core
from lambda_kit.config import configuration
from lambda_kit.config import gin_text
from lambda_kit.replay import episodes
from lambda_kit.replay import offline
from lambda_kit.training import checkpoint_evaluation
from lambda_kit.training import exported
from lambda_kit.training.checkpoints import arrays
from lambda_kit.training.checkpoints import errors
from lambda_kit.training.checkpoints import manifest
from lambda_kit.training.checkpoints import sealed
from lambda_kit.training.checkpoints import store as store_lib
from tests.fakes import replay as fakes
from tests.fakes import strangers
from tests.faults import fuzzing

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def _gin(folder: pathlib.Path) -> fuzzing.Parser:
  configuration.parse(['gin/tasks/grid.gin', 'gin/agents/random.gin'], [], search_paths=[str(_ROOT)])
  resolved = configuration.resolved_config().encode()
  gin.clear_config()
  tokens = (
    *(
      'import x',
      'from a import b',
      'include ',
      "'gin/base/lambda.gin'",
      '=',
      '\n',
      '\n  ',
      '@',
      '%',
      '(',
      ')',
      '[',
      ']',
    ),
    *(
      '{',
      '}',
      ':',
      ',',
      'A',
      '.',
      'GridCmdp',
      'slip',
      '/',
      '1',
      '-',
      '1e999',
      'None',
      '"""',
      "'",
      '\\',
      '#',
      '\0',
      'é',
    ),
    *('0x', '9' * 5000, '%A', 'experiment', '@GridCmdp()', '{[]: 1}', '@gin.singleton()', '%gin.REQUIRED', '[' * 300),
  )
  text = st.lists(st.sampled_from(tokens), max_size=12).map(''.join)
  files = text.map(str.encode) | strangers.damaged(resolved) | text.map(lambda more: resolved + more.encode())

  def read(path):
    try:
      gin_text.read_bindings(path.read_text('utf-8', errors='replace'))
    except gin_text.GinTextError:
      pass
    try:
      configuration.parse([str(path)], [], search_paths=[str(_ROOT)], with_imports=False)
    finally:
      gin.clear_config()

  return fuzzing.Parser(files, fuzzing.of_file(folder, 'config.gin', read), (configuration.ConfigurationError,))


_STATE = dict(
  task='X',
  next_episode=3,
  loop=dict(episodes=2, environment_steps=10, updates=1, total_cost=[1.0], failed_episodes=0),
  replay=None,
  evaluations=[dict(episode_return=1.0, cost_return=[1.0], episode_returns=[1.0, 1.0], cost_returns=[[1.0], [1.0]])],
)
_TREE = dict(w=np.zeros((2, 3), np.float32))


def _save_checkpoint(folder: pathlib.Path, state: Any = _STATE) -> pathlib.Path:
  score = dict(episode_return=1.0, cost_return=[1.0], cost_limit=[25.0])
  return store_lib.CheckpointStore(folder / 'checkpoints').save(10, dict(learner=_TREE), state, score)


def _read_checkpoint(folder: pathlib.Path) -> None:
  checkpoint = store_lib.CheckpointStore(folder / 'checkpoints').at(10)
  checkpoint.load('learner', _TREE)
  checkpoint_evaluation.read_state(checkpoint)
  store_lib.CheckpointStore(folder / 'checkpoints').best()


def _state(folder: pathlib.Path) -> fuzzing.Parser:
  """A state that a stranger wrote, with the checksum that fits."""

  def read(state):
    _save_checkpoint(folder, state)
    _read_checkpoint(folder)

  return fuzzing.Parser(strangers.changed(_STATE), read, (errors.CheckpointError,))


def _manifest(folder: pathlib.Path) -> fuzzing.Parser:
  """A manifest that a stranger wrote, with the checksum that fits."""
  path = _save_checkpoint(folder) / manifest.NAME
  content = json.loads(path.read_bytes())

  def read(found):
    found = found if isinstance(found, dict) else {}
    path.write_bytes(sealed.to_bytes('lambda_kit checkpoint', 1, {**found, 'format': '', 'version': 1}))
    _read_checkpoint(folder)

  del content['sha256'], content['format'], content['version']
  return fuzzing.Parser(strangers.changed(content), read, (errors.CheckpointError,))


def _checkpoint(folder: pathlib.Path) -> fuzzing.Parser:
  path = _save_checkpoint(folder)
  contents = {file.name: file.read_bytes() for file in path.iterdir()}
  files = st.sampled_from(sorted(contents)).flatmap(
    lambda name: st.tuples(st.just(name), strangers.damaged(contents[name]))
  )

  def read(damaged):
    for name, content in {**contents, damaged[0]: damaged[1]}.items():
      (path / name).write_bytes(content)
    _read_checkpoint(folder)

  return fuzzing.Parser(files, read, (errors.CheckpointError,))


def _arrays(folder: pathlib.Path) -> fuzzing.Parser:
  """Damage with the checksum that fits, so that the format's own reader meets it."""
  content = arrays.to_bytes(_TREE, {})
  start = content.index(arrays._MARK) + len(arrays._MARK)

  def read(found):
    mark = found.find(arrays._MARK) + len(arrays._MARK)
    if mark == start and len(found) > start + 64:
      found = b''.join((found[:start], arrays._checksum(found, start), found[start + 64 :]))
    (folder / 'a.safetensors').write_bytes(found)
    arrays.load_arrays(folder / 'a.safetensors', _TREE)

  return fuzzing.Parser(strangers.damaged(content), read, (errors.CheckpointError,))


def _episode_files(folder: pathlib.Path) -> st.SearchStrategy[bytes]:
  """Archives with changed headers and arrays, or damaged."""
  episode = fakes.make_episode(1, 3)
  episodes.write_episode(folder / 'e.npz', episode, fakes.HEADER, compress=True)
  header, flat = json.loads(fakes.HEADER.to_json()), episodes.flatten(episode)

  def pack(case):
    header, changes = case
    found = {**flat, 'header': np.array(json.dumps(header)), **changes}
    with tempfile.TemporaryFile() as file:
      np.savez_compressed(file, **{name: array for name, array in found.items() if array is not None})
      file.seek(0)
      return file.read()

  odd = st.sampled_from(
    [None, np.zeros((0,)), np.array(1.0), np.array('text'), np.full((4, 2), np.nan, np.float32), np.zeros(4, 'V3')]
  )
  changes = st.dictionaries(st.sampled_from(['header', *flat, 'surprise', 'observation/other']), odd, max_size=2)
  crafted = st.tuples(strangers.changed(header) | st.just(header), changes).map(pack)
  return crafted | strangers.damaged((folder / 'e.npz').read_bytes())


def _episode(folder: pathlib.Path) -> fuzzing.Parser:
  def read(path):
    episodes.read_episode(path)
    episodes.read_origin(path)

  return fuzzing.Parser(_episode_files(folder), fuzzing.of_file(folder, 'e.npz', read), (episodes.EpisodeFileError,))


def _dataset(folder: pathlib.Path) -> fuzzing.Parser:
  dataset = folder / 'data'
  offline.save_dataset(dataset, [fakes.make_episode(0, 3)], fakes.HEADER)
  name = st.sampled_from(['episode-000000.npz', 'episode-1.npz', 'episode-٣.npz', 'episode-.npz', 'other'])

  def read(case):
    for path in dataset.iterdir():
      if path.name != 'episode-000000.npz':
        path.unlink()
    (dataset / case[0]).write_bytes(case[1])
    list(offline.load_dataset(dataset))

  return fuzzing.Parser(st.tuples(name, _episode_files(folder)), read, (episodes.EpisodeFileError,))


def _policy(folder: pathlib.Path) -> fuzzing.Parser:
  """Damage to any file, or a description that a stranger wrote, with the checksum that fits."""
  actor_core = core.ActorCore(
    lambda key, count: jnp.zeros((count, 1)),
    lambda variables, carry, observation, is_first: (jnp.tanh(observation['vector'] @ variables[0]), carry),
    ('policy',),
  )
  observation = exported.Field((2,), 'float32')
  description = exported.Description('X', {'vector': observation}, observation, ('a',), 1, {'score': None})
  path = exported.save(folder / 'policy', actor_core, [np.eye(2, dtype=np.float32)], jax.random.PRNGKey(0), description)
  contents = {file.name: file.read_bytes() for file in path.iterdir()}
  fields = json.loads(contents['policy.json'])
  del fields['sha256'], fields['format'], fields['version']
  seal = lambda found: sealed.to_bytes('lambda_kit policy', 2, found if isinstance(found, dict) else {})
  crafted = st.tuples(st.just('policy.json'), strangers.changed(fields).map(seal))
  damaged = st.sampled_from(sorted(contents)).flatmap(
    lambda name: st.tuples(st.just(name), strangers.damaged(contents[name]))
  )

  def read(case):
    for name, content in {**contents, case[0]: case[1]}.items():
      (path / name).write_bytes(content)
    exported.load(path)

  return fuzzing.Parser(crafted | damaged, read, (errors.CheckpointError,))


PARSERS = {
  'config.gin': _gin,
  'state.json': _state,
  'manifest.json': _manifest,
  'checkpoint': _checkpoint,
  'safetensors': _arrays,
  'episode': _episode,
  'dataset': _dataset,
  'policy': _policy,
}


@pytest.mark.parametrize('name', PARSERS)
def test_files_are_read_or_refused(tmp_path, name):
  fuzzing.fuzz(PARSERS[name](tmp_path), 40, derandomize=True)


@pytest.mark.slow
@pytest.mark.parametrize('name', PARSERS)
def test_many_files_are_read_or_refused(tmp_path, name):
  fuzzing.fuzz(PARSERS[name](tmp_path), 1000)
