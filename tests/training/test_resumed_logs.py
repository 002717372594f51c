"""Runs whose logs were damaged, lost, or cluttered go on, and repair them."""

import pathlib
import shutil
import subprocess

from absl import logging
import pytest
from tensorboard.backend.event_processing import event_accumulator

import gin
from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit.analysis import run_record
from lambda_kit.config import configuration
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training import train as train_lib
from tests.faults import runs

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_BINDINGS = (
  'ENVIRONMENT_STEPS = 200',
  'GridCmdp.episode_length = 20',
  'experiment.evaluate_every = 100',
  'experiment.evaluation_episodes = 2',
  'experiment.with_video = False',
)


@pytest.fixture(name='warnings')
def _warnings(monkeypatch):
  told = []
  monkeypatch.setattr(logging, 'warning', lambda text, *values: told.append(text % values))
  return told


def _train(workdir, is_time=lambda experiment: False):
  """Trains until the moment comes, then interrupts the run."""
  configuration.parse(['gin/tasks/grid.gin', 'gin/agents/random.gin'], _BINDINGS, [str(_ROOT)])
  try:
    with experiment_lib.build() as experiment:
      advance = experiment.loop.advance

      def advance_or_stop():
        if is_time(experiment):
          raise KeyboardInterrupt
        advance()

      experiment.loop.advance = advance_or_stop
      train_lib.train(experiment, workdir)
  finally:
    gin.clear_config()


def _scalars(workdir):
  """Steps and values by tag, without speeds."""
  events = event_accumulator.EventAccumulator(str(workdir / 'tensorboard')).Reload()
  tags = [tag for tag in events.Tags()['scalars'] if 'steps_per_second' not in tag]
  return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags}


@pytest.fixture(scope='module', name='finished')
def _finished(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('finished') / 'run'
  _train(workdir)
  return workdir


@pytest.fixture(scope='module', name='stopped')
def _stopped(tmp_path_factory):
  """A run that was stopped at step 140, after one of two evaluations."""
  workdir = tmp_path_factory.mktemp('stopped') / 'run'
  with pytest.raises(KeyboardInterrupt):
    _train(workdir, lambda experiment: experiment.loop.state.environment_steps >= 140)
  return workdir


def test_logs_that_were_damaged_in_between_are_those_of_an_undisturbed_run(stopped, finished, tmp_path, warnings):
  workdir = shutil.copytree(stopped, tmp_path / 'run')
  dead = subprocess.Popen(['true'])
  dead.wait()
  leftovers = [
    workdir / f'.video.{dead.pid}.partial.mp4',
    workdir / 'checkpoints' / f'.episode.{dead.pid}.partial.rows',
  ]
  for path in leftovers:
    path.touch()
  (workdir / 'episode.jsonl').unlink()
  shutil.rmtree(workdir / 'tensorboard')
  log = workdir / 'evaluation.jsonl'
  log.write_bytes(log.read_bytes().replace(b'"cost_return"', b'"cost_retusn"'))
  _train(workdir)
  runs.assert_same_outcome(workdir, finished)
  assert [' was lost.' in warnings[0], ' was damaged from line 1 on.' in warnings[1], len(warnings)] == [True, True, 2]
  assert _scalars(workdir) == _scalars(finished)
  assert not any(path.exists() for path in leftovers) and run_record.is_finished(workdir)


def test_a_finished_run_repairs_its_logs_and_stays_finished(finished, tmp_path, warnings):
  workdir = shutil.copytree(finished, tmp_path / 'run')
  for path in workdir.glob('*.jsonl'):
    path.write_bytes(b'{"environment_steps": 20}\n' + path.read_bytes())
  _train(workdir)
  runs.assert_same_outcome(workdir, finished)
  assert len(warnings) == 2 and run_record.is_finished(workdir)
  _train(workdir)
  assert len(warnings) == 2


def test_rows_that_are_damaged_while_a_run_goes_on_do_not_end_it(stopped, tmp_path, warnings):
  """Only the next start can repair them."""
  workdir = shutil.copytree(stopped, tmp_path / 'run')
  log = workdir / 'evaluation.jsonl'

  def damage(experiment):
    log.write_bytes(log.read_bytes().replace(b'environment_steps', b'environment_stepr', 1))
    return False

  _train(workdir, damage)
  assert run_record.is_finished(workdir) and any('evaluation.jsonl, line 1: not a row' in text for text in warnings)
