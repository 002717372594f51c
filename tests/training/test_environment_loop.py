"""The loop and the evaluator, on a fake environment whose answers are arithmetic."""

import numpy as np
import pytest

from lambda_kit.agents import random_agent
from lambda_kit.environments import wrappers
from lambda_kit.environments.processes import isolated
from lambda_kit.replay import adder as adder_lib
from lambda_kit.replay import buffer as buffer_lib
from lambda_kit.replay import episodes as episodes_lib
from lambda_kit.training import environment_loop
from lambda_kit.training import evaluation
from lambda_kit.training import schedules
from tests.fakes import environments as fakes
from tests.fakes import loops
from tests.fakes import specs


def _loop(recorder, repeat=2, **options):
  environment = wrappers.ActionRepeat(fakes.Counter(length=5), repeat)
  schedule = schedules.PeriodicUpdates(first=4, initial_updates=3, every=2, updates=10)
  loop = environment_loop.EnvironmentLoop(loops.parts(environment, recorder, recorder, schedule))
  loop.connect(recorder, **options)
  return loop


def test_the_order_of_calls():
  recorder, steps, first_updates = loops.Recorder(), [], []
  loop = _loop(recorder, on_step=steps.append, on_first_update=lambda: first_updates.append(len(recorder.calls)))
  loop.advance()
  # Five simulator steps in three agent steps, 2 + 2 + 1. The first updates are due at step 4, ten more at step 6.
  assert recorder.calls == [
    'episode 0',
    'first',
    'select',
    'observe',
    'select',
    'observe',
    'learn 3',
    'update',
    'select',
    'observe',
  ]
  assert steps == [2, 4, 5] and first_updates == [8]
  loop.advance()
  # Step 7: one period of 2 has passed since step 4; steps 9 and 10: two and three have.
  assert recorder.calls[10:] == [
    'episode 1',
    'first',
    'select',
    'observe',
    'learn 10',
    'update',
    'select',
    'observe',
    'learn 10',
    'update',
    'select',
    'observe',
    'learn 10',
    'update',
  ]
  assert loop.state.updates == 33 and first_updates == [8]


def test_updates_from_an_offline_dataset_come_before_the_first_step():
  recorder = loops.Recorder()
  schedule = schedules.PeriodicUpdates(first=0, initial_updates=7, every=5, updates=2)
  loop = environment_loop.EnvironmentLoop(loops.parts(fakes.Counter(length=5), recorder, recorder, schedule))
  loop.connect(recorder)
  loop.advance()
  assert recorder.calls[:4] == ['learn 7', 'update', 'episode 0', 'first']
  assert recorder.rows[0] == ('learner', dict(environment_steps=0, updates=7, loss=1.0))
  # Two more after five steps, at the end of the episode, and nothing between the episodes.
  assert recorder.calls[-3:] == ['observe', 'learn 2', 'update'] and loop.state.updates == 9
  loop.advance()
  assert recorder.calls[recorder.calls.index('episode 1') - 1] == 'update' and loop.state.updates == 11


def test_rows_and_counts():
  recorder = loops.Recorder()
  loop = _loop(recorder)
  for _ in range(2):
    loop.advance()
  episodes = [row for kind, row in recorder.rows if kind == 'episode']
  # Rewards 1 + 2 + 3 + 4 + 5; costs 5 times 1, and 10 times that sum.
  for row in episodes:
    assert row['episode_return'] == 15 and row['cost_return'] == [5, 150] and row['length'] == 3
  assert [row['environment_steps'] for row in episodes] == [5, 10]
  assert episodes[1]['cost_regret'] == [1.0, 30.0]  # 10 / 10 and 300 / 10.
  assert loop.state.total_cost.tolist() == [10, 300]
  learner = [row for kind, row in recorder.rows if kind == 'learner']
  assert learner[0] == dict(environment_steps=4, updates=3, loss=1.0)


def test_failed_episodes_are_given_up_and_what_they_cost_is_counted():
  recorder, environment = loops.Recorder(), fakes.FaultyCounter(length=5)
  schedule = schedules.PeriodicUpdates(first=1, initial_updates=1, every=100, updates=1)
  loop = environment_loop.EnvironmentLoop(loops.parts(environment, recorder, recorder, schedule, max_failed_episodes=2))
  loop.connect(recorder)
  for _ in range(4):
    loop.advance()
  assert recorder.calls.count('give up') == 2
  assert [call for call in recorder.calls if call.startswith('episode')] == [f'episode {n}' for n in range(4)]
  assert recorder.calls.count('first') == 3 and recorder.calls.count('observe') == 5 + 2 + 5
  assert (loop.state.failed_episodes, loop.state.episodes, loop.state.environment_steps) == (2, 2, 12)
  # A whole episode costs 5 and 10 (1 + 2 + 3 + 4 + 5) = 150, the first two steps 2 and 10 (1 + 2) = 30.
  assert loop.state.total_cost.tolist() == [12, 330]
  rows = [row for kind, row in recorder.rows if kind == 'episode']
  assert [(row['episode'], row['environment_steps'], row['length']) for row in rows] == [(1, 5, 5), (2, 12, 5)]
  assert rows[1]['cost_regret'] == [12 / 12, 330 / 12]


