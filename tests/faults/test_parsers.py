"""Fuzzers: whatever is in a file, it is read or refused in a moment, with an error that names it; one for each parser.

Most cases are JSON with changed values, since damage alone is found by checksums.
"""

from collections.abc import Callable
import json
import pathlib
import shutil
import tempfile
import time
from typing import Any, NamedTuple

import hypothesis
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import synthetic_runs
import gin
from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit import core
from lambda_kit.analysis import calibration
from lambda_kit.analysis import certificate
from lambda_kit.analysis import run_record
from lambda_kit.analysis.metrics import protocols
from lambda_kit.analysis.metrics import records
from lambda_kit.analysis.reports import collection
from lambda_kit.analysis.reports import page
from lambda_kit.analysis.reports import problems
from lambda_kit.analysis.reports import report
from lambda_kit.analysis.reports import run_table
from lambda_kit.analysis.reports import runs
from lambda_kit.analysis.reports import score_tables
from lambda_kit.analysis.reports import summary
from lambda_kit.analysis.reports import svg
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

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_MAX_SECONDS = 10.0  # For one file, on a busy machine.


class Parser(NamedTuple):
  """How to fuzz a parser."""

  files: st.SearchStrategy  # What it reads.
  read: Callable[[Any], Any]  # Reads it. Raises an AssertionError if the outcome is wrong.
  refusals: tuple[type[Exception], ...]  # What it may raise.


def _file(folder: pathlib.Path, name: str, read: Callable[[pathlib.Path], Any]) -> Callable[[bytes], Any]:
  def read_file(content):
    (folder / name).write_bytes(content)
    read(folder / name)

  return read_file


def _interval():
  return [1.0, 0.5, None]


_CONSTRAINT = dict(
  limit=25.0,
  cost_return=_interval(),
  raw_forecast_over_observed=_interval(),
  forecast_over_observed=_interval(),
  bound_over_observed=_interval(),
  bound_covered=_interval(),
  bound_promised=0.9,
  level=0.8,
  covered_at_level=_interval(),
  covered_at_90=_interval(),
)
_CERTIFICATE = dict(
  task='X',
  seed=0,
  environment_steps=100,
  episodes=2,
  horizon=5,
  samples=3,
  episode_return=_interval(),
  constraints=dict(hazards=_CONSTRAINT),
)
_CALIBRATION = _CERTIFICATE | dict(
  constraints=dict(
    hazards=dict(
      {name: _CONSTRAINT[name] for name in list(_CONSTRAINT)[:5]},
      bound=dict(covered=_interval(), promised=0.9, level=0.8, covered_at_level=_interval()),
      upper=[dict(level=0.9, covered=_interval())],
    )
  )
)
_PREDICTION = dict(
  errors=dict(vector=dict(model=[0.1, 0.2], last_seen=[0.2, 0.4]), image=dict(model=[0.1], last_seen=[1]))
)


def _workdirs(folder: pathlib.Path, write: Callable[[pathlib.Path], collection.Collection]) -> Parser:
  """A run beside a good one: a report has the good one, all figures, and the bad one or what is wrong with it."""
  for seed, name in enumerate(('good', 'bad')):
    workdir = synthetic_runs.write_run(
      folder / 'runs' / name, 'X', 'Y', seed=seed, steps=4000, learner_rows=3, diagnoses=['KL'], held_out=True
    )
  (workdir / 'evaluation').mkdir()
  (workdir / 'prediction.png').write_bytes(b'PNG')
  (workdir / 'prediction.svg').write_bytes(b'<svg xmlns="http://www.w3.org/2000/svg"/>')
  (workdir / 'prediction.json').write_text(json.dumps(_PREDICTION))
  record = json.loads((workdir / 'run.json').read_text())
  del record['sha256']  # Records without it are those of old runs.
  files = {
    'run.json': strangers.json_files(record),
    'prediction.json': strangers.json_files(_PREDICTION),
    'evaluation/calibration.json': strangers.json_files(_CERTIFICATE),
  }
  for kind in ('episode', 'evaluation', 'learner', 'diagnosis'):
    rows = [json.loads(line) for line in (workdir / f'{kind}.jsonl').read_text().splitlines()]
    files[f'{kind}.jsonl'] = strangers.row_files(rows)

  def read(changes):
    shutil.rmtree(folder / 'runs' / 'changed', ignore_errors=True)
    changed = shutil.copytree(folder / 'runs' / 'bad', folder / 'runs' / 'changed')
    (changed / 'run.json').write_text(json.dumps(record | dict(seed=2)))
    for name, content in changes.items():
      (changed / name).write_bytes(content)
    collected = write(folder / 'runs')
    # Unless there are as many of another protocol, which a good file may say.
    assert {run.workdir for run in runs.read_runs(folder / 'runs' / 'good')[0]} == {'good'}
    found = {run.workdir for group in collected.groups for run in group.runs} | {
      run.workdir for run in collected.refused
    }
    assert found >= {'good', 'bad'}
    assert 'changed' in found or any(problem.where.startswith('changed') for problem in collected.problems)
    assert not [problem for problem in collected.problems if problem.kind == problems.NOT_DRAWN]
    assert not [problem for problem in collected.problems if not str(problem).isprintable()]

  one = st.sampled_from(sorted(files)).flatmap(lambda name: files[name].map(lambda content: {name: content}))
  return Parser(one | st.fixed_dictionaries({}, optional=files), read, ())


