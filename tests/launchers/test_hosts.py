"""One run of two processes, each with a device of its own, that talk through loopback."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_BINDINGS = (
    'WIDTH = 16', 'LambdaAgent.batch_size = 4', 'LambdaAgent.num_start_states = 12', 'LambdaAgent.horizon = 3',
    'LambdaAgent.updates_per_call = 1', 'LambdaAgent.num_devices = None', 'EpisodeBuffer.sequence_length = 6',
    'Swag.num_models = 2', 'PeriodicUpdates.first = 100', 'PeriodicUpdates.initial_updates = 2',
    'PeriodicUpdates.updates = 2', 'run_experiment.evaluate_every = 200', 'run_experiment.evaluation_episodes = 2',
    'run_experiment.with_video = False')


def _start(workdir, steps, num_devices, *options):
  bindings = [f'--gin_bindings={binding}' for binding in (*_BINDINGS, f'ENVIRONMENT_STEPS = {steps}')]
  return subprocess.Popen(
      [sys.executable, 'launchers/run.py', '--gin_file=gin/tiny_grid.gin', *bindings, f'--workdir={workdir}', *options],
      cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(
          os.environ, JAX_PLATFORMS='cpu', XLA_FLAGS=f'--xla_force_host_platform_device_count={num_devices}'))


def _finish(*processes):
  try:
    outputs = [process.communicate(timeout=600) for process in processes]
  finally:
    for process in processes:
      process.kill()
  for process, (_, errors) in zip(processes, outputs):
    assert process.returncode == 0, errors
  return [output for output, _ in outputs]


def _run_on_two(workdir, steps, *options):
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    address = f'127.0.0.1:{free.getsockname()[1]}'
  return _finish(*(_start(workdir, steps, 1, f'--hosts={address},2,{i}', *options) for i in range(2)))


def _rows(workdir, kind):
  rows = [json.loads(line) for line in (workdir / f'{kind}.jsonl').read_text('utf-8').splitlines()]
  return {row['environment_steps']: row for row in rows}


def test_two_processes_train_as_one_and_go_on_together(tmp_path):
  alone, together = tmp_path / 'alone', tmp_path / 'together'
  _finish(_start(alone, 300, 2))
  _run_on_two(together, 200)
  for output in _run_on_two(together, 300, '--allow_config_change'):
    assert 'Going on from step 200 of 300.' in output
  assert sorted(path.name for path in tmp_path.iterdir()) == ['alone', 'together']
  for kind in ('learner', 'evaluation', 'episode'):
    expected, found = _rows(alone, kind), _rows(together, kind)
    assert found.keys() == expected.keys(), kind
  expected, found = _rows(alone, 'learner'), _rows(together, 'learner')
  for steps, row in expected.items():
    for name, value in row.items():
      if name != 'time':
        assert found[steps][name] == pytest.approx(value, rel=1e-2, abs=1e-3), (steps, name)
  np.testing.assert_allclose(_rows(together, 'evaluation')[300]['episode_returns'],
                             _rows(alone, 'evaluation')[300]['episode_returns'], atol=1e-2)


@pytest.mark.parametrize('hosts, message', [
    ('10.0.0.1,2,0', 'neither auto nor address:port,processes,number'),
    ('10.0.0.1:99,2,2', 'such as 10.0.0.1:1234,2,0')])
def test_hosts_that_can_not_be_read(tmp_path, hosts, message):
  process = _start(tmp_path / 'new', 200, 1, f'--hosts={hosts}')
  _, errors = process.communicate(timeout=300)
  assert process.returncode == 1 and message in errors and 'Traceback' not in errors
  assert not (tmp_path / 'new').exists()
