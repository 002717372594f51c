"""One run of two processes, each with a device of its own, that talk through loopback."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

from lambda_kit.training import hosts

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_BINDINGS = (
  'WIDTH = 16',
  'LambdaAgent.batch_size = 4',
  'LambdaAgent.num_start_states = 12',
  'LambdaAgent.horizon = 3',
  'LambdaAgent.updates_per_call = 1',
  'LambdaAgent.num_devices = None',
  'EpisodeBuffer.sequence_length = 6',
  'Swag.num_models = 2',
  'PeriodicUpdates.first = 100',
  'PeriodicUpdates.initial_updates = 2',
  'PeriodicUpdates.updates = 2',
  'experiment.evaluate_every = 200',
  'experiment.evaluation_episodes = 2',
  'experiment.with_video = False',
)


def _start(workdir, steps, num_devices, *options):
  bindings = [f'--gin_bindings={binding}' for binding in (*_BINDINGS, f'ENVIRONMENT_STEPS = {steps}')]
  flags = f'{os.environ.get("XLA_FLAGS", "")} --xla_force_host_platform_device_count={num_devices}'
  return subprocess.Popen(
    [sys.executable, 'launchers/run.py', '--gin_file=gin/tasks/grid.gin', *bindings, f'--workdir={workdir}', *options],
    cwd=_ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    env=dict(os.environ, JAX_PLATFORMS='cpu', XLA_FLAGS=flags),
  )


def _finish(*processes):
  try:
    outputs = [process.communicate(timeout=600) for process in processes]
  finally:
    for process in processes:
      process.kill()
  for process, (_, errors) in zip(processes, outputs):
    assert process.returncode == 0, errors
  return [output for output, _ in outputs]


def _run_on_two(workdir, steps):
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    address = f'127.0.0.1:{free.getsockname()[1]}'
  _finish(*(_start(workdir, steps, 1, f'--hosts={address},2,{i}') for i in range(2)))


def _rows(workdir, kind):
  rows = [json.loads(line) for line in (workdir / f'{kind}.jsonl').read_text('utf-8').splitlines()]
  return {row['environment_steps']: row for row in rows}


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path):
  alone, together = tmp_path / 'alone', tmp_path / 'together'
  _finish(_start(alone, 200, 2))
  _run_on_two(together, 200)
  assert sorted(path.name for path in tmp_path.iterdir()) == ['alone', 'together']
  for kind in ('learner', 'evaluation', 'episode'):
    assert _rows(together, kind).keys() == _rows(alone, kind).keys(), kind
  for steps, row in _rows(alone, 'learner').items():
    for name, value in row.items():
      if name not in ('time', 'seal'):
        assert _rows(together, 'learner')[steps][name] == pytest.approx(value, rel=1e-2, abs=1e-3), (steps, name)
  np.testing.assert_allclose(
    _rows(together, 'evaluation')[200]['episode_returns'], _rows(alone, 'evaluation')[200]['episode_returns'], atol=1e-2
  )


def test_other_processes_begin_with_a_copy_of_the_workdir(tmp_path, monkeypatch):
  """So all of them go on from the first one's checkpoint, and it alone writes there."""
  workdir, synchronized = tmp_path / 'run', []
  (workdir / 'checkpoints').mkdir(parents=True)
  (workdir / 'checkpoints' / 'step').write_text('1')
  monkeypatch.setattr(hosts.jax, 'process_count', lambda: 2)
  monkeypatch.setattr(hosts.multihost_utils, 'sync_global_devices', synchronized.append)
  for index in (0, 1):
    monkeypatch.setattr(hosts.jax, 'process_index', lambda index=index: index)
    with hosts.workdir_of_process(workdir) as own:
      assert (own == workdir) == (index == 0)
      assert (own / 'checkpoints' / 'step').read_text() == '1'
      (own / 'checkpoints' / f'of_{index}').write_text('')
  assert not own.exists() and len(synchronized) == 2
  assert sorted(path.name for path in (workdir / 'checkpoints').iterdir()) == ['of_0', 'step']


# Prints the addresses on which this process listens, as /proc writes them.
_LISTEN = """
import os, sys
from lambda_kit.training import hosts
hosts.join(sys.argv[1])
own = {os.readlink(f'/proc/self/fd/{name}') for name in os.listdir('/proc/self/fd') if name.isdecimal()
       and os.path.lexists(f'/proc/self/fd/{name}')}
for table in ('tcp', 'tcp6'):
  for line in open(f'/proc/net/{table}').read().splitlines()[1:]:
    fields = line.split()
    if fields[3] == '0A' and f'socket:[{fields[9]}]' in own:
      print(fields[1])
"""


def test_the_first_process_listens_on_its_address_alone():
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    port = free.getsockname()[1]
  command = [sys.executable, '-c', _LISTEN, f'127.0.0.1:{port},1,0']
  env = dict(os.environ, JAX_PLATFORMS='cpu')
  done = subprocess.run(command, cwd=_ROOT, env=env, capture_output=True, text=True, timeout=300, check=True)
  (address,) = done.stdout.split()
  assert address in (f'0100007F:{port:04X}', f'0000000000000000FFFF00000100007F:{port:04X}')


def test_one_process_works_in_the_workdir_itself(tmp_path):
  with hosts.workdir_of_process(tmp_path / 'new') as own:
    assert own == tmp_path / 'new' and not own.exists()


@pytest.mark.parametrize(
  'description, message',
  [
    ('10.0.0.1,2,0', 'neither auto nor address:port,processes,number'),
    ('10.0.0.1:99,2,2', 'such as 10.0.0.1:1234,2,0'),
  ],
)
def test_hosts_that_can_not_be_read(tmp_path, description, message):
  process = _start(tmp_path / 'new', 200, 1, f'--hosts={description}')
  _, errors = process.communicate(timeout=300)
  assert process.returncode == 1 and message in errors and 'Traceback' not in errors
  assert not (tmp_path / 'new').exists()
