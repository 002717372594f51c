"""Wrappers over a fake whose answers are arithmetic."""

from absl.testing import absltest
import dm_env
from dm_env import specs
from dm_env import test_utils
import numpy as np
import pytest

from lambda_kit import types
from lambda_kit.environments import factory
from lambda_kit.environments import grid_cmdp
from lambda_kit.environments import wrappers
from tests.fakes import environments as fakes


class _Conformance(test_utils.EnvironmentTestMixin):
  def make_action_sequence(self):
    spec = self.environment.action_spec()
    for _ in range(20):
      yield np.random.default_rng(0).uniform(spec.minimum, spec.maximum, spec.shape).astype(spec.dtype)


class FakeConformanceTest(_Conformance, absltest.TestCase):
  def make_object_under_test(self):
    return fakes.Counter()


class ActionRepeatConformanceTest(_Conformance, absltest.TestCase):
  def make_object_under_test(self):
    return wrappers.ActionRepeat(fakes.Counter(), 2)


class RescaleActionsConformanceTest(_Conformance, absltest.TestCase):
  def make_object_under_test(self):
    return wrappers.RescaleActions(fakes.Counter())


class SinglePrecisionConformanceTest(_Conformance, absltest.TestCase):
  def make_object_under_test(self):
    return wrappers.SinglePrecision(fakes.Counter())


class AllConformanceTest(_Conformance, absltest.TestCase):
  def make_object_under_test(self):
    return factory.make_environment(seed=0, simulator=fakes.Counter, action_repeat=3)


@pytest.mark.parametrize('terminates', [False, True])
def test_action_repeat_sums_and_stops_at_the_end(terminates):
  environment = wrappers.ActionRepeat(fakes.Counter(length=5, terminates=terminates), 3)
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
  environment = wrappers.RescaleActions(fakes.Counter())
  environment.reset()
  # [-2, 2] and [0, 10]: -1 is the lower bound, 0 the middle, 0.5 three quarters of the way, 7 is clipped to 1.
  for action, expected in (([-1, -1], [-2, 0]), ([0, 0.5], [0, 7.5]), ([7, 1], [2, 10])):
    environment.next_episode = 0
    environment.reset()
    np.testing.assert_allclose(environment.step(np.array(action, np.float32)).observation['vector'], expected)
  spec = environment.action_spec()
  assert spec.minimum.min() == -1 and spec.maximum.max() == 1 and spec.dtype == np.float32


def test_everything_is_single_precision():
  environment = wrappers.SinglePrecision(fakes.Counter())
  environment.reset()
  timestep = environment.step(np.ones(2))
  assert timestep.observation['vector'].dtype == np.float32
  assert timestep.reward.reward.dtype == timestep.reward.cost.dtype == timestep.discount.dtype == np.float32


@pytest.mark.parametrize('poison', [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(poison):
  environment = factory.make_environment(seed=0, simulator=lambda seed: fakes.Counter(poison=poison), action_repeat=1)
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
    wrappers.ActionRepeat(fakes.Counter(), 0)

  class Unbounded(fakes.Counter):
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
  assert wrappers.ActionRepeat(fakes.Counter(), 3).reward_spec().reward == fakes.Counter().reward_spec().reward
