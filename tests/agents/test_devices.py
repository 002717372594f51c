"""The learner on 1, 2 and 4 devices (of one CPU) and on two processes: the same updates, and little to tell."""

import functools
import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from lambda_kit.agents.lambda_ import devices
from tests.fakes import specs
from tests.fakes import tiny


def _start(path, case, counts, num_devices, *options):
  flags = f'{os.environ.get("XLA_FLAGS", "")} --xla_force_host_platform_device_count={num_devices}'
  environment = dict(os.environ, XLA_FLAGS=flags, JAX_PLATFORMS='cpu')
  return subprocess.Popen(
    [sys.executable, '-m', 'tests.agents.sharded_updates', str(path), case, *counts, *options],
    env=environment,
    stderr=subprocess.PIPE,
    text=True,
  )


def _result(process, path):
  _, errors = process.communicate(timeout=600)
  assert process.returncode == 0, errors
  return json.loads(path.read_text('utf-8'))


@pytest.fixture(scope='module', name='results')
def _results(tmp_path_factory):
  """Results by number of devices, of a case."""

  @functools.cache
  def run(case, *counts):
    path = tmp_path_factory.mktemp(case) / 'result.json'
    return _result(_start(path, case, counts, 4), path)

  return run


def _assert_same(result, expected):
  for name, value in expected['metrics'].items():
    assert result['metrics'][name] == pytest.approx(value, rel=2e-4, abs=2e-5), name
  # Adam's first steps are the sign of a gradient, however small it is: rounding may move a weight by three rates.
  differences = np.abs(np.subtract(result['policy'], expected['policy']))
  assert differences.max() < 3e-4 and np.mean(differences) < 1e-6, (differences.max(), differences.mean())
  np.testing.assert_allclose(result['action'], expected['action'], atol=1e-3)
  assert result['restored']


@pytest.mark.parametrize(
  'case, counts',
  [
    ('selected', ('1', '4')),
    pytest.param('selected', ('1', '2'), marks=pytest.mark.slow),
    pytest.param('whole', ('1', '4'), marks=pytest.mark.slow),
    pytest.param('some_starts', ('1', '2'), marks=pytest.mark.slow),
    pytest.param('ensemble', ('1', '2'), marks=pytest.mark.slow),
    pytest.param('variational', ('1', '2'), marks=pytest.mark.slow),
    pytest.param('parts_of_sequences', ('1', '2'), marks=pytest.mark.slow),
  ],
)
def test_updates_are_those_of_one_device(results, case, counts):
  found = results(case, *counts)
  assert not found['1']['collectives']
  for count in counts[1:]:
    _assert_same(found[count], found['1'])


@pytest.mark.parametrize('case', ['selected', pytest.param('whole', marks=pytest.mark.slow)])
def test_devices_exchange_sums_alone_and_never_in_a_loop(results, case):
  found = results(case, '1', '4')['4']
  assert {collective['kind'] for collective in found['collectives']} == {'all-reduce'}
  assert not any(collective['in_loop'] for collective in found['collectives'])
  # Gradients of all parameters once, and of the policy's a second time: for rewards and for costs. The rest are sums.
  total = sum(collective['size'] for collective in found['collectives'])
  assert found['parameters'] < total < 1.5 * found['parameters']


@pytest.mark.slow
def test_start_states_that_are_drawn_are_all_that_is_exchanged_beside_sums(results):
  found = results('some_starts', '1', '2')['2']
  others = [collective for collective in found['collectives'] if collective['kind'] != 'all-reduce']
  assert sum(collective['size'] for collective in others) <= 20 * (3 + 8)  # B L states of 3 and 8 numbers.


@pytest.mark.slow
def test_two_processes_learn_as_one(results, tmp_path):
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    coordinator = f'127.0.0.1:{free.getsockname()[1]}'
  paths = [tmp_path / f'{i}.json' for i in range(2)]
  processes = [
    _start(path, 'selected', ('all',), 2, f'--coordinator={coordinator}', f'--process={i}')
    for i, path in enumerate(paths)
  ]
  try:
    first, second = (_result(process, path)['all'] for process, path in zip(processes, paths))
  finally:
    for process in processes:
      process.kill()
  assert first['metrics'] == second['metrics'] and first['policy'] == second['policy']
  _assert_same(first, results('selected', '1', '4')['1'])


def _build(**options):
  return tiny.make_agent(**options).build(specs.make())


def test_batches_that_can_not_be_divided_are_refused(monkeypatch):
  monkeypatch.setattr(devices.jax, 'devices', lambda: [object()] * 4)
  monkeypatch.setattr(devices.jax.sharding, 'Mesh', lambda *args: None)
  with pytest.raises(ValueError, match=r'batch_size = 6 can not be divided among 4 devices.*multiple of 4'):
    _build(batch_size=6, num_devices=4)
  with pytest.raises(ValueError, match='num_start_states = 10 can not be divided among 4'):
    _build(batch_size=8, num_start_states=10, num_devices=None)
  with pytest.raises(ValueError, match='num_devices = 5, and JAX sees 4'):
    _build(num_devices=5)
  with pytest.raises(ValueError, match='num_devices = 0'):
    _build(num_devices=0)
