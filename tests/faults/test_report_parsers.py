"""Fuzzers for what reports read of workdirs, and for what they write."""

from collections.abc import Callable
import json
import pathlib
import shutil

from hypothesis import strategies as st
import pytest

from benchmarks import synthetic_runs
from lambda_kit import components  # noqa: F401 (registers)
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
from tests.fakes import strangers
from tests.faults import fuzzing

_ROOT = pathlib.Path(__file__).resolve().parents[2]


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


def _workdirs(folder: pathlib.Path, write: Callable[[pathlib.Path], collection.Collection]) -> fuzzing.Parser:
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
  return fuzzing.Parser(one | st.fixed_dictionaries({}, optional=files), read, ())


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


def _run_json(folder: pathlib.Path) -> fuzzing.Parser:
  path = synthetic_runs.write_run(folder / 'run') / run_record.NAME
  files = strangers.json_files(json.loads(path.read_text())) | strangers.damaged(path.read_bytes())
  return fuzzing.Parser(
    files, fuzzing.of_file(path.parent, path.name, lambda path: run_record.read(path.parent)), (run_record.RecordError,)
  )


def _scores(folder: pathlib.Path) -> fuzzing.Parser:
  protocol = protocols.Protocol('X', 4000, 2, (25.0,), (('slip', '0.1'),))
  score = records.SeedScore('X', 'Y', 0, protocol, 4000, 1.0, (2.0, 3.0), (0.1, 0.2), 10.0, 'abc', 'a', '3.3.7')
  document = json.loads(records.dump_scores([score, score]))
  read = lambda path: [found.safe for found in records.load_scores(path)]
  return fuzzing.Parser(
    strangers.json_files(document), fuzzing.of_file(folder, 'scores.json', read), (records.ScoresError,)
  )


def _certificate(folder: pathlib.Path) -> fuzzing.Parser:
  def read(path):
    certificate.read(path.parent).describe()

  return fuzzing.Parser(
    strangers.json_files(_CERTIFICATE), fuzzing.of_file(folder, certificate.NAME, read), (certificate.CertificateError,)
  )


def _calibration(folder: pathlib.Path) -> fuzzing.Parser:
  assert calibration.certificate_lib.of_calibration(_CALIBRATION)
  read = calibration.read_certificate  # Logs what is wrong.
  return fuzzing.Parser(strangers.json_files(_CALIBRATION), fuzzing.of_file(folder, 'a-calibration.json', read), ())


def _svg(folder: pathlib.Path) -> fuzzing.Parser:
  content = (
    b'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"><defs><style>*{a: b}</style>'
    b'<path id="p" d="M 0 0 L 1 1"/></defs><g clip-path="url(#c)"><use xlink:href="#p" x="1"/><text>a <tspan>b</tspan>'
    b'</text><script>alert(1)</script><image xlink:href="data:image/png;base64,AAAA"/></g></svg>'
  )

  def read(content):
    cleaned = svg.clean(content)
    assert svg.clean(cleaned) == cleaned and b'<script' not in cleaned

  return fuzzing.Parser(strangers.damaged(content), read, (ValueError,))


PARSERS = {
  'run.json': _run_json,
  'workdir': lambda folder: _workdirs(folder, _write_texts),
  'scores.json': _scores,
  'calibration.json': _certificate,
  'calibration': _calibration,
  'svg': _svg,
}


@pytest.mark.parametrize('name', PARSERS)
def test_files_are_read_or_refused(tmp_path, name):
  fuzzing.fuzz(PARSERS[name](tmp_path), 40, derandomize=True)


@pytest.mark.slow
@pytest.mark.parametrize('name', PARSERS)
def test_many_files_are_read_or_refused(tmp_path, name):
  fuzzing.fuzz(PARSERS[name](tmp_path), 1000)


@pytest.mark.slow
def test_reports_with_their_figures_are_written(tmp_path):
  fuzzing.fuzz(_workdirs(tmp_path, lambda folder: report.write_report(folder, tmp_path / 'out', _ROOT)), 100)
