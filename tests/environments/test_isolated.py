"""An environment in a process of its own: the same numbers as in this one, and what is left when it fails."""

import functools
import os
import signal

from absl.testing import absltest
import dm_env
from dm_env import test_utils
import numpy as np
import pytest

import gin
from lambda_kit import signals
from lambda_kit.agents import random_agent
from lambda_kit.environments import factory
from lambda_kit.environments import grid_cmdp
from lambda_kit.environments import wrappers
from lambda_kit.environments.processes import isolated
from lambda_kit.training import environment_loop
from lambda_kit.training import evaluation
from tests.fakes import environments as fakes
from tests.fakes import loops
from tests.fakes import specs
from tests.faults import runs

SEED = 3
# Eight simulator steps are an episode of three agent steps. The names of observations are not in alphabetical order.
_make_grid = functools.partial(
  factory.make_environment,
  action_repeat=3,
  simulator=functools.partial(
    grid_cmdp.GridCmdp, episode_length=8, observations=('vector', 'image'), num_constraints=2
  ),
)
_make_walk = lambda seed: wrappers.SinglePrecision(fakes.Walk(seed))
# What the error says, by fault. Each shows the line where it happened, except for a death without warning.
_MESSAGES = {
  fakes.RAISE: '(?s)FaultyWalk failed.*in _fail.*ArithmeticError: the walk has left the plane',
  fakes.NAN: '(?s)NonFiniteError: The environment returned .* not finite',
  fakes.HANG: '(?s)step_timeout = 1.0 s.*did not answer in time.*in _fail',
  fakes.KILL: 'killed by SIGKILL',
  fakes.CRASH: '(?s)SIGABRT.*in _fail',
  fakes.EXIT: 'exited with status 7',
}


@pytest.fixture
def make():
  """Makes isolated environments, and closes them in the end."""
  environments = []

  def make_isolated(environment_factory, **kwargs):
    environments.append(isolated.IsolatedEnvironment(SEED, environment_factory, **kwargs))
    return environments[-1]

  yield make_isolated
  for environment in environments:
    environment.close()


def _actions(count):
  return np.random.default_rng(0).uniform(-1, 1, (count, 2)).astype(np.float32)


def _assert_same(actual: dm_env.TimeStep, expected: dm_env.TimeStep):
  """Bit for bit, types and the order of observations included."""
  assert actual.step_type is expected.step_type
  assert list(actual.observation) == list(expected.observation)
  pairs = [*zip(actual.observation.values(), expected.observation.values())]
  if expected.first():
    assert actual.reward is None and actual.discount is None
  else:
    pairs += [*zip(actual.reward, expected.reward), (actual.discount, expected.discount)]
  for value, reference in pairs:
    assert value.dtype == reference.dtype and value.shape == reference.shape
    assert value.tobytes() == reference.tobytes()


class ConformanceTest(test_utils.EnvironmentTestMixin, absltest.TestCase):
  def make_object_under_test(self):
    return isolated.IsolatedEnvironment(SEED, functools.partial(_make_grid, action_repeat=1))

  def make_action_sequence(self):
    yield from _actions(20)


