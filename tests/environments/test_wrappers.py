"""Wrappers over a fake whose answers are arithmetic."""

from absl.testing import absltest
import dm_env
from dm_env import specs
from dm_env import test_utils
import numpy as np
import pytest

from lambda_kit import core
from lambda_kit import types
from lambda_kit.environments import factory
from lambda_kit.environments import grid_cmdp
from lambda_kit.environments import wrappers


class Counter(core.Environment):
  """Step t of an episode of `length` steps has reward t, costs (1, 10 t) and shows the action."""

  def __init__(self, seed=0, length=5, terminates=False, poison=None):
    del seed
    self._length, self._terminates, self._poison = length, terminates, poison
    self._next_episode, self._t, self._running = 0, 0, False

  def reset(self):
    self._t, self._running = 0, True
    self._next_episode += 1
    return dm_env.restart({'vector': np.zeros(2)})

  def step(self, action):
    if not self._running:
      return self.reset()
    self._t += 1
    value = self._poison if self._poison is not None and self._t == 2 else float(self._t)
    reward = types.CmdpReward(value, np.array([1.0, 10.0 * self._t]))
    observation = {'vector': np.asarray(action, np.float64)}
    if self._t < self._length:
      return dm_env.transition(reward, observation)
    self._running = False
    return (dm_env.termination if self._terminates else dm_env.truncation)(reward, observation)

  def observation_spec(self):
    return {'vector': specs.Array((2,), np.float64, name='vector')}

  def action_spec(self):
    return specs.BoundedArray((2,), np.float64, [-2.0, 0.0], [2.0, 10.0], name='action')

  def reward_spec(self):
    return types.CmdpReward(specs.Array((), np.float64), specs.Array((2,), np.float64))

  @property
  def constraint_names(self):
    return ('one', 'ten')

  @property
  def next_episode(self):
    return self._next_episode

  @next_episode.setter
  def next_episode(self, number):
    self._next_episode = number
    self._running = False

  @property
  def last_step_count(self):
    return int(self._t > 0)

  def render(self, height=256, width=256):
    return np.zeros((height, width, 3), np.uint8)


class _Conformance(test_utils.EnvironmentTestMixin):
  def make_action_sequence(self):
    spec = self.environment.action_spec()
    for _ in range(20):
      yield np.random.default_rng(0).uniform(spec.minimum, spec.maximum, spec.shape).astype(spec.dtype)


class FakeConformanceTest(_Conformance, absltest.TestCase):
  def make_object_under_test(self):
    return Counter()


class ActionRepeatConformanceTest(_Conformance, absltest.TestCase):
  def make_object_under_test(self):
    return wrappers.ActionRepeat(Counter(), 2)


class RescaleActionsConformanceTest(_Conformance, absltest.TestCase):
  def make_object_under_test(self):
    return wrappers.RescaleActions(Counter())


class SinglePrecisionConformanceTest(_Conformance, absltest.TestCase):
  def make_object_under_test(self):
    return wrappers.SinglePrecision(Counter())


class AllConformanceTest(_Conformance, absltest.TestCase):
  def make_object_under_test(self):
    return factory.make_environment(seed=0, simulator=Counter, action_repeat=3)


@pytest.mark.parametrize('terminates', [False, True])
def test_action_repeat_sums_and_stops_at_the_end(terminates):
  environment = wrappers.ActionRepeat(Counter(length=5, terminates=terminates), 3)
  environment.reset()
  assert environment.last_step_count == 0
  first = environment.step(np.ones(2))
  # Rewards 1 + 2 + 3; costs 3 * 1 and 10 * (1 + 2 + 3).
  assert first.reward.reward == 6 and first.reward.cost.tolist() == [3, 60] and first.mid()
  assert environment.last_step_count == 3
  second = environment.step(np.ones(2))
  # Two steps are left: 4 + 5; costs 2 and 10 * (4 + 5).
  assert second.reward.reward == 9 and second.reward.cost.tolist() == [2, 90] and second.last()
  assert environment.last_step_count == 2
  assert second.discount == (0.0 if terminates else 1.0)
  assert environment.step(np.ones(2)).first()


def test_actions_are_rescaled_and_clipped():
  environment = wrappers.RescaleActions(Counter())
  environment.reset()
  # [-2, 2] and [0, 10]: -1 is the lower bound, 0 the middle, 0.5 three quarters of the way, 7 is clipped to 1.
  for action, expected in (([-1, -1], [-2, 0]), ([0, 0.5], [0, 7.5]), ([7, 1], [2, 10])):
    environment.next_episode = 0
    environment.reset()
    np.testing.assert_allclose(environment.step(np.array(action, np.float32)).observation['vector'], expected)
  spec = environment.action_spec()
  assert spec.minimum.min() == -1 and spec.maximum.max() == 1 and spec.dtype == np.float32


def test_everything_is_single_precision():
  environment = wrappers.SinglePrecision(Counter())
  environment.reset()
  timestep = environment.step(np.ones(2))
  assert timestep.observation['vector'].dtype == np.float32
  assert timestep.reward.reward.dtype == timestep.reward.cost.dtype == timestep.discount.dtype == np.float32


@pytest.mark.parametrize('poison', [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(poison):
  environment = factory.make_environment(seed=0, simulator=lambda seed: Counter(poison=poison), action_repeat=1)
  environment.reset()
  environment.step(np.zeros(2))
  with pytest.raises(wrappers.NonFiniteError, match='reward'):
    environment.step(np.zeros(2))
  environment.reset()
  with pytest.raises(wrappers.NonFiniteError, match="observation.'vector'"):
    environment._environment._environment._environment.step = lambda action: dm_env.transition(
      types.CmdpReward(0.0, np.zeros(2)), {'vector': np.array([poison, 0.0])}
    )
    environment.step(np.zeros(2))


def test_bad_options_are_named():
  with pytest.raises(ValueError, match='action_repeat'):
    wrappers.ActionRepeat(Counter(), 0)

  class Unbounded(Counter):
    def action_spec(self):
      return specs.BoundedArray((2,), np.float64, -np.inf, np.inf)

  with pytest.raises(ValueError, match='without bounds'):
    wrappers.RescaleActions(Unbounded())


def test_bounds_of_repeated_costs_are_those_of_their_sum():
  environment = wrappers.ActionRepeat(grid_cmdp.GridCmdp(0, layout=('S1G',), slip=0.0), 3)
  spec = environment.reward_spec().cost
  assert (spec.minimum, spec.maximum) == (0.0, 3.0)
  environment.reset()
  spec.validate(environment.step(np.array([0.3, 0.0])).reward.cost)
  # An environment whose costs have no bounds keeps it that way.
  assert wrappers.ActionRepeat(Counter(), 3).reward_spec().reward == Counter().reward_spec().reward
