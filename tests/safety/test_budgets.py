"""Budgets against the values of streams of costs."""

import numpy as np
import pytest

import gin
from lambda_kit import errors
from lambda_kit.safety import budgets
from tests.fakes import specs


def _budget(budget, limits, discount, action_repeat, episode_length=1000):
  return budget(
    specs.make(cost_limits=tuple(limits), action_repeat=action_repeat, episode_length=episode_length), discount
  )


def _stream_value(costs, discount, action_repeat):
  """Value of an episode's simulator costs as an agent sees them: summed over repeats, discounted by agent step."""
  value = 0.0
  for step, start in enumerate(range(0, len(costs), action_repeat)):
    value += discount**step * sum(costs[start : start + action_repeat])
  return value


def test_raw_budgets_are_the_limits():
  assert _budget(budgets.raw_budget, [25.0, 3.0], 0.995, 2).tolist() == [25, 3]


@pytest.mark.parametrize('discount', [0.9, 0.99, 0.995, 1.0])
@pytest.mark.parametrize('action_repeat', [1, 2, 4, 5, 1000])
def test_episodic_budget_is_invariant_to_the_action_repeat(discount, action_repeat):
  """A constant cost rate that spends the limit has the budget as its value, whatever the action repeat."""
  budget = _budget(budgets.EpisodicBudget(until_time_limit=True), [25.0], discount, action_repeat)
  np.testing.assert_allclose(budget, _stream_value(np.full(1000, 25 / 1000), discount, action_repeat), rtol=1e-12)
  if discount < 1:  # The closed form.
    steps = 1000 / action_repeat
    np.testing.assert_allclose(budget, 25 * (1 - discount**steps) / ((1 - discount) * steps), rtol=1e-10)


@pytest.mark.parametrize('action_repeat', [3, 7, 999, 2000])
def test_episodic_budget_if_the_action_repeat_does_not_divide_the_length(action_repeat):
  budget = _budget(budgets.EpisodicBudget(until_time_limit=True), [25.0], 0.99, action_repeat)
  np.testing.assert_allclose(budget, _stream_value(np.full(1000, 25 / 1000), 0.99, action_repeat), rtol=1e-12)


def test_episodic_budget_by_hand():
  # Four simulator steps in two agent steps, discount 0.5. A limit of 4 is spent as 2 and 2, the value is 2 + 0.5 * 2;
  # by the formula 4 (1 - 0.25) / (0.5 * 2) = 3.
  assert _budget(budgets.EpisodicBudget(until_time_limit=True), [4.0, 0.0], 0.5, 2, 4).tolist() == [3, 0]
  # Without a discount the value is the sum, and with a discount of 0 the first step's share.
  assert _budget(budgets.EpisodicBudget(until_time_limit=True), [4.0], 1.0, 2, 4).tolist() == [4]
  assert _budget(budgets.EpisodicBudget(until_time_limit=True), [4.0], 0.0, 2, 4).tolist() == [2]


@pytest.mark.parametrize('action_repeat', [1, 2, 4])
def test_episodic_budget_is_what_critics_estimate_that_bootstrap_through_time_limits(action_repeat):
  """The value of a constant cost rate that never ends, by its sum over 10,000 agent steps."""
  budget = _budget(budgets.EpisodicBudget(), [25.0], 0.995, action_repeat)
  endless = _stream_value(np.full(10_000 * action_repeat, 25 / 1000), 0.995, action_repeat)
  np.testing.assert_allclose(budget, endless, rtol=1e-12)
  if action_repeat == 2:
    np.testing.assert_allclose(budget, 10.0)


def test_no_budget_for_undiscounted_costs_that_never_end():
  with pytest.raises(errors.SetupError, match='set LambdaAgent.cost_discount below 1'):
    _budget(budgets.EpisodicBudget(), [25.0], 1.0, 2)


def test_a_share_of_the_limit():
  # Half of the limit, to the bit: 25 / 2 is exact.
  half = _budget(budgets.EpisodicBudget(share=0.5), [25.0, 5.0], 0.98, 4)
  assert half.tolist() == _budget(budgets.EpisodicBudget(), [12.5, 2.5], 0.98, 4).tolist()
  with pytest.raises(ValueError, match=r'EpisodicBudget\.share = 1\.5 should be a number between 0 and 1\.'):
    budgets.EpisodicBudget(share=1.5)


def test_episodic_budget_tends_to_the_limit_as_the_discount_tends_to_one():
  budget = budgets.EpisodicBudget(until_time_limit=True)
  gaps = [25 - float(_budget(budget, [25.0], 1 - gap, 2)[0]) for gap in (1e-3, 1e-6, 1e-9, 0.0)]
  assert gaps == sorted(gaps, reverse=True)
  # 25 (1 - (T' - 1) gap / 2) to first order, with T' = 500.
  assert gaps[1] == pytest.approx(25 * 499 / 2 * 1e-6, rel=1e-3)
  assert gaps[2] == pytest.approx(25 * 499 / 2 * 1e-9, rel=1e-3)
  assert gaps[3] == pytest.approx(0, abs=1e-12)


def test_the_raw_budget_admits_two_and_a_half_times_the_limit():
  # Costs of 62.5 in 1,000 simulator steps, at the same rate forever, in pairs: the value 2 * 0.0625 / (1 - 0.995) = 25.
  np.testing.assert_allclose(_budget(budgets.raw_budget, [25.0], 0.995, 2), 2 * 62.5 / 1000 / (1 - 0.995))


@pytest.mark.parametrize('budget', [budgets.raw_budget, budgets.EpisodicBudget()])
@pytest.mark.parametrize('discount', [-0.1, 1.1, float('nan')])
def test_discounts_out_of_range_are_refused(budget, discount):
  with pytest.raises(ValueError, match='discount'):
    _budget(budget, [25.0], discount, 2)


def test_an_unknown_episode_length_is_a_sentence_with_the_remedy():
  with pytest.raises(
    errors.SetupError,
    match='EpisodicBudget needs the length of episodes, and Task registers none: bind GymnasiumTask.episode_length',
  ):
    _budget(budgets.EpisodicBudget(), [25.0], 0.99, 2, episode_length=None)
  assert _budget(budgets.raw_budget, [25.0], 0.99, 2, episode_length=None).tolist() == [25]  # Needs no length.


def test_budgets_are_known_to_gin():
  gin.clear_config()
  gin.parse_config(['EpisodicBudget.share = 0.5', 'EpisodicBudget.until_time_limit = True'])
  assert _budget(gin.get_configurable('EpisodicBudget')(), [8.0], 0.5, 2, 4).tolist() == [3]
  assert _budget(gin.get_configurable('raw_budget'), [4.0], 0.5, 2, 4).tolist() == [4]
  gin.clear_config()