class TestEquality:
  def test_episodes_equal_those_of_the_environment_itself(self, make):
    """Two episodes by dm_env's rule, another one far on, and a jump back from the midst of it; all with pictures."""
    direct, environment = _make_grid(seed=SEED), make(_make_grid)
    actions = iter(_actions(20))

    def check(actual, expected):
      _assert_same(actual, expected)
      assert environment.next_episode == direct.next_episode
      assert environment.last_step_count == direct.last_step_count
      picture, reference = environment.render(20, 30), direct.render(20, 30)
      assert picture.dtype == reference.dtype and picture.shape == reference.shape
      np.testing.assert_array_equal(picture, reference)
      return expected

    check(environment.reset(), direct.reset())
    ends = 0
    while ends < 2:
      action = next(actions)
      ends += check(environment.step(action), direct.step(action)).last()
    assert environment.next_episode == 2
    for number, steps in ((17, 1), (1, 3)):
      environment.next_episode = direct.next_episode = number
      assert environment.next_episode == number
      for _ in range(1 + steps):  # The first one begins the episode.
        action = next(actions)
        check(environment.step(action), direct.step(action))
      assert environment.next_episode == number + 1

  def test_it_is_described_as_the_environment_itself(self, make):
    direct, environment = _make_grid(seed=SEED), make(_make_grid)
    assert environment.task_name == direct.task_name and environment.constraint_names == direct.constraint_names
    assert environment.observation_spec() == direct.observation_spec()
    assert list(environment.observation_spec()) == list(direct.observation_spec()) == ['vector', 'image']
    assert environment.action_spec() == direct.action_spec()
    assert environment.reward_spec() == direct.reward_spec()
    assert environment.discount_spec() == direct.discount_spec()
    assert environment.render().shape == (256, 256, 3)

  def test_returned_arrays_belong_to_the_caller(self, make):
    environment = make(fakes.Walk)
    first = environment.reset()
    kept = first.observation['vector'].copy()
    second = environment.step(np.ones(2, np.float32))
    cost = second.reward.cost.copy()
    environment.step(np.ones(2, np.float32))
    np.testing.assert_array_equal(first.observation['vector'], kept)
    np.testing.assert_array_equal(second.reward.cost, cost)

  def test_gin_gives_the_factory_and_learns_what_was_used(self, make):
    gin.clear_config()
    gin.parse_config('make_walk.bias = 0.5')
    gin.finalize()
    environment = make(gin.get_configurable('make_walk'))
    direct = fakes.Walk(SEED, bias=0.5)
    direct.reset()
    environment.reset()
    _assert_same(environment.step(_actions(1)[0]), direct.step(_actions(1)[0]))
    assert 'make_walk.scale = 1.0' in gin.operative_config_str()
    gin.clear_config()

  def test_a_run_equals_one_without_it(self, tmp_path):
    """Through the launcher, with evaluations and checkpoints."""
    runs.finish(tmp_path / 'direct', runs.RANDOM)
    runs.finish(tmp_path / 'isolated', (*runs.RANDOM, '--gin_file=gin/run/isolated.gin'))
    assert 'IsolatedEnvironment.step_timeout' in (tmp_path / 'isolated' / 'operative_config.gin').read_text()
    for kind in ('episode', 'evaluation'):
      assert runs.rows(tmp_path / 'isolated', kind) == runs.rows(tmp_path / 'direct', kind)
    assert runs.last_state(tmp_path / 'isolated')[2] == runs.last_state(tmp_path / 'direct')[2]


class TestFailures:
  def _check_next_episode(self, environment, number):
    """A whole episode, against the environment itself."""
    direct = _make_walk(SEED)
    direct.next_episode = number
    assert environment.next_episode == number
    _assert_same(environment.reset(), direct.reset())
    for action in _actions(3 + number % 3):
      timestep = environment.step(action)
      _assert_same(timestep, direct.step(action))
    assert timestep.last()

  @pytest.mark.parametrize('fault', _MESSAGES)
  def test_a_fault_is_told_and_the_next_episode_is_good(self, fault, make):
    environment = make(functools.partial(fakes.make_faulty_walk, fault=fault), step_timeout=1.0)
    environment.next_episode = 1
    environment.reset()
    environment.step(np.zeros(2, np.float32))
    process_id = environment.process_id
    with pytest.raises(isolated.EnvironmentFailure, match=_MESSAGES[fault]):
      environment.step(np.zeros(2, np.float32))
    assert environment.process_id is None and not os.path.exists(f'/proc/{process_id}')
    self._check_next_episode(environment, 2)
    self._check_next_episode(environment, 3)  # In the same process.

  def test_a_process_killed_from_outside(self, make):
    environment = make(_make_walk)
    environment.reset()
    environment.step(np.zeros(2, np.float32))
    os.kill(environment.process_id, signal.SIGKILL)
    with pytest.raises(isolated.EnvironmentFailure, match='Walk failed') as error:
      environment.step(np.zeros(2, np.float32))
    assert 'killed by SIGKILL' in str(error.value)
    environment.next_episode = 7  # As the loop does; there is no process to be told.
    self._check_next_episode(environment, 7)

  def test_a_step_after_a_failure_begins_an_episode(self, make):
    environment = make(_make_walk)
    environment.reset()
    with pytest.raises(isolated.EnvironmentFailure):
      environment.step(np.array([fakes.RAISE, 0.0]))
    direct = _make_walk(SEED)
    direct.next_episode = 1
    _assert_same(environment.step(np.zeros(2, np.float32)), direct.reset())

  def test_an_episode_that_can_not_begin_is_passed_over(self, make):
    environment = make(lambda seed: wrappers.SinglePrecision(fakes.BadReset(seed)))
    self._check_next_episode(environment, 0)
    with pytest.raises(isolated.EnvironmentFailure, match='OSError: no map of the second plane'):
      environment.reset()
    self._check_next_episode(environment, 2)

  def test_a_picture_that_fails(self, make):
    environment = make(_make_walk)
    environment.reset()
    with pytest.raises(isolated.EnvironmentFailure, match='MemoryError|ValueError'):
      environment.render(2**32 - 1, 2**32 - 1)
    self._check_next_episode(environment, 1)

  def test_what_can_not_be_built_is_an_error_at_once(self):
    with pytest.raises(isolated.EnvironmentFailure, match=f'(?s)could not be built.*LookupError: no plane for {SEED}'):
      isolated.IsolatedEnvironment(SEED, fakes.refuse)
    with pytest.raises(isolated.EnvironmentFailure, match='(?s)start_timeout = 3.0 s.*in sleep_for_ever'):
      isolated.IsolatedEnvironment(SEED, fakes.sleep_for_ever, start_timeout=3.0)
    with pytest.raises(ValueError, match='IsolatedEnvironment.step_timeout = 0.0 should be'):
      isolated.IsolatedEnvironment(SEED, fakes.Walk, step_timeout=0.0)

  def test_an_interrupted_step_is_not_taken_for_the_next(self, make):
    environment = make(_make_walk)
    environment.reset()

    def interrupt(*unused):
      raise KeyboardInterrupt()

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
      signal.setitimer(signal.ITIMER_REAL, 0.1)
      with pytest.raises(KeyboardInterrupt):
        environment.step(np.array([fakes.SPEND, 0.0]))
    finally:
      signal.signal(signal.SIGALRM, previous)
    self._check_next_episode(environment, 1)

  def test_actions_of_another_shape_are_refused_without_harm(self, make):
    environment, direct = make(_make_walk), _make_walk(SEED)
    environment.reset()
    direct.reset()
    with pytest.raises(ValueError, match=r'shape \(2,\), got \(1,\)'):
      environment.step(np.zeros(1))
    _assert_same(environment.step(_actions(1)[0]), direct.step(_actions(1)[0]))

  def test_close_ends_the_process(self):
    environment = isolated.IsolatedEnvironment(SEED, fakes.Walk)
    environment.reset()
    process_id = environment.process_id
    environment.close()
    environment.close()
    assert not os.path.exists(f'/proc/{process_id}')  # Not even a zombie.
    assert environment.next_episode == 1
    with pytest.raises(RuntimeError, match='closed'):
      environment.reset()