def _write_texts(folder: pathlib.Path) -> collection.Collection:
  """All of a report but its figures, which take a second."""
  collected = collection.collect(*runs.read_runs(folder))
  tables = [score_tables.make_table(each, normalized) for each in summary.summarize(collected) for normalized in (0, 1)]
  texts = [form(table) for table in tables for form in (score_tables.to_csv, score_tables.to_latex)]
  texts += [records.dump_scores(collected.scores()), run_table.to_json(collected), run_table.to_markdown(collected)]
  texts.append(page.render(collected, tables, [], [], dict.fromkeys(collected.algorithms, ''), '', _ROOT))
  for text in texts:
    text.encode('utf-8')
  return collected


def _run_json(folder: pathlib.Path) -> Parser:
  path = synthetic_runs.write_run(folder / 'run') / run_record.NAME
  files = strangers.json_files(json.loads(path.read_text())) | strangers.damaged(path.read_bytes())
  return Parser(
    files, _file(path.parent, path.name, lambda path: run_record.read(path.parent)), (run_record.RecordError,)
  )


def _gin(folder: pathlib.Path) -> Parser:
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

  return Parser(files, _file(folder, 'config.gin', read), (configuration.ConfigurationError,))


def _scores(folder: pathlib.Path) -> Parser:
  protocol = protocols.Protocol('X', 4000, 2, (25.0,), (('slip', '0.1'),))
  score = records.SeedScore('X', 'Y', 0, protocol, 4000, 1.0, (2.0, 3.0), (0.1, 0.2), 10.0, 'abc', 'a', '3.3.7')
  document = json.loads(records.dump_scores([score, score]))
  read = lambda path: [found.safe for found in records.load_scores(path)]
  return Parser(strangers.json_files(document), _file(folder, 'scores.json', read), (records.ScoresError,))


def _certificate(folder: pathlib.Path) -> Parser:
  def read(path):
    certificate.read(path.parent).describe()

  return Parser(
    strangers.json_files(_CERTIFICATE), _file(folder, certificate.NAME, read), (certificate.CertificateError,)
  )


def _calibration(folder: pathlib.Path) -> Parser:
  assert calibration.certificate_lib.of_calibration(_CALIBRATION)
  read = calibration.read_certificate  # Logs what is wrong.
  return Parser(strangers.json_files(_CALIBRATION), _file(folder, 'a-calibration.json', read), ())


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


def _state(folder: pathlib.Path) -> Parser:
  """A state that a stranger wrote, with the checksum that fits."""

  def read(state):
    _save_checkpoint(folder, state)
    _read_checkpoint(folder)

  return Parser(strangers.changed(_STATE), read, (errors.CheckpointError,))


def _manifest(folder: pathlib.Path) -> Parser:
  """A manifest that a stranger wrote, with the checksum that fits."""
  path = _save_checkpoint(folder) / manifest.NAME
  content = json.loads(path.read_bytes())

  def read(found):
    found = found if isinstance(found, dict) else {}
    path.write_bytes(sealed.to_bytes('lambda_kit checkpoint', 1, {**found, 'format': '', 'version': 1}))
    _read_checkpoint(folder)

  del content['sha256'], content['format'], content['version']
  return Parser(strangers.changed(content), read, (errors.CheckpointError,))


