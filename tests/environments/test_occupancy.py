"""Finite constrained MDPs: exact values and optima, against hand calculations and slower ways to find them."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import optimize
from scipy import special

from lambda_kit.environments import occupancy


def _random_cmdp(seed: int, num_states=4, num_actions=3, num_constraints=2, horizon=6) -> occupancy.FiniteCmdp:
  rng = np.random.default_rng(seed)
  return occupancy.FiniteCmdp(
    transitions=rng.dirichlet(np.full(num_states, 0.3), size=(num_states, num_actions)),
    rewards=rng.normal(size=(num_states, num_actions)),
    costs=rng.random((num_states, num_actions, num_constraints)),
    initial=rng.dirichlet(np.ones(num_states)),
    horizon=horizon,
  )


def _uniform_policy(cmdp: occupancy.FiniteCmdp) -> np.ndarray:
  return np.full(cmdp.rewards.shape, 1.0 / cmdp.rewards.shape[-1])


def _binding_limits(cmdp: occupancy.FiniteCmdp) -> np.ndarray:
  """Half way from the least that all costs together can be to what the unconstrained optimum costs."""
  frugal = occupancy.solve(cmdp._replace(rewards=-cmdp.costs.sum(-1)))
  return 0.5 * (frugal.cost_values + occupancy.solve(cmdp).cost_values)


def _bandit(horizon: int) -> occupancy.FiniteCmdp:
  """One state. The first action gives 1 and costs (1, 0), the second gives 0 and costs (0, 1)."""
  return occupancy.FiniteCmdp(
    transitions=np.ones((1, 2, 1)),
    rewards=np.array([[1.0, 0.0]]),
    costs=np.eye(2)[None],
    initial=np.ones(1),
    horizon=horizon,
  )


def _optimal_value(cmdp: occupancy.FiniteCmdp) -> float:
  """Value iteration, one state and action at a time."""
  values = [0.0] * len(cmdp.initial)
  for _ in range(cmdp.horizon):
    values = [
      max(
        cmdp.rewards[s, m] + sum(p * v for p, v in zip(cmdp.transitions[s, m], values))
        for m in range(cmdp.rewards.shape[1])
      )
      for s in range(len(values))
    ]
  return sum(p * v for p, v in zip(cmdp.initial, values))


def _whole_program(cmdp: occupancy.FiniteCmdp, limits: np.ndarray) -> tuple[float, np.ndarray]:
  """The linear program over x[t, s, m] written out, row by row; returns its value and multipliers."""
  (num_states, num_actions), steps = cmdp.rewards.shape, cmdp.horizon
  rows, sources = [], []
  for t in range(steps):
    for s in range(num_states):
      row = np.zeros((steps, num_states, num_actions))
      row[t, s] = 1.0
      if t > 0:
        row[t - 1] -= cmdp.transitions[:, :, s]
      rows.append(row.reshape(-1))
      sources.append(cmdp.initial[s] if t == 0 else 0.0)
  costs = [np.tile(cmdp.costs[..., i].reshape(-1), steps) for i in range(cmdp.costs.shape[-1])]
  result = optimize.linprog(-np.tile(cmdp.rewards.reshape(-1), steps), A_ub=costs, b_ub=limits, A_eq=rows, b_eq=sources)
  return -result.fun, -result.ineqlin.marginals


class EvaluateTest(parameterized.TestCase):
  def test_hand_calculation(self):
    # From state 0, action 0 stays and action 1 leads to state 1, which is never left and gives 5 and costs 1 a step.
    # Each step in state 0 gives 1. With probability 1/4 for action 1 the agent is in state 0 at t = 0, 1, 2 with
    # probabilities 1, 3/4, 9/16, sum 37/16, and in state 1 for the other 3 - 37/16 = 11/16 of three steps:
    # value 37/16 + 5 * 11/16 = 23/4, cost 11/16.
    cmdp = occupancy.FiniteCmdp(
      transitions=np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]),
      rewards=np.array([[1.0, 1.0], [5.0, 5.0]]),
      costs=np.array([[[0.0], [0.0]], [[1.0], [1.0]]]),
      initial=np.array([1.0, 0.0]),
      horizon=3,
    )
    value, cost_values = occupancy.evaluate(cmdp, np.array([[0.75, 0.25], [0.5, 0.5]]))
    self.assertAlmostEqual(value, 23 / 4)
    np.testing.assert_allclose(cost_values, [11 / 16])
    # Depending on time: leave at t = 0 for certain. Value 1 + 5 + 5, cost 2. Leaving at t = 2 only: 3 and 0.
    stay, leave = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    value, cost_values = occupancy.evaluate(cmdp, np.stack([leave, stay, stay]))
    np.testing.assert_allclose([value, *cost_values], [11.0, 2.0])
    value, cost_values = occupancy.evaluate(cmdp, np.stack([stay, stay, leave]))
    np.testing.assert_allclose([value, *cost_values], [3.0, 0.0])

  def test_uniform_policy(self):
    # Half of ten steps each way.
    value, cost_values = occupancy.evaluate(_bandit(10), _uniform_policy(_bandit(10)))
    np.testing.assert_allclose([value, *cost_values], [5.0, 5.0, 5.0])

  def test_refuses_what_is_no_probability(self):
    cmdp = _random_cmdp(0)
    policy = _uniform_policy(cmdp)
    with self.assertRaisesRegex(ValueError, 'policy must hold probabilities'):
      occupancy.evaluate(cmdp, 2.0 * policy)
    with self.assertRaisesRegex(ValueError, 'transitions must hold probabilities'):
      occupancy.evaluate(cmdp._replace(transitions=0.9 * cmdp.transitions), policy)
    with self.assertRaisesRegex(ValueError, 'initial must hold probabilities'):
      occupancy.solve(cmdp._replace(initial=np.array([1.5, -0.5, 0.0, 0.0])))


class SolveTest(parameterized.TestCase):
  @parameterized.parameters(range(4))
  def test_without_limits_is_value_iteration(self, seed):
    cmdp = _random_cmdp(seed)
    solution = occupancy.solve(cmdp)
    self.assertAlmostEqual(solution.value, _optimal_value(cmdp), places=9)
    np.testing.assert_array_equal(solution.multipliers, np.zeros(2))
    self.assertAlmostEqual(occupancy.evaluate(cmdp, solution.policy).value, solution.value, places=9)

  @parameterized.product(seed=(0, 1, 2, 3), num_constraints=(1, 2, 3))
  def test_with_limits_is_the_whole_linear_program(self, seed, num_constraints):
    cmdp = _random_cmdp(seed, num_constraints=num_constraints)
    limits = _binding_limits(cmdp)
    solution = occupancy.solve(cmdp, limits)
    value, multipliers = _whole_program(cmdp, limits)
    self.assertLess(value, _optimal_value(cmdp) - 0.01)
    self.assertAlmostEqual(solution.value, value, places=6)
    np.testing.assert_allclose(solution.multipliers, multipliers, atol=1e-5)

  @parameterized.parameters(range(4))
  def test_policy_attains_the_solution(self, seed):
    cmdp = _random_cmdp(seed)
    limits = _binding_limits(cmdp)
    solution = occupancy.solve(cmdp, limits)
    value, cost_values = occupancy.evaluate(cmdp, solution.policy)
    self.assertAlmostEqual(value, solution.value, places=9)
    np.testing.assert_allclose(cost_values, solution.cost_values, atol=1e-9)
    self.assertTrue(np.all(cost_values <= limits + 1e-6))
    # Complementary slackness.
    np.testing.assert_allclose(solution.multipliers * (limits - cost_values), 0.0, atol=1e-6)

  @parameterized.parameters(range(4))
  def test_multipliers_are_derivatives_with_respect_to_the_limits(self, seed):
    cmdp = _random_cmdp(seed)
    limits, delta = _binding_limits(cmdp), 1e-4
    multipliers = occupancy.solve(cmdp, limits).multipliers
    self.assertGreater(multipliers.max(), 0.01)
    for i in range(2):
      shift = delta * np.eye(2)[i]
      above, below = occupancy.solve(cmdp, limits + shift).value, occupancy.solve(cmdp, limits - shift).value
      self.assertAlmostEqual((above - below) / (2.0 * delta), multipliers[i], delta=5e-3)

  @parameterized.parameters(1e-4, 1e6)
  def test_any_scale_of_rewards(self, scale):
    # Where the program's numbers are so large that its rounding errors exceed the tolerance, it must still end.
    cmdp = _random_cmdp(2, horizon=20)
    limits = _binding_limits(cmdp)
    scaled = occupancy.solve(cmdp._replace(rewards=scale * cmdp.rewards), limits)
    self.assertAlmostEqual(scaled.value / scale, occupancy.solve(cmdp, limits).value, delta=2e-3)

  def test_loose_limits_change_nothing(self):
    cmdp = _random_cmdp(1)
    solution = occupancy.solve(cmdp, [100.0, 100.0])
    self.assertAlmostEqual(solution.value, occupancy.solve(cmdp).value)
    np.testing.assert_array_equal(solution.multipliers, np.zeros(2))

  @parameterized.parameters(occupancy.solve, occupancy.solve_stationary)
  def test_limits_that_only_a_mixture_keeps(self, solve):
    # With probability p for the first action the costs are (10 p, 10 - 10 p): within (6, 5) if 0.5 <= p <= 0.6.
    # The value is 10 p: the first limit binds, at a value of 6, with a multiplier of 1.
    solution = solve(_bandit(10), [6.0, 5.0])
    np.testing.assert_allclose(solution.value, 6.0, atol=1e-6)
    np.testing.assert_allclose(solution.cost_values, [6.0, 4.0], atol=1e-6)
    np.testing.assert_allclose(solution.multipliers, [1.0, 0.0], atol=1e-6)
    with self.assertRaises(occupancy.InfeasibleError):
      solve(_bandit(10), [4.0, 5.0])

  def test_infeasible_limits_name_what_is_missing(self):
    # Costs sum to 10: the larger excess over (4, 5) is at least (10 - 9) / 2.
    with self.assertRaisesRegex(occupancy.InfeasibleError, r'within \[4\. 5\.\].* by 0\.5 at least'):
      occupancy.solve(_bandit(10), [4.0, 5.0])

  def test_wrong_number_of_limits(self):
    with self.assertRaises(ValueError):
      occupancy.solve(_bandit(10), [4.0])


class SolveStationaryTest(parameterized.TestCase):
  @parameterized.parameters(range(4))
  def test_attains_its_value_within_the_limits(self, seed):
    cmdp = _random_cmdp(seed, horizon=30)
    limits = _binding_limits(cmdp)
    solution = occupancy.solve_stationary(cmdp, limits)
    self.assertEqual(solution.policy.shape, (4, 3))
    value, cost_values = occupancy.evaluate(cmdp, solution.policy)
    self.assertAlmostEqual(value, solution.value)
    self.assertTrue(np.all(cost_values <= limits + 1e-5))
    self.assertLessEqual(solution.value, occupancy.solve(cmdp, limits).value + 1e-5)

  @parameterized.parameters(range(3))
  def test_direct_search_finds_nothing_better(self, seed):
    cmdp = _random_cmdp(seed, horizon=30)
    limits = _binding_limits(cmdp)
    evaluate = lambda logits: occupancy.evaluate(cmdp, special.softmax(logits.reshape(4, 3), axis=-1))
    within = {'type': 'ineq', 'fun': lambda logits: limits - evaluate(logits).cost_values}
    solution = occupancy.solve_stationary(cmdp, limits)
    # From afar the search gets stuck; from the solution mixed with the uniform policy it can improve as it will. Now
    # and then it gets stuck there, too, or ends beyond the limits: of several starts the best counts.
    found = []
    for share in (0.5, 0.7, 0.8, 0.9, 0.95):
      start = np.log(share * solution.policy + (1.0 - share) * _uniform_policy(cmdp)).reshape(-1)
      search = optimize.minimize(lambda logits: -evaluate(logits).value, start, method='SLSQP', constraints=[within])
      if np.min(within['fun'](search.x)) > -1e-6:
        found.append(-search.fun)
    self.assertAlmostEqual(solution.value, max(found), delta=2e-3)

  def test_without_limits(self):
    self.assertAlmostEqual(occupancy.solve_stationary(_bandit(10)).value, 10.0)


if __name__ == '__main__':
  absltest.main()
