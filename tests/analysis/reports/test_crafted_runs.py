"""Reports about workdirs of strangers: whatever a run holds costs its row at most, and a line under problems."""

import json
import os
import shutil

import pytest

from benchmarks import synthetic_runs
from lambda_kit import reading
from lambda_kit.analysis.metrics import records
from lambda_kit.analysis.reports import archive
from lambda_kit.analysis.reports import collection
from lambda_kit.analysis.reports import problems as problems_lib
from lambda_kit.analysis.reports import report
from lambda_kit.analysis.reports import runs
from lambda_kit.analysis.reports import workdir as workdir_lib

_DEEP = '[' * 900 + ']' * 900


@pytest.fixture(scope='module')
def templates(tmp_path_factory):
  folder = tmp_path_factory.mktemp('templates')
  for seed, name in enumerate(('good', 'bad')):
    synthetic_runs.write_run(folder / name, 'X', 'Y', seed=seed, steps=4000)
  return folder


@pytest.fixture
def folder(templates, tmp_path):
  """Two runs; tests change 'bad'."""
  return shutil.copytree(templates, tmp_path / 'runs')


def _collect(folder):
  return collection.collect(*runs.read_runs(folder))


def _counted(collected):
  return {run.workdir for group in collected.groups for run in group.scored}


def _record(**values):
  """Changes a record. It has no checksum then, as those of old runs; a stranger could also write one that fits."""

  def change(folder):
    path = folder / 'run.json'
    record = json.loads(path.read_text()) | values
    record.pop('sha256', None)
    path.write_text(json.dumps(record | dict(run_id=None)))

  return change


def _protocol(**values):
  def change(folder):
    record = json.loads((folder / 'run.json').read_text())
    _record(protocol=record['protocol'] | values)(folder)

  return change


