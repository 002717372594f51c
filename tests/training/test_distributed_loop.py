"""The limits of acting and learning apart, with actors whose speeds are given; and real ones in Ray's processes."""

import json
import pathlib
import sys

import dm_env
import numpy as np
import pytest

from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit import errors
from lambda_kit import types
from lambda_kit.config import configuration
from lambda_kit.training import distributed_loop
from lambda_kit.training import environment_loop
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training import schedules
from lambda_kit.training import train as train_lib
from tests.fakes import specs

_ROOT = str(pathlib.Path(__file__).resolve().parents[2])
_STEPS = 10  # Of an episode.


class _Environment:
  next_episode = 0
  mujoco_version = '3.3.7'


class _Actor:
  variable_names = ('policy',)

  def __init__(self):
    self.stored = 0

  def observe_first(self, timestep):
    assert timestep.first()

  def observe(self, action, timestep):
    del action, timestep
    self.stored += 1

  def update(self):
    pass


class _Learner:
  def __init__(self):
    self.updates = 0

  def observe_episode(self, cost_return):
    pass

  def step(self, num_updates):
    self.updates += num_updates
    return {'loss': 0.0}

  def get_variables(self, names):
    assert names == ('policy',)
    return [np.asarray(self.updates)]


class _Pool:
  """Actors that take given times for an episode."""

  mujoco_version = '3.3.5'

  def __init__(self, durations, failures=()):
    self.size = len(durations)
    self._durations, self._failures = durations, failures
    self._now, self._ends, self.played = 0.0, {}, []

  def publish(self, variables):
    self._version = int(variables[0])

  def play(self, actor, number):
    assert actor not in self._ends
    self._ends[actor] = (self._now + self._durations[actor], number)
    self.played.append((number, actor, self._version))

  def wait(self):
    actor = min(self._ends, key=lambda actor: self._ends[actor])
    self._now, number = self._ends.pop(actor)
    if number in self._failures:
      return actor, OSError('died')
    reward = types.CmdpReward(np.float32(1), np.full((1,), 0.5, np.float32))
    return actor, distributed_loop.Played(
      dm_env.TimeStep(dm_env.StepType.FIRST, None, None, {}),
      [np.zeros(2)] * _STEPS,
      [dm_env.TimeStep(dm_env.StepType.MID, reward, 1.0, {})] * _STEPS,
      [2] * _STEPS,
      1.0,
      self.mujoco_version,
    )

  def close(self):
    pass


class _Logger:
  def __init__(self):
    self.rows = []

  def write(self, kind, row):
    self.rows.append((kind, row))


def _loop(pool, max_staleness, max_failed_episodes=0):
  # 20 environment steps and 4 updates for each episode.
  schedule = schedules.PeriodicUpdates(first=20, initial_updates=4, every=20, updates=4)
  parts = environment_loop.LoopParts(
    specs.make(), _Environment(), _Actor(), _Learner(), schedule, max_failed_episodes, lambda seed: _Environment()
  )
  loop = distributed_loop.DistributedLoop(parts, pool, max_staleness)
  loop.connect(_Logger())
  return loop


@pytest.mark.parametrize('durations', [(1.0,), (1.0, 1.0, 1.0), (1.0, 2.5, 7.0)])
@pytest.mark.parametrize('max_staleness', [0, 5, 8, 1000])
def test_both_limits_hold(durations, max_staleness):
  pool = _Pool(durations)
  loop = _loop(pool, max_staleness)
  for _ in range(40):
    begun = len(pool.played)
    due = 4 * loop.state.environment_steps // 20 - loop.state.updates
    loop.advance()
    if due:  # No episode begins before the learner has caught up.
      assert len(pool.played) == begun
    assert loop.state.updates <= 4 * loop.state.environment_steps // 20
  assert loop.largest_staleness <= max_staleness
  assert loop.state.environment_steps == 40 * 20 and loop._actor.stored == 40 * _STEPS
  assert sorted(number for number, _, _ in pool.played) == list(range(len(pool.played)))
  # Actors are ahead by an episode each, at most.
  assert len(pool.played) <= 40 + len(durations)
  assert loop.state.updates >= 4 * (40 - len(durations))
  np.testing.assert_allclose(loop.cost_regret, 0.5 / 2)  # 0.5 for each agent step of two environment steps.