class _Rows:
  def __init__(self):
    self.rows = []

  def write(self, kind, row):
    self.rows.append((kind, row))


class TestSignals:
  def test_those_of_schedulers_do_not_reach_an_environment(self, make):
    """They go to all processes of a job. The main one saves, and ends its workers."""
    environment = make(_make_walk)
    environment.reset()
    process_id = environment.process_id
    for number in (signal.SIGINT, *signals.ENDING):
      os.kill(process_id, number)
      environment.step(np.zeros(2, np.float32))
    assert environment.process_id == process_id


class TestEvaluation:
  @pytest.mark.parametrize('fault', [fakes.HANG, fakes.NAN])
  def test_an_evaluation_goes_on_without_what_fails(self, fault, make):
    """Of the episodes 3 to 5, number 4 fails in its second step, each time that it is played."""
    environment = make(functools.partial(fakes.make_faulty_walk, fault=fault), step_timeout=0.5)
    actor = loops.random_actor(environment, seed=0)
    summaries = evaluation.Evaluator(environment, actor, specs.of(environment), 3).run(number=1)
    assert [summary and summary.length for summary in summaries] == [3, None, 5]


class TestLoop:
  @pytest.mark.parametrize('fault', _MESSAGES)
  def test_the_loop_gives_up_what_fails_and_goes_on(self, fault, make):
    """Of the episodes 0 to 5 the numbers 1 and 4 fail in their second step."""
    environment = make(functools.partial(fakes.make_faulty_walk, fault=fault), step_timeout=1.0)
    actor = loops.random_actor(environment, seed=0)
    loop = environment_loop.EnvironmentLoop(
      loops.parts(environment, actor, random_agent.RandomLearner(), max_failed_episodes=2)
    )
    logger = _Rows()
    loop.connect(logger)
    for _ in range(6):
      loop.advance()
    assert [row['length'] for _, row in logger.rows] == [3, 5, 3, 5]  # 3 + n % 3, without episodes 1 and 4.
    assert loop.state.failed_episodes == 2 and loop.state.episodes == 4 == len(logger.rows)
    # The walk says that each step was two: 16 in whole episodes, and one in each that failed.
    assert loop.state.environment_steps == 2 * (16 + 2)
    assert environment.next_episode == 6
    loop.advance()
    with pytest.raises(isolated.EnvironmentFailure, match=_MESSAGES[fault]):
      loop.advance()