def _text(name, text):
  return lambda folder: (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def _replaced(name, make):
  def change(folder):
    (folder / name).unlink(missing_ok=True)
    make(folder / name)

  return change


def _sparse(path):
  with open(path, 'wb') as file:
    file.truncate(1 << 40)


_OTHER_KINDS = {
  'FIFO': os.mkfifo,
  'device': lambda path: path.symlink_to('/dev/zero'),
  'link': lambda path: path.symlink_to('good'),
  'folder': os.mkdir,
  'huge': _sparse,
}


@pytest.mark.parametrize(
  'change',
  [
    *(_replaced('run.json', make) for make in _OTHER_KINDS.values()),
    _text('run.json', _DEEP),
    _protocol(cost_limit=[1e999]),
    _protocol(cost_limit=[-1e999, 25.0]),
    _protocol(cost_limit=[]),
    _record(task='\ud800'),
    _record(algorithm='a\nb'),
    _record(algorithm='a' * 10_000),
    _record(config_hash='\x1b[2J'),
    _record(versions={'mujoco': '3.3\n'}),
    _record(configuration=['\udfff']),
    _record(optimum=dict(episode_return=1e300, cost_return=[1.0])),
  ],
)
def test_a_bad_record_costs_one_row(folder, change):
  change(folder / 'bad')
  collected = _collect(folder)
  assert _counted(collected) == {'good'}
  (problem,) = collected.problems
  assert (problem.kind, problem.where) == (problems_lib.UNREADABLE, 'bad')
  assert reading.is_line(problem.message, 300)


@pytest.mark.parametrize('name', ['episode.jsonl', 'evaluation.jsonl', 'learner.jsonl', 'diagnosis.jsonl'])
@pytest.mark.parametrize('kind', sorted(_OTHER_KINDS))
def test_a_log_that_is_no_log_is_left_out(folder, name, kind):
  _replaced(name, _OTHER_KINDS[kind])(folder / 'bad')
  collected = _collect(folder)
  assert _counted(collected) == {'good'} | ({'bad'} if name != 'evaluation.jsonl' else set())
  told = [problem for problem in collected.problems if problem.kind == problems_lib.UNREADABLE]
  assert [problem.where for problem in told] == [f'bad/{name}']
  expected = dict(FIFO='a FIFO', device='a symbolic link', link='a symbolic link', folder='irectory', huge='bytes')
  assert expected[kind] in told[0].message


_ODD_ROWS = [
  ('learner.jsonl', {f'multiplier/{i}': i for i in range(30_000)}),
  ('learner.jsonl', {f'held_out_cost/{i}': 1.0 for i in range(30_000)}),
  ('learner.jsonl', {'penalty': 1e300, 'multiplier': -1e300}),
  ('episode.jsonl', {'cost_return': [1e300, 1], 'length': 1e-300}),
  ('episode.jsonl', {'cost_return': [1, [2]], 'length': 1}),
  ('diagnosis.jsonl', {'name': '\ud800\n', 'message': '\x1b]0;' + 'm' * 10_000}),
  ('diagnosis.jsonl', {'name': [[1]], 'message': None}),
]


def test_odd_rows_are_shown_as_far_as_they_can_be(folder):
  for i, (name, row) in enumerate(_ODD_ROWS):
    workdir = shutil.copytree(folder / 'bad', folder / f'bad-{i}')
    _record(seed=2 + i)(workdir)
    _text(name, json.dumps(dict(row, environment_steps=4000, time=1e300)) + '\n')(workdir)
  collected = report.write_report(folder, folder.parent / 'out')
  assert len(_counted(collected)) == 2 + len(_ODD_ROWS) and not collected.problems
  for run in collected.groups[0].runs:
    assert run.held_out is None or len(run.held_out.figures) <= 100
    assert all(reading.is_line(item.name, 300) and reading.is_line(item.message, 1000) for item in run.diagnoses)


_ODD_EVALUATIONS = [
  dict(environment_steps=1e300),
  dict(environment_steps=-1),
  dict(cost_return=[1.0, 2.0]),
  dict(cost_return=[1.0] * 200, cost_regret=[1.0] * 200),
  dict(cost_return=[[1.0], [2.0, 3.0]]),
  dict(episode_return=[1.0, 2.0]),
  dict(episode_return=1e300),
  dict(cost_return=None),
  dict(cost_return=[1.0, 2.0], cost_regret=[0.1, 0.2]),  # Good by itself, but the others have one cost.
]


def test_an_odd_evaluation_costs_one_score(folder):
  for i, values in enumerate(_ODD_EVALUATIONS):
    workdir = shutil.copytree(folder / 'bad', folder / f'bad-{i}')
    _record(seed=2 + i)(workdir)
    row = dict(environment_steps=4000, episode_return=1.0, cost_return=[1.0], cost_regret=[0.1], time=1.0)
    _text('evaluation.jsonl', json.dumps(row | values) + '\n')(workdir)
  collected = report.write_report(folder, folder.parent / 'out')
  assert _counted(collected) == {'good', 'bad'}
  told = {problem.where.partition('/')[0] for problem in collected.problems}
  assert told >= {f'bad-{i}' for i in range(len(_ODD_EVALUATIONS))}
  scores = records.load_scores(folder.parent / 'out' / 'scores.json')
  assert [score.workdir for score in scores] == ['good', 'bad']


def test_many_bad_lines_are_few_problems(folder):
  for name in ('evaluation.jsonl', 'learner.jsonl'):
    lines = ['{"environment_steps": 1}\n', '{"environment_steps": 0, "a": "\\ud800"}\n', f'{_DEEP}\n', '\n'] * 1000
    _text(name, ''.join(lines))(folder / 'bad')
  assert len(_collect(folder).problems) < 12


def test_reading_a_workdir_takes_limited_time(folder, monkeypatch):
  monkeypatch.setattr(workdir_lib, '_MAX_SECONDS', 0.01)
  for content in ('\n', '{"environment_steps": 1}\n'):
    _text('learner.jsonl', content * 100_000)(folder / 'bad')
    collected = _collect(folder)
    assert _counted(collected) == {'good'}
    assert [(problem.kind, problem.where) for problem in collected.problems][-1] == (problems_lib.UNREADABLE, 'bad')


def test_what_nobody_thought_of_costs_one_row(folder, monkeypatch):
  read = runs.run_logs.read_diagnoses

  def fail(workdir):
    if workdir.name == 'bad':
      raise RecursionError('too deep\nindeed')
    return read(workdir)

  monkeypatch.setattr(runs.run_logs, 'read_diagnoses', fail)
  collected = _collect(folder)
  assert _counted(collected) == {'good'}
  assert [str(problem) for problem in collected.problems] == [
    'unreadable: bad: its files are not those of a run (RecursionError: too deep indeed)'
  ]


def test_names_of_folders_can_be_any_bytes(folder):
  names = [b'\xff', b'a\nb', '²'.encode(), b'\x1b[2J', b'constructor', b'=1+1', b'$\\frac$']
  for i, name in enumerate(names):
    workdir = shutil.copytree(folder / 'bad', folder / f'bad-{i}')
    _record(seed=2 + i)(workdir)
    os.rename(workdir, os.path.join(os.fsencode(folder), name))
  collected = report.write_report(folder, folder.parent / 'out')
  assert len(_counted(collected)) == 2 + len(names) and not collected.problems
  assert all(reading.is_line(workdir, 1000) for workdir in _counted(collected))


def test_names_of_tasks_are_text(folder):
  for run in folder.iterdir():
    record = json.loads((run / 'run.json').read_text())
    name = r'$\frac{<b>|=cmd()$'
    _record(task=name, protocol=record['protocol'] | dict(task=name))(run)
  collected = report.write_report(folder, folder.parent / 'out')
  assert len(_counted(collected)) == 2 and not collected.problems
  assert '<b>' not in (folder.parent / 'out' / 'index.html').read_text()


def test_folders_that_can_not_be_searched_are_named(folder, monkeypatch):
  scandir = os.scandir

  def refuse(path):
    if str(path).endswith('bad'):
      raise PermissionError(13, 'Permission denied', str(path))
    return scandir(path)

  monkeypatch.setattr(os, 'scandir', refuse)
  collected = _collect(folder)
  assert _counted(collected) == {'good'}
  assert [str(problem) for problem in collected.problems] == [
    "unreadable: bad: can't be searched for runs: Permission denied"
  ]


def test_the_search_does_not_go_down_for_ever(folder):
  shutil.move(folder / 'bad', folder / '/'.join(['deep'] * 60))
  collected = _collect(folder)
  assert _counted(collected) == {'good'}
  assert [problem.kind for problem in collected.problems] == [problems_lib.UNREADABLE]


class TestPictures:
  def _write(self, run, **files):
    errors = dict(model=[0.1], last_seen=[0.2])
    content = dict(
      json=json.dumps(dict(errors=dict(vector=errors))).encode(),
      png=b'PNG',
      svg=b'<svg xmlns="http://www.w3.org/2000/svg"><path id="a"/></svg>',
    )
    for suffix, text in (content | files).items():
      (run / f'prediction.{suffix}').write_bytes(text)
    (run / 'video.mp4').write_bytes(b'film')

  def test_are_regular_files_of_the_workdir(self, folder):
    secret = folder.parent / 'secret'
    secret.write_bytes(b'a secret')
    for name in ('video.mp4', 'prediction.png', 'prediction.svg'):
      workdir = shutil.copytree(folder / 'bad', folder / f'bad-{name}')
      self._write(workdir)
      _replaced(name, lambda path: path.symlink_to(secret))(workdir)
    shutil.rmtree(folder / 'bad')
    self._write(folder / 'good')
    out = folder.parent / 'out'
    collected = report.write_report(folder, out)
    kept = archive.write_archive(collected, out, folder.parent / 'kept')
    written = [path for path in [*out.rglob('*'), *(folder.parent / 'kept').rglob('*')] if path.is_file()]
    assert kept and not [path for path in written if b'a secret' in path.read_bytes()]
    assert 'YSBzZWNyZXQ' not in (out / 'index.html').read_text()  # 'a secret' in base 64.
    told = [problem for problem in collected.problems if 'symbolic link' in problem.message]
    assert {problem.where.partition('/')[0] for problem in told} == {run.name for run in folder.glob('bad-*')}

  def test_a_folder_of_results_is_not_followed(self, folder):
    other = folder.parent / 'other'
    other.mkdir()
    for name in ('calibration.json', 'a-calibration.json', 'a-calibration.png'):
      (other / name).write_text('a secret')
    (folder / 'bad' / 'evaluation').symlink_to(other)
    collected = report.write_report(folder, folder.parent / 'out')
    kept = archive.write_archive(collected, folder.parent / 'out', folder.parent / 'kept')
    assert not [name for name in kept if 'calibration' in name]
    assert [problem.where for problem in collected.problems] == ['bad/evaluation/calibration.json']

  def test_what_is_no_svg_is_left_out(self, folder):
    self._write(folder / 'bad', svg=b'GIF89a')
    out = folder.parent / 'out'
    collected = report.write_report(folder, out)
    assert [problem.where for problem in collected.problems] == ['bad/prediction.svg']
    assert not list((out / 'figures').glob('prediction_1.*')) and 'prediction_1' not in (out / 'index.html').read_text()

  def test_a_run_without_a_configuration_has_an_archive(self, folder):
    (folder / 'good' / 'config.gin').unlink()
    collected = report.write_report(folder, folder.parent / 'out')
    assert 'scores.json' in archive.write_archive(collected, folder.parent / 'out', folder.parent / 'kept')


class TestProtocols:
  def test_finished_runs_choose(self, tmp_path):
    synthetic_runs.write_run(tmp_path / 'finished', 'X', steps=4000)
    for seed in (1, 2):
      synthetic_runs.write_run(tmp_path / f'crashed-{seed}', 'X', seed=seed, steps=400, stop_after=1)
    collected = _collect(tmp_path)
    assert _counted(collected) == {'finished'}
    assert {run.workdir for run in collected.refused} == {'crashed-1', 'crashed-2'}

  def test_a_crashed_run_of_the_paper_expels_nobody(self, tmp_path):
    synthetic_runs.write_run(tmp_path / 'finished', steps=40_000)
    synthetic_runs.write_run(tmp_path / 'crashed', seed=1, stop_after=1)
    assert _counted(_collect(tmp_path)) == {'finished'}

  def test_while_none_is_finished_most_runs_choose(self, tmp_path):
    for seed in (1, 2):
      synthetic_runs.write_run(tmp_path / str(seed), 'X', seed=seed, steps=400, stop_after=1)
    synthetic_runs.write_run(tmp_path / '3', 'X', seed=3, steps=4000, stop_after=1)
    assert [run.workdir for run in _collect(tmp_path).refused] == ['3']


def test_a_figure_that_can_not_be_drawn_costs_no_report(folder, monkeypatch):
  def fail(*args):
    raise ValueError('Image size of 99999x9 pixels is too large.')

  monkeypatch.setattr(report.learner_figures, 'multipliers', fail)
  collected = report.write_report(folder, folder.parent / 'out')
  assert [str(problem) for problem in collected.problems] == [
    'figure left out: multipliers: it could not be drawn: ValueError: Image size of 99999x9 pixels is too large.'
  ]
  assert 'Image size' in (folder.parent / 'out' / 'problems.json').read_text()