def test_without_a_limit_actors_never_wait_for_each_other():
  pool = _Pool((1.0, 100.0))
  loop = _loop(pool, max_staleness=1000)
  for _ in range(20):
    loop.advance()
  assert [actor for _, actor, _ in pool.played].count(0) == 20
  assert loop.largest_staleness == 0 and loop.state.updates == 80


def test_with_a_limit_the_learner_waits_for_the_slow_one():
  pool = _Pool((1.0, 100.0))
  loop = _loop(pool, max_staleness=8)
  loop.advance()
  loop.advance()
  assert loop.state.updates == 8  # More would make the slow actor's variables older than 8 updates.
  loop.advance()
  assert loop.state.updates == 8 and loop.state.environment_steps == 60
  loop.advance()  # No other episode has begun: this is the slow one's.
  assert loop.largest_staleness == 8 and loop.state.updates == 16


def test_lost_episodes_are_counted_then_raised():
  loop = _loop(_Pool((1.0, 2.0), failures=(1, 4)), 1000, max_failed_episodes=1)
  for _ in range(3):
    loop.advance()
  assert (loop.state.failed_episodes, loop.state.episodes) == (1, 2)
  with pytest.raises(OSError, match='died'):
    for _ in range(5):
      loop.advance()


@pytest.mark.parametrize('version', ['3.4.0', None])
def test_episodes_of_another_physics_are_refused(version):
  pool = _Pool((1.0,))
  pool.mujoco_version = version
  with pytest.raises(
    errors.SetupError, match=f'An actor simulates with MuJoCo {version}, .*has 3.3.7: install the same'
  ):
    _loop(pool, 0).advance()


_BINDINGS = (
  'WIDTH = 16',
  'LambdaAgent.batch_size = 2',
  'LambdaAgent.num_start_states = 6',
  'LambdaAgent.horizon = 3',
  'LambdaAgent.updates_per_call = 1',
  'EpisodeBuffer.sequence_length = 6',
  'Swag.num_models = 2',
  'Swag.burn_in = 0',
  'Swag.period = 1',
  'PeriodicUpdates.first = 100',
  'PeriodicUpdates.initial_updates = 3',
  'PeriodicUpdates.updates = 1',
  'ENVIRONMENT_STEPS = 300',
  'experiment.evaluate_every = 200',
  'experiment.evaluation_episodes = 1',
  'experiment.with_video = False',
)
_DISTRIBUTED = 'gin/run/distributed.gin'


def _train(workdir, files=(), bindings=()):
  configuration.parse(['gin/tasks/grid.gin', *files], [*_BINDINGS, *bindings], [_ROOT])
  with experiment_lib.build() as experiment:
    train_lib.train(experiment, workdir)
  return {
    kind: [json.loads(line) for line in (workdir / f'{kind}.jsonl').read_text('utf-8').splitlines()]
    for kind in ('learner', 'episode', 'evaluation')
  }


def test_one_actor_of_ray_does_what_the_synchronous_loop_does(tmp_path):
  """Episodes have 100 steps and updates follow every 100: so both act with the same variables all the time."""
  pytest.importorskip('ray')
  expected = _train(tmp_path / 'synchronous')
  found = _train(tmp_path / 'distributed', [_DISTRIBUTED], ['distributed_loop.num_actors = 1'])
  for kind, rows in expected.items():
    assert len(found[kind]) == len(rows)
    for row, expected_row in zip(found[kind], rows):
      for name, value in expected_row.items():
        if name not in ('time', 'steps_per_second'):
          np.testing.assert_allclose(row[name], value, rtol=1e-4, atol=1e-5, err_msg=f'{kind} {name}')


def test_without_ray_the_message_says_what_to_do(monkeypatch, tmp_path):
  monkeypatch.setitem(sys.modules, 'ray', None)
  with pytest.raises(errors.SetupError, match=r"pip install -e '\.\[ray\]'.*@EnvironmentLoop"):
    _train(tmp_path, [_DISTRIBUTED])
