"""Tests of the adder: alignment, ends of episodes, and what it refuses."""

from absl import logging
import dm_env
import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from lambda_kit import types
from lambda_kit.agents import random_agent
from lambda_kit.environments import grid_cmdp
from lambda_kit.replay import adder as adder_lib
from lambda_kit.replay import buffer as buffer_lib
from lambda_kit.replay import episodes
from lambda_kit.training import environment_loop
from tests.fakes import loops
from tests.fakes import replay as fakes
from tests.fakes import specs


def _make(sequence_length: int = 2):
  buffer = buffer_lib.EpisodeBuffer(fakes.HEADER, seed=0, sequence_length=sequence_length)
  return adder_lib.EpisodeAdder(buffer), buffer


def _stored(buffer: buffer_lib.EpisodeBuffer) -> list[episodes.Episode]:
  return [episode for _, episode in buffer.items()]


def _play(environment, adder, actions) -> None:
  adder.add_first(environment.reset())
  for action in actions:
    adder.add(np.array([action], np.float32), environment.step([action]))


_ACTIONS = st.lists(st.floats(-1.0, 1.0, width=32), min_size=1, max_size=12)


@hypothesis.given(_ACTIONS, st.booleans())
@hypothesis.settings(deadline=None)
def test_entries_of_a_moment_belong_together(actions, terminates):
  adder, buffer = _make()
  _play(fakes.EchoEnvironment(len(actions), terminates), adder, actions)
  (episode,) = _stored(buffer)
  led_here = np.array([0.0, *actions], np.float32)  # Nothing led to the first moment.
  times = np.arange(len(actions) + 1)
  np.testing.assert_array_equal(episode.action[:, 0], led_here)
  np.testing.assert_array_equal(episode.observation['vector'], np.stack([led_here, times], axis=-1))
  np.testing.assert_array_equal(episode.observation['image'][:, 1, 1, 2], times)
  np.testing.assert_allclose(episode.reward, 10.0 * led_here, rtol=1e-6)
  np.testing.assert_allclose(episode.cost, np.stack([100.0 * led_here, -100.0 * led_here], axis=-1), rtol=1e-6)
  np.testing.assert_array_equal(episode.terminal, [0.0] * len(actions) + [float(terminates)])
  assert {array.dtype for array in episodes.flatten(episode).values()} == {np.dtype('float32'), np.dtype('uint8')}
  assert episode.observation['image'].dtype == np.uint8


def test_episodes_are_shown_before_they_are_stored_and_only_if_they_ended():
  shown = []
  buffer = buffer_lib.EpisodeBuffer(fakes.HEADER, seed=0, sequence_length=2)
  adder = adder_lib.EpisodeAdder(buffer, lambda episode: shown.append((buffer.num_episodes, episode)))
  _play(fakes.EchoEnvironment(3), adder, [0.1, 0.2, 0.3])
  _play(fakes.EchoEnvironment(3), adder, [0.1, 0.2])
  adder.cut()
  ((stored, episode),) = shown
  assert stored == 0 and buffer.num_episodes == 2
  np.testing.assert_array_equal(episode.action, _stored(buffer)[0].action)


@pytest.mark.parametrize('share, stored', [(0.5, True), (0.0, False)])
def test_surprise_is_stored_if_the_buffer_draws_by_it(share, stored):
  buffer = buffer_lib.EpisodeBuffer(fakes.HEADER, seed=0, sequence_length=2, surprise_share=share)
  adder = adder_lib.EpisodeAdder(buffer, lambda episode: np.arange(len(episode.reward), dtype=np.float64))
  _play(fakes.EchoEnvironment(3), adder, [0.1, 0.2, 0.3])
  _play(fakes.EchoEnvironment(3), adder, [0.1, 0.2])
  adder.cut()
  whole, cut = _stored(buffer)
  assert cut.surprise is None  # Nobody scored it.
  if not stored:
    assert whole.surprise is None
    return
  np.testing.assert_array_equal(whole.surprise, [0.0, 1.0, 2.0, 3.0])
  assert whole.surprise.dtype == np.float32 and not whole.surprise.flags.writeable
  assert whole.num_bytes == 4 * (fakes.HEADER.bytes_per_time_step + 4)


@pytest.mark.parametrize('terminates', [False, True])
def test_stored_actions_replay_the_episodes_of_an_environment(terminates):
  """Through the environment loop: the stored actions lead the same environment to all the stored moments."""
  make = lambda: grid_cmdp.GridCmdp(
    seed=3, episode_length=40, hazards_terminate=terminates, observations=('vector', 'image')
  )
  environment = make()
  buffer = buffer_lib.EpisodeBuffer(episodes.Header.of(specs.of(environment)), seed=0, sequence_length=2)
  actor = loops.random_actor(environment, 1, adder_lib.EpisodeAdder(buffer))

  class _Silent:
    def write(self, kind, row):
      pass

  loop = environment_loop.EnvironmentLoop(loops.parts(environment, actor, random_agent.RandomLearner()))
  loop.connect(_Silent())
  for _ in range(4):
    loop.advance()
  assert buffer.num_steps == loop.state.environment_steps and buffer.num_episodes == 4
  again = make()
  for episode in _stored(buffer):
    timesteps = [again.reset()] + [again.step(action) for action in episode.action[1:]]
    for t, timestep in enumerate(timesteps):
      for name, value in timestep.observation.items():
        np.testing.assert_array_equal(episode.observation[name][t], value)
      if t:
        assert episode.reward[t] == timestep.reward.reward
        np.testing.assert_array_equal(episode.cost[t], timestep.reward.cost)
    assert timesteps[-1].last()
    assert episode.terminal[-1] == 1.0 - timesteps[-1].discount
    assert not episode.terminal[:-1].any() and not episode.action[0].any()
  assert any(episode.terminal[-1] for episode in _stored(buffer)) == terminates


