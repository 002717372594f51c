"""The built-in constrained MDP: its rules by hand, and its episodes against the exact values."""

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import test_utils
import numpy as np

import gin
from lambda_kit.environments import grid_cmdp
from lambda_kit.environments import occupancy
from tests.fakes import grid

# Limits that bind in the default room, by number of constraints.
_LIMITS = {1: (5.0,), 2: (2.5, 2.5)}
# Small enough for a goal and hazards of both types within a few steps.
SMALL = ('S1G', 'S#.', '.2.')


def _make(**kwargs) -> grid_cmdp.GridCmdp:
  return grid_cmdp.GridCmdp(**{'seed': 0, **kwargs})


def _play(environment, policy, num_episodes: int) -> np.ndarray:
  """Returns and cost returns [num_episodes, 1 + C] of `policy(t, state) -> action`."""
  sums = []
  for _ in range(num_episodes):
    timestep, t, total = environment.reset(), 0, 0.0
    while not timestep.last():
      timestep = environment.step(policy(t, environment.state))
      total, t = total + np.append(timestep.reward.reward, timestep.reward.cost), t + 1
    sums.append(total)
  return np.stack(sums)


def _assert_mean(samples: np.ndarray, expected: np.ndarray) -> None:
  """The mean of samples [n, D] is `expected` up to four standard errors."""
  errors = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
  assert np.all(errors < 0.05 * np.abs(expected)), errors  # Else this would show little.
  assert np.all(np.abs(samples.mean(axis=0) - expected) < 4.0 * errors), (samples.mean(axis=0), expected, errors)


def _walk(layout, *actions, **kwargs) -> tuple[list[float], list[list[float]], list[float]]:
  """Rewards, costs and the last position (row, column) of a walk without slips and shaping, from the only start."""
  environment = _make(layout=layout, **{'slip': 0.0, 'shaping': 0.0, **kwargs})
  environment.reset()
  steps = [environment.step(np.array(action, np.float32)) for action in actions]
  x, y = steps[-1].observation['vector']
  height, width = len(layout), len(layout[0])
  position = [round((1 - y) / 2 * (height - 1), 4), round((x + 1) / 2 * (width - 1), 4)]
  return [float(s.reward.reward) for s in steps], [s.reward.cost.tolist() for s in steps], position


class _ConformanceTest(test_utils.EnvironmentTestMixin):
  """What dm_env asks of environments, over more than one episode."""

  KWARGS = {}

  def make_object_under_test(self):
    return _make(episode_length=7, **self.KWARGS)

  def make_action_sequence(self):
    rng = np.random.default_rng(0)
    for _ in range(20):
      yield rng.uniform(-1.0, 1.0, 2).astype(np.float32)


class VectorConformanceTest(_ConformanceTest, absltest.TestCase):
  pass


class ImageConformanceTest(_ConformanceTest, absltest.TestCase):
  KWARGS = {'observations': ('image',)}


class BothConformanceTest(_ConformanceTest, absltest.TestCase):
  KWARGS = {'observations': ('image', 'vector'), 'image_size': 20}


class TwoConstraintsConformanceTest(_ConformanceTest, absltest.TestCase):
  KWARGS = {'num_constraints': 2}


class TerminatingConformanceTest(_ConformanceTest, absltest.TestCase):
  KWARGS = {'layout': SMALL, 'hazards_terminate': True}