@pytest.mark.parametrize(
  'maximum, error, message', [(0, ArithmeticError, 'lost count'), (1, OSError, 'no second floor')]
)
def test_after_the_last_failure_that_is_allowed_the_error_itself_is_raised(maximum, error, message):
  recorder = loops.Recorder()
  loop = environment_loop.EnvironmentLoop(
    loops.parts(fakes.FaultyCounter(), recorder, recorder, max_failed_episodes=maximum)
  )
  loop.connect(recorder)
  for _ in range(1 + maximum):
    loop.advance()
  with pytest.raises(error, match=message):
    loop.advance()
  assert loop.state.failed_episodes == maximum and len(recorder.rows) == 1


def test_a_loop_without_a_schedule_is_refused():
  recorder = loops.Recorder()
  with pytest.raises(ValueError, match='EnvironmentLoop needs a schedule'):
    environment_loop.EnvironmentLoop(loops.parts(fakes.Counter(), recorder, recorder, None))


def test_what_was_complete_of_a_failed_episode_is_kept_in_the_replay():
  environment = fakes.FaultyCounter(length=5)
  buffer = buffer_lib.EpisodeBuffer(episodes_lib.Header.of(specs.of(environment)), seed=0, sequence_length=2)
  actor = loops.random_actor(environment, 0, adder_lib.EpisodeAdder(buffer))
  loop = environment_loop.EnvironmentLoop(
    loops.parts(environment, actor, random_agent.RandomLearner(), max_failed_episodes=2)
  )
  loop.connect(loops.Recorder())
  lengths = []
  for _ in range(4):
    loop.advance()
    lengths.append([episode.num_steps for _, episode in buffer.items()])
  # At once, so that a checkpoint has it. Episode 2 had no first time step.
  assert lengths == [[5], [5, 2], [5, 2], [5, 2, 5]]
  (_, cut) = list(buffer.items())[1]
  assert cut.reward.tolist() == [0, 1, 2] and not cut.terminal.any()


def test_evaluations_take_their_own_episodes():
  environment = fakes.Counter(length=3)
  evaluator = evaluation.Evaluator(environment, loops.Recorder(), specs.of(environment), num_episodes=4)
  episodes = evaluator.run(number=2)
  assert environment.next_episode == 12  # Episodes 8 to 11.
  row = evaluation.evaluation_row(episodes, environment_steps=50, cost_regret=np.array([0.5, 1.0]))
  assert row['episode_return'] == 6 and row['cost_return'] == [3, 60] and row['episode_returns'] == [6] * 4
  frames = list(evaluator.record(2, size=64))
  assert len(frames) == 4 and frames[0].dtype == np.uint8  # The first observation and three steps.


def test_schedule():
  schedule = schedules.PeriodicUpdates()  # The paper's: 100 after 5,000 steps, then 100 for each 1,000.
  assert [schedule(steps) for steps in (0, 4_999, 5_000, 5_999, 6_000, 1_000_000)] == [0, 0, 100, 100, 200, 99_600]
  with pytest.raises(ValueError, match='PeriodicUpdates.every = 0 should be'):
    schedules.PeriodicUpdates(every=0)


def test_an_evaluation_plays_an_episode_again_if_its_process_died():
  class Dying(fakes.Counter):
    deaths = 2
    played = []

    def step(self, action):
      if self.next_episode == 5 and self.deaths:  # In episode 4.
        self.deaths -= 1
        raise isolated.EnvironmentFailure('died')
      timestep = super().step(action)
      if timestep.last():
        self.played.append(self.next_episode - 1)
      return timestep

  environment = Dying(length=3)
  summaries = evaluation.Evaluator(environment, loops.Recorder(), specs.of(environment), 3).run(number=1)
  assert environment.played == [3, 4, 5] and [summary.length for summary in summaries] == [3, 3, 3]
  environment.deaths, environment.played[:] = 3, []
  summaries = evaluation.Evaluator(environment, loops.Recorder(), specs.of(environment), 3).run(number=1)
  assert environment.played == [3, 5] and [summary and summary.length for summary in summaries] == [3, None, 3]
  environment.deaths = 3
  with pytest.raises(evaluation.EpisodeFailure, match='max_failed_episodes.*EnvironmentFailure: died'):
    evaluation.Evaluator(environment, loops.Recorder(), specs.of(environment), 3).run(number=1, failures_left=0)