def _checkpoint(folder: pathlib.Path) -> Parser:
  path = _save_checkpoint(folder)
  contents = {file.name: file.read_bytes() for file in path.iterdir()}
  files = st.sampled_from(sorted(contents)).flatmap(
    lambda name: st.tuples(st.just(name), strangers.damaged(contents[name]))
  )

  def read(damaged):
    for name, content in {**contents, damaged[0]: damaged[1]}.items():
      (path / name).write_bytes(content)
    _read_checkpoint(folder)

  return Parser(files, read, (errors.CheckpointError,))


def _arrays(folder: pathlib.Path) -> Parser:
  """Damage with the checksum that fits, so that the format's own reader meets it."""
  content = arrays.to_bytes(_TREE, {})
  start = content.index(arrays._MARK) + len(arrays._MARK)

  def read(found):
    mark = found.find(arrays._MARK) + len(arrays._MARK)
    if mark == start and len(found) > start + 64:
      found = b''.join((found[:start], arrays._checksum(found, start), found[start + 64 :]))
    (folder / 'a.safetensors').write_bytes(found)
    arrays.load_arrays(folder / 'a.safetensors', _TREE)

  return Parser(strangers.damaged(content), read, (errors.CheckpointError,))


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


def _episode(folder: pathlib.Path) -> Parser:
  def read(path):
    episodes.read_episode(path)
    episodes.read_origin(path)

  return Parser(_episode_files(folder), _file(folder, 'e.npz', read), (episodes.EpisodeFileError,))


def _dataset(folder: pathlib.Path) -> Parser:
  dataset = folder / 'data'
  offline.save_dataset(dataset, [fakes.make_episode(0, 3)], fakes.HEADER)
  name = st.sampled_from(['episode-000000.npz', 'episode-1.npz', 'episode-٣.npz', 'episode-.npz', 'other'])

  def read(case):
    for path in dataset.iterdir():
      if path.name != 'episode-000000.npz':
        path.unlink()
    (dataset / case[0]).write_bytes(case[1])
    list(offline.load_dataset(dataset))

  return Parser(st.tuples(name, _episode_files(folder)), read, (episodes.EpisodeFileError,))


def _policy(folder: pathlib.Path) -> Parser:
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

  return Parser(crafted | damaged, read, (errors.CheckpointError,))


def _svg(folder: pathlib.Path) -> Parser:
  content = (
    b'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"><defs><style>*{a: b}</style>'
    b'<path id="p" d="M 0 0 L 1 1"/></defs><g clip-path="url(#c)"><use xlink:href="#p" x="1"/><text>a <tspan>b</tspan>'
    b'</text><script>alert(1)</script><image xlink:href="data:image/png;base64,AAAA"/></g></svg>'
  )

  def read(content):
    cleaned = svg.clean(content)
    assert svg.clean(cleaned) == cleaned and b'<script' not in cleaned

  return Parser(strangers.damaged(content), read, (ValueError,))


PARSERS = {
  'run.json': _run_json,
  'config.gin': _gin,
  'workdir': lambda folder: _workdirs(folder, _write_texts),
  'scores.json': _scores,
  'calibration.json': _certificate,
  'calibration': _calibration,
  'state.json': _state,
  'manifest.json': _manifest,
  'checkpoint': _checkpoint,
  'safetensors': _arrays,
  'episode': _episode,
  'dataset': _dataset,
  'policy': _policy,
  'svg': _svg,
}


def _fuzz(parser: Parser, examples: int, **settings: Any) -> None:
  @hypothesis.settings(
    max_examples=examples, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck), **settings
  )
  @hypothesis.given(parser.files)
  def run(case):
    started = time.monotonic()
    try:
      parser.read(case)
    except parser.refusals as error:
      assert str(error)
    assert time.monotonic() - started < _MAX_SECONDS

  run()


@pytest.mark.parametrize('name', PARSERS)
def test_files_are_read_or_refused(tmp_path, name):
  _fuzz(PARSERS[name](tmp_path), 40, derandomize=True)


@pytest.mark.slow
@pytest.mark.parametrize('name', PARSERS)
def test_many_files_are_read_or_refused(tmp_path, name):
  _fuzz(PARSERS[name](tmp_path), 3000)


@pytest.mark.slow
def test_reports_with_their_figures_are_written(tmp_path):
  _fuzz(_workdirs(tmp_path, lambda folder: report.write_report(folder, tmp_path / 'out', _ROOT)), 200)