class RulesTest(parameterized.TestCase):
  @parameterized.parameters(
    ((1, 0), [2, 3]),
    ((-1, 0), [2, 1]),
    ((0, 1), [1, 2]),
    ((0, -1), [3, 2]),
    ((1, 1), [1, 3]),
    ((-1, -1), [3, 1]),
    ((0, 0), [2, 2]),
    ((5, -5), [3, 3]),
  )
  def test_moves_are_x_to_the_right_and_y_up(self, action, expected):
    self.assertEqual(_walk(('....G', '.....', '..S..', '.....', '.....'), action)[2], expected)

  @parameterized.parameters(
    ((0, 1), [1, 1]),  # A wall.
    ((1, 1), [0, 2]),  # To the right, then up: around the corner.
    ((-1, 1), [0, 0]),
    ((0, -1), [1, 1]),  # The border.
    ((1, -1), [1, 2]),
  )  # The border stops one part of the move only.
  def test_walls_and_borders_stop_each_part_of_a_move(self, action, expected):
    self.assertEqual(_walk(('.#.G', '.S..'), action)[2], expected)

  def test_goal_gives_one_and_leads_back_to_the_start(self):
    rewards, _, position = _walk(('S.G',), (1, 0), (1, 0))
    self.assertEqual((rewards, position), ([0.0, 1.0], [0, 0]))

  def test_hazards_cost_one_for_each_step_that_ends_in_them(self):
    # Into the first hazard, wait there, on to the second, out.
    path = ((1, 0), (0, 0), (1, 0), (1, 0))
    layout = ('S12.G',)
    self.assertEqual(_walk(layout, *path)[1], [[1.0], [1.0], [1.0], [0.0]])
    self.assertEqual(_walk(layout, *path, num_constraints=2)[1], [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    self.assertEqual(_make(layout=layout).constraint_names, ('hazards',))
    self.assertEqual(_make(layout=layout, num_constraints=2).constraint_names, ('hazards_1', 'hazards_2'))

  def test_shaping_counts_moves_around_walls(self):
    # The way is down, down, right, right and up at once (the horizontal part comes first, which is free), up: 5 moves.
    # The distance of 5 becomes 4, 4 (waited), 5 (went back), 4, 3, 2, 1, 0.
    layout = ('S#G', '.#.', '...')
    rewards, _, _ = _walk(layout, (0, -1), (0, 0), (0, 1), (0, -1), (0, -1), (1, 0), (1, 1), (0, 1), shaping=0.5)
    np.testing.assert_allclose(rewards, [0.5, 0.0, -0.5, 0.5, 0.5, 0.5, 0.5, 1.5])

  def test_time_limit_is_no_termination(self):
    environment = _make(layout=('S.G',), episode_length=3, slip=0.0)
    environment.reset()
    steps = [environment.step(np.zeros(2)) for _ in range(3)]
    self.assertEqual([step.last() for step in steps], [False, False, True])
    self.assertEqual([step.discount for step in steps], [1.0, 1.0, 1.0])

  def test_hazards_terminate_if_asked_to(self):
    environment = _make(layout=('S1G',), hazards_terminate=True, slip=0.0)
    environment.reset()
    step = environment.step(np.array([1.0, 0.0]))
    self.assertTrue(step.last())
    self.assertEqual((step.discount, step.reward.cost.tolist()), (0.0, [1.0]))

  def test_step_count_and_episode_number(self):
    environment = _make()
    self.assertEqual((environment.next_episode, environment.last_step_count), (0, 0))
    environment.reset()
    environment.step(np.zeros(2))
    self.assertEqual((environment.next_episode, environment.last_step_count), (1, 1))
    environment.reset()
    self.assertEqual((environment.next_episode, environment.last_step_count), (2, 0))

  def test_starts_are_equally_likely(self):
    environment = _make(layout=('S..G', 'S..S'))
    starts = []
    for _ in range(3000):
      environment.reset()
      starts.append(np.eye(8)[environment.state])
    _assert_mean(np.stack(starts)[:, [0, 4, 7]], np.full(3, 1 / 3))


class ReproducibilityTest(absltest.TestCase):
  def _episode(self, environment, number: int) -> np.ndarray:
    environment.next_episode = number
    states = [environment.reset().observation['vector']]
    rng = np.random.default_rng(7)
    for _ in range(30):
      states.append(environment.step(rng.uniform(-1.0, 1.0, 2)).observation['vector'])
    return np.stack(states)

  def test_episode_depends_on_seed_and_number_only(self):
    fresh, used = _make(seed=3), _make(seed=3)
    for _ in range(250):  # Two episodes and a half.
      used.step(np.ones(2))
    np.testing.assert_array_equal(self._episode(fresh, 5), self._episode(used, 5))
    self.assertEqual(used.next_episode, 6)
    self.assertFalse(np.array_equal(self._episode(fresh, 5), self._episode(fresh, 6)))
    self.assertFalse(np.array_equal(self._episode(fresh, 5), self._episode(_make(seed=4), 5)))


class ObservationTest(parameterized.TestCase):
  def test_positions_are_all_different_and_span_the_box(self):
    environment = _make(layout=('S.G', '...', '..1'), slip=1.0, observations=('vector',), episode_length=10_000)
    environment.reset()
    seen = {}
    for _ in range(2000):
      position = environment.step(np.zeros(2)).observation['vector']
      self.assertEqual(seen.setdefault(environment.state, tuple(position)), tuple(position))
    # The goal is left at once.
    self.assertEqual(set(seen.values()), {(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)} - {(1, 1)})

  def test_image_shows_the_room(self):
    environment = _make(layout=('S.G', '1#2'), observations=('image',), image_size=6, slip=0.0)
    floor, wall, goal, agent = (235, 235, 235), (60, 60, 60), (0, 190, 60), (230, 40, 40)
    hazard_1, hazard_2 = (60, 60, 255), (150, 60, 255)
    image = environment.reset().observation['image']
    # Cells are two pixels wide and three high.
    expected = np.array([[agent, floor, goal], [hazard_1, wall, hazard_2]], np.uint8).repeat(3, 0).repeat(2, 1)
    np.testing.assert_array_equal(image, expected)
    image = environment.step(np.array([1.0, 0.0])).observation['image']
    expected[:3, :2], expected[:3, 2:4] = floor, agent
    np.testing.assert_array_equal(image, expected)
    np.testing.assert_array_equal(environment.render(2, 3), expected[::3, ::2])
    self.assertEqual(environment.render().shape, (256, 256, 3))

  def test_observations_belong_to_the_caller(self):
    environment = _make(observations=('vector', 'image'))
    before = environment.reset().observation
    copies = {name: value.copy() for name, value in before.items()}
    for value in before.values():
      value[...] = 0
    environment.next_episode = 0
    after = environment.reset().observation
    for name, value in copies.items():
      np.testing.assert_array_equal(after[name], value)

  @parameterized.parameters(
    (dict(observations=('vector', 'lidar')), "'vector', 'image' or both.*lidar"),
    (dict(observations=()), "'vector', 'image' or both"),
    (dict(num_constraints=3), r'GridCmdp\.num_constraints = 3 should be a whole number between 1 and 2'),
    (dict(slip=1.5), r'GridCmdp\.slip = 1\.5 should be a number between 0 and 1'),
    (dict(episode_length=0), r'GridCmdp\.episode_length = 0 should be a whole number, 1 or more'),
    (dict(image_size=6), 'too small for a room'),
    (dict(layout=('S.', 'G')), 'rows of the same length'),
    (dict(layout='SG'), 'rows of the same length'),
    (dict(layout=('SGx',)), "got 'x'"),
    (dict(layout=('S..',)), "no goal 'G'"),
    (dict(layout=('G..',)), "no start 'S'"),
    (dict(layout=('S.G#.',)), r'can not be reached from \(row, column\) = \(0, 4\)'),
  )
  def test_clear_errors(self, kwargs, message):
    with self.assertRaisesRegex(ValueError, message):
      _make(**kwargs)

  @parameterized.parameters(([np.nan, 0.0],), ([0.0],), (0.0,))
  def test_refuses_what_is_no_action(self, action):
    environment = _make()
    environment.reset()
    with self.assertRaisesRegex(ValueError, 'two finite numbers'):
      environment.step(np.array(action))

  def test_bindings(self):
    self.addCleanup(gin.clear_config)
    gin.parse_config("""
        GridCmdp.layout = ('S2', '.G')
        GridCmdp.num_constraints = 2
        GridCmdp.observations = ('image',)
    """)
    environment = gin.get_configurable('GridCmdp')(seed=0)
    self.assertEqual(environment.constraint_names, ('hazards_1', 'hazards_2'))
    self.assertEqual(list(environment.reset().observation), ['image'])
    self.assertEqual(environment.finite_cmdp().rewards.shape, (4, 9))


class ExactValueTest(parameterized.TestCase):
  def test_actions_are_mixtures_of_moves(self):
    # (0.3, -0.7): to the right with probability 0.3, down with 0.7; each of nine moves by slips of 0.2.
    environment = _make(layout=('...G', '.S..', '....'), slip=0.2, episode_length=1)
    states = []
    for _ in range(6000):
      environment.reset()
      environment.step(np.array([0.3, -0.7], np.float32))
      states.append(np.eye(12)[environment.state])
    expected = np.full((3, 3), 0.2 / 9)  # [row, column]
    expected[1, 1] += 0.8 * 0.7 * 0.3
    expected[1, 2] += 0.8 * 0.3 * 0.3
    expected[2, 1] += 0.8 * 0.7 * 0.7
    expected[2, 2] += 0.8 * 0.3 * 0.7
    frequencies = np.mean(states, axis=0).reshape(3, 4)[:, :3]
    errors = np.sqrt(expected * (1.0 - expected) / len(states))
    self.assertLess(np.max(np.abs(frequencies - expected) / errors), 4.0)
    # The same from the finite problem.
    kernel = grid.move_probabilities(np.array([0.3, -0.7])) @ environment.finite_cmdp().transitions[5]
    np.testing.assert_allclose(kernel.reshape(3, 4)[:, :3], expected)

  def test_each_move_is_an_action(self):
    np.testing.assert_array_equal(grid.move_probabilities(grid_cmdp.MOVES), np.eye(9))

  @parameterized.parameters(
    dict(num_constraints=1), dict(num_constraints=2), dict(num_constraints=2, hazards_terminate=True)
  )
  def test_random_actions_earn_the_exact_value(self, **kwargs):
    environment = _make(layout=SMALL, episode_length=12, slip=0.3, shaping=0.7, **kwargs)
    rng = np.random.default_rng(1)
    sums = _play(environment, lambda t, state: rng.uniform(-1.0, 1.0, 2), num_episodes=3000)
    value, cost_values = grid.random_value(environment)
    _assert_mean(sums, np.append(value, cost_values))

  @parameterized.parameters(
    dict(num_constraints=1), dict(num_constraints=2), dict(num_constraints=2, hazards_terminate=True)
  )
  def test_optimal_policy_earns_the_optimum(self, **kwargs):
    environment = _make(layout=SMALL, episode_length=12, slip=0.3, shaping=0.7, **kwargs)
    total, num_constraints = occupancy.solve(environment.finite_cmdp()).cost_values.sum(), kwargs['num_constraints']
    solution = occupancy.solve(environment.finite_cmdp(), np.full(num_constraints, 0.5 * total / num_constraints))
    cumulative, rng = np.cumsum(solution.policy, axis=-1), np.random.default_rng(1)

    def act(t, state):
      return grid_cmdp.MOVES[min(np.searchsorted(cumulative[t, state], rng.random()), 8)]

    _assert_mean(_play(environment, act, num_episodes=3000), np.append(solution.value, solution.cost_values))


class DefaultRoomTest(parameterized.TestCase):
  @parameterized.parameters(1, 2)
  def test_the_default_limits_bind(self, num_constraints):
    environment = _make(num_constraints=num_constraints)
    limits = np.array(_LIMITS[num_constraints])
    optimum = occupancy.solve(environment.finite_cmdp(), limits)
    unconstrained = occupancy.solve(environment.finite_cmdp())
    np.testing.assert_allclose(optimum.cost_values, limits, atol=1e-5)
    self.assertGreater(optimum.multipliers.min(), 0.1)
    self.assertGreater(unconstrained.cost_values.sum(), 3.0 * limits.sum())
    self.assertLess(grid.random_value(environment).value, 0.1 * optimum.value)
    self.assertLess(optimum.value, 0.9 * unconstrained.value)
    # A policy that keeps clear of the pond altogether is clearly worse.
    self.assertLess(occupancy.solve(environment.finite_cmdp(), 0.1 * limits).value, 0.9 * optimum.value)

  def test_numbers_of_the_documentation(self):
    one, two = _make(), _make(num_constraints=2)
    random, unconstrained = grid.random_value(one), occupancy.solve(one.finite_cmdp())
    np.testing.assert_allclose([random.value, *random.cost_values], [0.93, 21.9], atol=0.05)
    np.testing.assert_allclose([unconstrained.value, *unconstrained.cost_values], [25.86, 53.3], atol=0.05)
    self.assertAlmostEqual(occupancy.solve(one.finite_cmdp(), [5.0]).value, 22.83, delta=0.005)
    self.assertAlmostEqual(occupancy.solve(two.finite_cmdp(), [2.5, 2.5]).value, 22.80, delta=0.005)

  @parameterized.parameters(1, 2)
  def test_policies_without_a_clock_and_without_randomness_come_within_two_percent(self, num_constraints):
    # So an agent that sees neither time nor is evaluated on samples of its policy can still be held to the optimum.
    environment = _make(num_constraints=num_constraints)
    cmdp, limits = environment.finite_cmdp(), _LIMITS[num_constraints]
    optimum = occupancy.solve(environment.finite_cmdp(), limits).value
    stationary = occupancy.solve_stationary(cmdp, limits)
    self.assertLess(stationary.value, optimum)
    self.assertGreater(stationary.value, 0.98 * optimum)
    mean_actions = stationary.policy @ grid_cmdp.MOVES
    value, cost_values = occupancy.evaluate(cmdp, grid.move_probabilities(mean_actions))
    self.assertGreater(value, 0.98 * optimum)
    self.assertTrue(np.all(cost_values < np.add(limits, 1e-5)))


if __name__ == '__main__':
  absltest.main()
