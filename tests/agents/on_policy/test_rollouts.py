"""Rollouts in rectangular arrays, also past ends of episodes and failures, on a fake whose answers are arithmetic."""

import dm_env
import numpy as np
import pytest

from lambda_kit.agents.on_policy import interfaces
from lambda_kit.agents.on_policy import rollouts
from lambda_kit.environments.processes import serial
from lambda_kit.training import rollout_loop
from tests.fakes import environments as fakes
from tests.fakes import loops
from tests.fakes import specs


class Recorder(loops.Recorder, interfaces.OnPolicyLearner):
  """Acts by numbers that say which step and which row they are of, and keeps rollouts."""

  def __init__(self):
    super().__init__()
    self.rollouts = []
    self.firsts = []
    self._step = 0

  def reseed(self, episode):
    super().reseed(episode)
    self._step = 0

  def select_actions(self, observation, is_first):
    self.firsts.append(is_first.tolist())
    self._step += 1
    rows = len(observation['vector'])
    return np.stack([np.full(rows, self._step), np.arange(rows)], axis=-1).astype(np.float32)

  def collect(self, rollout):
    self.rollouts.append(
      rollout._replace(
        **{
          name: np.array(getattr(rollout, name))
          for name in ('action', 'reward', 'cost', 'discount', 'is_last', 'weight')
        }
      )
    )


def _loop(recorder, length=5, kind=fakes.Counter, **options):
  options = dict(dict(steps_per_epoch=12, num_environments=2), **options)
  parts = loops.parts(
    kind(length=length),
    recorder,
    recorder,
    None,
    options.pop('max_failed_episodes', 0),
    environment_factory=lambda seed: kind(length=length),
  )
  loop = rollout_loop.RolloutLoop(parts, **options)
  loop.connect(recorder)
  return loop


def test_an_epoch_against_hand_numbers():
  recorder = Recorder()
  loop = _loop(recorder)
  loop.advance()
  (rollout,) = recorder.rollouts
  # Six steps in two environments: an episode of five, and the first step of the next one, which is cut.
  np.testing.assert_array_equal(rollout.reward, np.array([[1, 2, 3, 4, 5, 1]] * 2, np.float32).T)
  np.testing.assert_array_equal(rollout.cost[..., 1], 10 * rollout.reward)
  np.testing.assert_array_equal(rollout.action[:, 1], [[t, 1] for t in range(1, 7)])
  np.testing.assert_array_equal(rollout.is_last, np.array([[0, 0, 0, 0, 1, 1]] * 2, bool).T)
  np.testing.assert_array_equal(rollout.weight, np.ones((6, 2)))
  assert recorder.firsts == [[t in (0, 5)] * 2 for t in range(6)]
  # The fake shows the action that led to an observation: at the end of an episode the true last one, not a reset's.
  np.testing.assert_array_equal(rollout.next_observation['vector'], rollout.action)
  np.testing.assert_array_equal(rollout.observation['vector'][1:5], rollout.action[:4])
  # Costs of the episodes that ended: 5 times 1, and 10 (1 + 2 + 3 + 4 + 5).
  assert rollout.cost_return.tolist() == [5, 150] and rollout.episode_length == 5
  assert recorder.calls == ['episode 0', 'learn 1', 'update']
  assert (loop.state.episodes, loop.state.environment_steps, loop.state.updates) == (2, 12, 1)
  assert loop.state.total_cost.tolist() == [12, 320]
  rows = [row for kind, row in recorder.rows if kind == 'episode']
  assert [(row['episode'], row['environment_steps'], row['episode_return']) for row in rows] == [
    (1, 10, 15),
    (2, 10, 15),
  ]


def test_epochs_begin_with_new_episodes_of_the_same_number_in_all_environments():
  recorder = Recorder()
  loop = _loop(recorder)
  loop.advance()
  loop.advance()
  # Each environment has begun two episodes, 0 and 1.
  assert [call for call in recorder.calls if call.startswith('episode')] == ['episode 0', 'episode 2']
  np.testing.assert_array_equal(recorder.rollouts[1].reward[:, 0], [1, 2, 3, 4, 5, 1])


def test_a_failed_step_does_not_count_and_ends_what_came_before():
  recorder = Recorder()
  # Raises in the third step of episode 1, and in the reset of episode 2.
  loop = _loop(recorder, kind=fakes.FaultyCounter, num_environments=1, max_failed_episodes=2)
  loop.advance()
  (rollout,) = recorder.rollouts
  assert rollout.reward[:, 0].tolist() == [1, 2, 3, 4, 5, 1, 2, 0, 1, 2, 3, 4]
  assert rollout.weight[:, 0].tolist() == [1] * 7 + [0] + [1] * 4
  assert np.flatnonzero(rollout.is_last[:, 0]).tolist() == [4, 6, 7, 11]
  assert (loop.state.failed_episodes, loop.state.episodes, loop.state.environment_steps) == (2, 1, 11)
  with pytest.raises(ArithmeticError, match='lost count'):
    _loop(Recorder(), kind=fakes.FaultyCounter, num_environments=1).advance()


def test_epochs_without_an_end_are_refused():
  with pytest.raises(rollout_loop.NoEpisodeEndedError, match='Raise RolloutLoop.steps_per_epoch = 4'):
    _loop(Recorder(), steps_per_epoch=4).advance()


def test_a_rollout_is_not_finished_early():
  writer = rollouts.RolloutWriter(specs.of(fakes.Counter(length=5)), num_steps=2, num_environments=1)
  with pytest.raises(ValueError, match='only 0 so far'):
    writer.finish(np.zeros(2), 5.0)


@pytest.mark.parametrize(
  'options, message',
  [
    (dict(steps_per_epoch=11), 'multiple of RolloutLoop.num_environments = 2'),
    (dict(num_environments=0), 'num_environments = 0 should be a whole number, 1 or more'),
    (dict(num_processes=4096), 'between 1 and the .* cores'),
    (dict(num_processes=0), 'num_processes = 0 should be a whole number, 1 or more'),
    (dict(num_environments=1, num_processes=2), 'more than num_environments = 1|between 1 and the 1 cores'),
  ],
)
def test_settings_that_make_no_sense_are_refused(options, message):
  with pytest.raises(ValueError, match=message):
    _loop(Recorder(), **options)


def test_agents_that_are_not_on_policy_are_refused():
  recorder = loops.Recorder()
  with pytest.raises(ValueError, match='experiment.agent = @OnPolicyAgent'):
    _loop(recorder)


def test_serial_environments_follow_the_rules_of_dm_env():
  environments = serial.SerialEnvironments([fakes.Counter(length=1), fakes.Counter(length=2)])
  first, last, mid = dm_env.StepType.FIRST, dm_env.StepType.LAST, dm_env.StepType.MID
  assert environments.reset().step_type.tolist() == [first, first] and environments.last_step_counts.tolist() == [0, 0]
  timestep = environments.step(np.ones((2, 2)))
  assert timestep.step_type.tolist() == [last, mid] and environments.last_step_counts.tolist() == [1, 1]
  assert timestep.reward.reward.tolist() == [1, 1] and timestep.reward.cost.shape == (2, 2)
  timestep = environments.reset_done()
  assert timestep.step_type.tolist() == [first, mid] and timestep.reward.reward.tolist() == [0, 1]
  assert environments.episode_numbers.tolist() == [2, 1]
