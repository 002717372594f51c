"""What a sweep reads from workdirs."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

import gin
from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit.config import configuration
from lambda_kit.sweeps import errors
from lambda_kit.sweeps import grid
from lambda_kit.sweeps import workdirs
from tests.fakes import sweeps as fakes

_ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def finished(tmp_path):
  (run,) = fakes.make_runs(tmp_path)
  run.output.parent.mkdir(parents=True)
  subprocess.run(run.command, check=True)
  return run


def test_a_run_is_finished_when_nothing_is_left_to_do(finished):
  assert workdirs.is_finished(finished.workdir) and workdirs.steps_done(finished.workdir) == 100


def _change(**values):
  def change(workdir):
    record = json.loads((workdir / 'run.json').read_text())
    (workdir / 'run.json').write_text(json.dumps(record | values))

  return change


@pytest.mark.parametrize(
  'damage',
  [
    _change(finished=None),
    _change(finished=dict(time='now', environment_steps=90)),
    _change(finished=True),
    _change(environment_steps=101),
    lambda workdir: (workdir / 'run.json').write_text('{'),
    lambda workdir: (workdir / 'run.json').unlink(),
    shutil.rmtree,
  ],
)
def test_a_run_with_something_left_is_not_finished(finished, damage):
  damage(finished.workdir)
  assert not workdirs.is_finished(finished.workdir)


def test_steps_are_those_of_the_last_whole_row(tmp_path):
  assert workdirs.steps_done(tmp_path) == 0
  (tmp_path / 'episode.jsonl').write_text('{"environment_steps": 10}\n{"environment_steps": 20}\n{"environment_st')
  assert workdirs.steps_done(tmp_path) == 20


@pytest.mark.parametrize('line', [b'{"environment_stepr": 3}', b'{"environment_steps": 1e999}', b'[' * 70_000, b'\xff'])
def test_broken_rows_are_passed_over(line, tmp_path):
  (tmp_path / 'episode.jsonl').write_bytes(b'{"environment_steps": 10}\n' + line[:60_000] + b'\n')
  assert workdirs.steps_done(tmp_path) == 10


def test_a_log_that_is_no_file_is_not_waited_for(tmp_path):
  os.mkfifo(tmp_path / 'episode.jsonl')
  assert workdirs.steps_done(tmp_path) == 0
  (tmp_path / 'zero').mkdir()
  (tmp_path / 'zero' / 'episode.jsonl').symlink_to('/dev/zero')
  assert workdirs.steps_done(tmp_path / 'zero') == 0


@pytest.mark.parametrize('make', [os.mkfifo, lambda path: path.symlink_to('/dev/zero'), os.mkdir])
def test_what_is_no_file_is_not_waited_for(tmp_path, make):
  (run,) = fakes.make_runs(tmp_path)
  run.workdir.mkdir(parents=True)
  for path in (run.output, run.workdir / 'episode.jsonl', run.workdir / 'run.json'):
    make(path)
  assert workdirs.steps_done(run.workdir) == 0 and not workdirs.is_finished(run.workdir)
  assert workdirs.what_is_missing(run.workdir)
  assert workdirs.last_error(run.output, 1) == 'ended with code 1, without any output'


@pytest.mark.parametrize(
  'text,code,line',
  [
    ('progress\nerror: a cause\n  with details\nand a remedy\n', 1, 'error: a cause'),
    ('Traceback (most recent call):\n  File "x"\n    raise ValueError\nValueError: no\nnote\n', 1, 'ValueError: no'),
    ('jaxlib.XlaRuntimeError: RESOURCE: large\n', 1, 'jaxlib.XlaRuntimeError: RESOURCE: large'),
    ('just\nthis\n\n', 1, 'this'),
    ('', 3, 'ended with code 3, without any output'),
    ('progress\n', -9, 'killed by SIGKILL'),
  ],
)
def test_the_last_error_is_a_line_that_says_why(tmp_path, text, code, line):
  output = tmp_path / 'run.out'
  output.write_text(f'{workdirs.ATTEMPT}1\nerror: of an earlier attempt\n{workdirs.ATTEMPT}2\n{text}')
  assert workdirs.last_error(output, code) == line


def test_no_output_is_no_problem(tmp_path):
  assert workdirs.last_error(tmp_path / 'none', 1) == 'ended with code 1, without any output'


def test_a_workdir_of_another_configuration_is_refused(tmp_path):
  runs = lambda *bindings: grid.make_grid(_ROOT, ['grid'], ['random'], [0, 1], [], bindings, tmp_path)
  workdirs.check_configurations(runs(), _ROOT)
  configuration.parse([*runs()[0].gin_files], ['experiment.seed = 1'], search_paths=[str(_ROOT)])
  configuration.save_config(runs()[1].workdir / 'config.gin')
  workdirs.check_configurations(runs(), _ROOT)
  with pytest.raises(errors.SweepError, match=r'(?s)seed1 holds a run with .*\+ GridCmdp.slip = 0.2.*another --folder'):
    workdirs.check_configurations(runs('GridCmdp.slip = 0.2'), _ROOT)
  (runs()[0].workdir).mkdir(parents=True)
  (runs()[0].workdir / 'config.gin').write_bytes(b'\xffGridCmdp.slip = 0.1')
  with pytest.raises(errors.SweepError, match='seed0 holds a run with another configuration'):
    workdirs.check_configurations(runs(), _ROOT)
  with pytest.raises(configuration.ConfigurationError, match='random on grid: .*Did you mean slip'):
    workdirs.check_configurations(runs('GridCmdp.slipp = 0.2'), _ROOT)
  gin.clear_config()
