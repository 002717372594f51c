"""Several seeds in one process against the same seeds alone; and learners that leave, fail or are stopped."""

import json
import pathlib
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit import components  # pylint: disable=unused-import
from lambda_kit.config import configuration
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training import seeds
from lambda_kit.training import train as train_lib

_ROOT = str(pathlib.Path(__file__).resolve().parents[2])
_BINDINGS = (
    'WIDTH = 16', 'LambdaAgent.batch_size = 2', 'LambdaAgent.num_start_states = 6', 'LambdaAgent.horizon = 3',
    'LambdaAgent.updates_per_call = 1', 'EpisodeBuffer.sequence_length = 6', 'Swag.num_models = 2', 'Swag.burn_in = 0',
    'Swag.period = 1', 'PeriodicUpdates.first = 100', 'PeriodicUpdates.initial_updates = 3',
    'PeriodicUpdates.updates = 1', 'ENVIRONMENT_STEPS = 300', 'run_experiment.evaluate_every = 200',
    'run_experiment.evaluation_episodes = 1', 'run_experiment.with_video = False')


def _configure(seed, *bindings):
  configuration.parse(['gin/tiny_grid.gin'], [*_BINDINGS, *bindings, f'run_experiment.seed = {seed}'], [_ROOT])


def _rows(workdir, kind):
  return [json.loads(line) for line in (workdir / f'{kind}.jsonl').read_text('utf-8').splitlines()]


def test_seeds_together_are_those_alone(tmp_path, monkeypatch, capsys):
  groups = []
  original = seeds.UpdateGroup
  monkeypatch.setattr(seeds, 'UpdateGroup', lambda count: groups.append(original(count)) or groups[-1])
  seeds.train([3, 5], tmp_path, _configure)
  assert groups[0].shared_updates == 3 + 2
  assert 'seed 5: grid CMDP: 300 environment steps' in capsys.readouterr().out
  for seed in (3, 5):
    together, alone = tmp_path / f'seed{seed}', tmp_path / f'alone{seed}'
    _configure(seed)
    experiment_lib.run_experiment(job=train_lib.Training(alone))
    for name in ('config.gin', 'operative_config.gin'):
      assert f'run_experiment.seed = {seed}' in (together / name).read_text('utf-8'), name
      assert (together / name).read_text('utf-8') == (alone / name).read_text('utf-8'), name
    for kind in ('learner', 'episode', 'evaluation'):
      found, expected = _rows(together, kind), _rows(alone, kind)
      assert len(found) == len(expected) > 0
      for row, expected_row in zip(found, expected):
        for name, value in expected_row.items():
          if name not in ('time', 'steps_per_second'):
            np.testing.assert_allclose(row[name], value, rtol=1e-3, atol=1e-4, err_msg=f'{kind} {name}')
  different = [_rows(tmp_path / f'seed{seed}', 'learner')[-1]['loss'] for seed in (3, 5)]
  assert different[0] != different[1]


def test_a_seed_that_fails_does_not_stop_the_others(tmp_path):

  def configure(seed):
    _configure(seed, *(['EpisodeBuffer.sequence_length = 500'] if seed == 1 else []))

  with pytest.raises(seeds.SeedsError, match='^seed 1: NotEnoughDataError: There is no sequence') as error:
    seeds.train([1, 3], tmp_path, configure)
  assert 'seed 3' not in str(error.value)
  assert _rows(tmp_path / 'seed3', 'evaluation')[-1]['environment_steps'] == 300


def test_agents_that_can_not_share(tmp_path):
  configure = lambda seed: configuration.parse(
      ['gin/tiny_grid.gin', 'gin/variants/random.gin'], [f'run_experiment.seed = {seed}'], [_ROOT])
  with pytest.raises(seeds.SeedsError, match='can not share its updates'):
    seeds.train([0, 1], tmp_path, configure)


class _Counter:
  """A learner whose state is a number that updates add to."""

  def __init__(self, group, member):
    update = jax.jit(lambda state, change: (state + change, state), donate_argnums=0)
    self.update = group.share(member, 'update', update)
    self.state = jnp.asarray(10.0 * member)

  def run(self, changes):
    for change in changes:
      self.state, _ = self.update(self.state, jnp.asarray(change))


def _run_in_threads(functions):
  threads = [threading.Thread(target=function) for function in functions]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(timeout=60)
    assert not thread.is_alive()


def test_learners_with_fewer_updates_leave():
  group = seeds.UpdateGroup(2)
  counters = [_Counter(group, member) for member in range(2)]

  def run_and_leave(member, changes):
    counters[member].run(changes)
    group.leave(member)

  _run_in_threads([lambda: run_and_leave(0, [1.0, 2.0]), lambda: run_and_leave(1, [1.0, 1.0, 1.0, 1.0])])
  assert [float(counter.state) for counter in counters] == [0 + 3, 10 + 4]
  assert group.shared_updates == 2


def test_learners_that_wait_can_be_stopped():
  group, caught = seeds.UpdateGroup(2), []

  def run_one():
    with pytest.raises(seeds.Stopped):
      _Counter(group, 0).run([1.0])
    caught.append(True)

  thread = threading.Thread(target=run_one)
  thread.start()
  thread.join(timeout=0.2)
  assert thread.is_alive()
  group.stop()
  thread.join(timeout=60)
  assert caught == [True]
