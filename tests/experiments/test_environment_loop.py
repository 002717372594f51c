"""The loop and the evaluator, on a fake environment whose answers are arithmetic."""

import numpy as np
import pytest

from lambda_kit import core
from lambda_kit.experiments import environment_loop
from lambda_kit.experiments import evaluation
from lambda_kit.experiments import schedules
from lambda_kit.environments import wrappers

from tests.environments import test_wrappers


class Recorder(core.Actor, core.Logger, core.Learner):
  """Writes down every call that the loop makes."""

  def __init__(self):
    self.calls = []
    self.rows = []

  def reseed(self, episode):
    self.calls.append(f'episode {episode}')

  def select_action(self, observation):
    self.calls.append('select')
    return np.full(2, len(self.calls), np.float64)

  def observe_first(self, timestep):
    assert timestep.first()
    self.calls.append('first')

  def observe(self, action, next_timestep):
    # The fake shows the action that led to an observation.
    np.testing.assert_array_equal(action, next_timestep.observation['vector'])
    self.calls.append('observe')

  def update(self, wait=False):
    self.calls.append('update')

  def step(self, num_updates):
    self.calls.append(f'learn {num_updates}')
    return {'loss': 1.0}

  def get_variables(self, names):
    return []

  def save(self):
    return ()

  def restore(self, state):
    ...

  def write(self, kind, row):
    self.rows.append((kind, row))

  def close(self):
    ...


def _loop(recorder, repeat=2, **options):
  environment = wrappers.ActionRepeat(test_wrappers.Counter(length=5), repeat)
  schedule = schedules.PeriodicUpdates(first=4, initial_updates=3, every=2, updates=10)
  loop = environment_loop.EnvironmentLoop(environment, recorder, recorder, schedule)
  loop.connect(recorder, **options)
  return loop


def test_the_order_of_calls():
  recorder, steps, first_updates = Recorder(), [], []
  loop = _loop(recorder, on_step=steps.append, on_first_update=lambda: first_updates.append(len(recorder.calls)))
  loop.run_episode()
  # Five simulator steps in three agent steps, 2 + 2 + 1. The first updates are due at step 4, ten more at step 6.
  assert recorder.calls == ['episode 0', 'first', 'select', 'observe', 'select', 'observe', 'learn 3', 'update', 'select', 'observe']
  assert steps == [2, 4, 5] and first_updates == [8]
  loop.run_episode()
  # Step 7: one period of 2 has passed since step 4; steps 9 and 10: two and three have.
  assert recorder.calls[10:] == ['episode 1', 'first', 'select', 'observe', 'learn 10', 'update', 'select', 'observe',
                                 'learn 10', 'update', 'select', 'observe', 'learn 10', 'update']
  assert loop.state.updates == 33 and first_updates == [8]


def test_rows_and_counts():
  recorder = Recorder()
  loop = _loop(recorder)
  summaries = [loop.run_episode() for _ in range(2)]
  # Rewards 1 + 2 + 3 + 4 + 5; costs 5 times 1, and 10 times that sum.
  for summary in summaries:
    assert summary.episode_return == 15 and summary.cost_return.tolist() == [5, 150]
    assert (summary.length, summary.environment_steps) == (3, 5)
  episodes = [row for kind, row in recorder.rows if kind == 'episode']
  assert [row['environment_steps'] for row in episodes] == [5, 10]
  assert episodes[1]['cost_regret'] == [1.0, 30.0]  # 10 / 10 and 300 / 10.
  assert loop.state.total_cost.tolist() == [10, 300]
  learner = [row for kind, row in recorder.rows if kind == 'learner']
  assert learner[0] == dict(environment_steps=4, updates=3, loss=1.0)


def test_evaluations_take_their_own_episodes():
  environment = test_wrappers.Counter(length=3)
  evaluator = evaluation.Evaluator(environment, Recorder(), num_episodes=4)
  episodes = evaluator.run(number=2)
  assert environment.next_episode == 12  # Episodes 8 to 11.
  row = evaluation.evaluation_row(episodes, environment_steps=50, cost_regret=np.array([0.5, 1.0]))
  assert row['episode_return'] == 6 and row['cost_return'] == [3, 60] and row['episode_returns'] == [6] * 4
  frames = list(evaluator.record(2, cost_limit=25.0, size=64))
  assert len(frames) == 4 and frames[0].dtype == np.uint8  # The first observation and three steps.


def test_schedule():
  schedule = schedules.PeriodicUpdates()  # The paper's: 100 after 5,000 steps, then 100 for each 1,000.
  assert [schedule(steps) for steps in (0, 4_999, 5_000, 5_999, 6_000, 1_000_000)] == [0, 0, 100, 100, 200, 99_600]
  with pytest.raises(ValueError, match='every=0'):
    schedules.PeriodicUpdates(every=0)
  with pytest.raises(ValueError, match='at least one episode'):
    evaluation.Evaluator(test_wrappers.Counter(), Recorder(), 0)