def test_nothing_is_stored_before_the_end():
  adder, buffer = _make()
  environment = fakes.EchoEnvironment(3)
  adder.add_first(environment.reset())
  for count in (0, 0, 1):
    adder.add(np.zeros(1), environment.step([0.0]))
    assert buffer.num_episodes == count


def test_a_discount_below_1_at_a_time_limit_is_no_termination():
  adder, buffer = _make()
  _play(fakes.EchoEnvironment(3, discount=0.9), adder, [0.1, 0.2, 0.3])
  assert not _stored(buffer)[0].terminal.any()


@pytest.mark.parametrize('through_add', [False, True])
def test_an_episode_cut_short_is_kept_as_far_as_it_went(through_add, monkeypatch):
  warnings = []
  monkeypatch.setattr(logging, 'warning', lambda message, *args: warnings.append(message % args))
  adder, buffer = _make()
  _play(fakes.EchoEnvironment(10, terminates=True), adder, [0.1, 0.2])
  other = fakes.EchoEnvironment(1)
  if through_add:  # As parallel environments do when a worker was replaced.
    adder.add(np.array([0.5]), other.reset())
  else:
    adder.add_first(other.reset())
  (cut,) = _stored(buffer)
  np.testing.assert_allclose(cut.action[:, 0], [0.0, 0.1, 0.2])
  assert not cut.terminal.any()
  assert warnings == ['An episode was cut short after 2 agent steps.']
  adder.add(np.array([0.7]), other.step([0.7]))
  np.testing.assert_allclose(_stored(buffer)[1].action[:, 0], [0.0, 0.7])


def test_a_lone_first_moment_is_dropped():
  adder, buffer = _make()
  environment = fakes.EchoEnvironment(1)
  adder.add_first(environment.reset())
  _play(environment, adder, [0.25])
  (episode,) = _stored(buffer)
  np.testing.assert_allclose(episode.action[:, 0], [0.0, 0.25])


def test_calls_out_of_order_are_refused():
  adder, _ = _make()
  environment = fakes.EchoEnvironment(2)
  environment.reset()
  with pytest.raises(ValueError, match='call add_first'):
    adder.add(np.zeros(1), environment.step([0.0]))
  with pytest.raises(ValueError, match='begins with a first time step'):
    adder.add_first(environment.step([0.0]))
  _play(fakes.EchoEnvironment(1), adder, [0.0])
  with pytest.raises(ValueError, match='call add_first'):
    adder.add(np.zeros(1), environment.step([0.0]))


def _transition(**changes) -> dm_env.TimeStep:
  observation = {'vector': np.zeros(2), 'image': np.zeros((2, 2, 3), np.uint8)} | changes.pop('observation', {})
  return dm_env.transition(types.CmdpReward(changes.pop('reward', 0.0), changes.pop('cost', np.zeros(2))), observation)


@pytest.mark.parametrize(
  'action, timestep, message',
  [
    ([0.0], _transition(observation={'vector': np.array([0.0, np.nan])}), 'observation/vector .* not finite'),
    ([0.0], _transition(observation={'vector': np.array([1e300, 0.0])}), 'observation/vector .* not finite'),
    ([0.0], _transition(reward=np.nan), 'reward .* not finite'),
    ([0.0], _transition(cost=np.array([np.inf, 0.0])), 'cost .* not finite'),
    ([np.nan], _transition(), 'action .* not finite'),
    ([0.0, 0.0], _transition(), r'action to be float32 \[1\], got float64 \[2\]'),
    ([0.0], _transition(cost=np.zeros(1)), r'cost to be float32 \[2\], got float64 \[1\]'),
    ([0.0], _transition(observation={'image': np.zeros((2, 2, 3))}), r'image to be uint8 \[2, 2, 3\], got float64'),
    ([0.0], _transition(observation={'image': np.zeros((2, 2, 3), int)}), r'image to be uint8 .* got int64'),
    ([0.0], _transition(observation={'map': np.zeros(1)}), r"observed \['image', 'map', 'vector'\]"),
  ],
)
@pytest.mark.filterwarnings('ignore:overflow')
def test_what_can_not_be_stored_is_named_and_ends_the_episode(action, timestep, message):
  adder, buffer = _make()
  _play(fakes.EchoEnvironment(10), adder, [0.1, 0.2])
  with pytest.raises(ValueError, match=message):
    adder.add(np.array(action), timestep)
  (episode,) = _stored(buffer)
  assert episode.num_steps == 2
  with pytest.raises(ValueError, match='call add_first'):  # A moment is missing: nothing may be added after it.
    adder.add(np.zeros(1), _transition())


def test_a_first_observation_with_nan_is_refused():
  adder, buffer = _make()
  with pytest.raises(ValueError, match='observation/vector .* not finite'):
    adder.add_first(dm_env.restart({'vector': np.array([np.nan, 0.0]), 'image': np.zeros((2, 2, 3), np.uint8)}))
  assert not buffer.num_episodes


def test_whole_numbers_are_good_rewards():
  adder, buffer = _make()
  adder.add_first(fakes.EchoEnvironment(1).reset())
  adder.add(np.array([1]), _transition(reward=1, cost=np.array([True, False]))._replace(step_type=dm_env.StepType.LAST))
  (episode,) = _stored(buffer)
  np.testing.assert_array_equal(episode.cost, [[0.0, 0.0], [1.0, 0.0]])
