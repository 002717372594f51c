"""The launcher that evaluates checkpoints, on a small run of LAMBDA."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import gin
from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit.agents import actor as actor_lib
from lambda_kit.analysis import certificate
from lambda_kit.config import configuration
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training import exported
from lambda_kit.training.checkpoints import store as store_lib
from tests.faults import runs

_OBSERVATIONS = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
_ACT = """
import sys
import numpy as np
import lambda_kit
folder, observations, actions = sys.argv[1:]
policy = lambda_kit.load_policy(folder)
policy.reset(seed=7)
np.save(actions, [policy({'vector': row}) for row in np.load(observations)])
assert not any(name.startswith('lambda_kit.agents') for name in sys.modules)
assert 'gin' not in sys.modules or not sys.modules['gin'].config_str()
"""


def _evaluate(workdir, *arguments):
  return subprocess.run(
    [sys.executable, str(runs.ROOT / 'launchers' / 'evaluate.py'), f'--workdir={workdir}', *arguments],
    cwd=runs.ROOT,
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )


def _refused(done, *messages):
  assert done.returncode != 0 and 'Traceback' not in done.stderr
  assert all(message in done.stderr for message in messages), done.stderr


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
  return shutil.copytree(runs.finished_lambda(tmp_path_factory), tmp_path_factory.mktemp('trained') / 'run')


@pytest.fixture(scope='module')
def evaluated(trained):
  before = (trained / 'evaluation.jsonl').read_bytes()
  done = _evaluate(trained, '--episodes=1', '--videos=2', '--calibrate=2', f'--export={trained.parent / "exported"}')
  assert done.returncode == 0, done.stderr
  assert (trained / 'evaluation.jsonl').read_bytes() == before
  return trained, done


def test_the_score_is_reproduced_to_the_bit(evaluated):
  workdir, done = evaluated
  assert 'reproduced to the bit' in done.stdout and 'cost regret' in done.stdout
  row = json.loads((workdir / 'evaluation' / 'evaluation.jsonl').read_text())
  saved = runs.rows(workdir, 'evaluation')[-1]
  assert row['reproduced'] is True and row['environment_steps'] == saved['environment_steps'] == 1000
  assert row['episode_returns'][:2] == saved['episode_returns'] and len(row['episode_returns']) == 3


def test_forecasts_of_costs_are_compared_with_costs(evaluated):
  workdir, done = evaluated
  results = workdir / 'evaluation'
  content = json.loads((results / 'step_000000001000-calibration.json').read_text())
  (scores,) = content['constraints'].values()
  assert (content['episodes'], content['horizon'], content['samples']) == (2, 3, 2) and len(scores['steps']) == 3
  assert scores['bound']['level'] == pytest.approx(2 / 3, abs=1e-3)
  assert (results / 'step_000000001000-calibration.png').exists()
  found = certificate.read(results)
  assert found.environment_steps == 1000 and found.episodes == 2 and found.task == content['task']
  assert found.describe() in done.stdout


def test_the_export_carries_the_certificate(evaluated, tmp_path):
  workdir, _ = evaluated
  written = (workdir / 'evaluation' / 'calibration.json').read_bytes()
  assert (workdir.parent / 'exported' / 'calibration.json').read_bytes() == written
  policy = exported.load(workdir.parent / 'exported')
  assert policy.certificate == certificate.read(workdir / 'evaluation')
  # Later exports of this checkpoint carry it, too; those of others don't.
  for step, carried in ((1000, True), (900, False)):
    done = _evaluate(workdir, f'--step={step}', f'--export={tmp_path / str(step)}')
    assert done.returncode == 0, done.stderr
    assert (tmp_path / str(step) / 'calibration.json').exists() == carried


def test_an_export_to_a_folder_in_use_is_refused_before_anything_is_played(trained, tmp_path):
  (tmp_path / 'mine').write_text('')
  done = _evaluate(trained, '--calibrate=1000', f'--export={tmp_path}')
  _refused(done, 'is not an exported policy')
  assert 'Evaluating' not in done.stdout


def test_videos_and_a_prediction_are_written(evaluated):
  results = evaluated[0] / 'evaluation'
  for i in range(2):
    assert (results / f'step_000000001000-episode_{i}.mp4').stat().st_size > 1000
  content = json.loads((results / 'step_000000001000-prediction.json').read_text())
  # Of 21 time steps, 5 are seen.
  assert content['environment_steps'] == 1000 and len(content['errors']['vector']['model']) == 16
  assert (results / 'step_000000001000-prediction.png').exists()


def test_the_exported_policy_acts_as_the_agent_in_a_fresh_process(evaluated, tmp_path):
  workdir, _ = evaluated
  np.save(tmp_path / 'observations.npy', _OBSERVATIONS)
  subprocess.run(
    [
      sys.executable,
      '-c',
      _ACT,
      str(workdir.parent / 'exported'),
      str(tmp_path / 'observations.npy'),
      str(tmp_path / 'actions.npy'),
    ],
    cwd=tmp_path,
    env=dict(os.environ, PYTHONPATH=str(runs.ROOT)),
    timeout=300,
    check=True,
  )
  checkpoint = store_lib.CheckpointStore(workdir / 'checkpoints').newest()
  configuration.parse([str(workdir / 'config.gin')])
  with experiment_lib.build() as experiment:
    experiment.learner.restore(checkpoint.load('learner', experiment.learner.save()))
    actor = actor_lib.Actor(
      experiment.builder.make_actor_core(evaluation=True), experiment.learner, experiment.seeds.evaluation_actor
    )
    actor.reseed(7)
    actor.observe_first(experiment.evaluation_environment.reset())
    expected = np.array([actor.select_action({'vector': row}) for row in _OBSERVATIONS])
  gin.clear_config()
  actions = np.load(tmp_path / 'actions.npy')
  assert actions.dtype == expected.dtype and actions.tobytes() == expected.tobytes()


def test_another_task_is_refused(trained):
  done = _evaluate(trained, "--gin_bindings=GridCmdp.layout = ('S1G',)")
  _refused(done, 'error: ', 'is of the task', 'GridCmdp S1G')


def test_another_configuration_is_refused(trained, tmp_path):
  workdir = shutil.copytree(trained, tmp_path / 'run')
  with open(workdir / 'config.gin', 'a') as file:
    file.write('GridCmdp.slip = 0.2\n')
  _refused(_evaluate(workdir), f'{workdir}/config.gin is damaged, changed, or of another run')


def test_a_damaged_checkpoint_is_skipped(trained, tmp_path):
  workdir = shutil.copytree(trained, tmp_path / 'run')
  with open(workdir / 'checkpoints' / 'step_000000001000' / 'learner.safetensors', 'r+b') as file:
    file.seek(-1, os.SEEK_END)
    file.write(b'\xff')
  done = _evaluate(workdir)
  assert done.returncode == 0 and 'is damaged and skipped' in done.stderr, done.stderr
  assert 'step_000000000900' in done.stdout and 'reproduced to the bit' in done.stdout


def test_a_folder_without_a_run_is_refused(tmp_path):
  _refused(_evaluate(tmp_path), f'{tmp_path} holds no run')
