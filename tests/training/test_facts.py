"""Each fact about an environment is bound once, in whichever documented way, and everything agrees on it."""

import math
import pathlib

import gymnasium
import numpy as np
import pytest

import gin
from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit import errors
from lambda_kit.config import configuration
from lambda_kit.environments import gymnasium_task
from lambda_kit.environments import spec as spec_lib
from lambda_kit.environments.safety_gym import environment
from lambda_kit.planners import mpc
from lambda_kit.safety import budgets
from lambda_kit.training import experiment as experiment_lib
from tests.fakes import environments as fakes
from tests.fakes import specs

_ROOT = str(pathlib.Path(__file__).resolve().parents[2])
_DISCOUNT = 0.95  # Of costs in gin/sizes/grid.gin.
_GRID = ('gin/tasks/grid.gin',)
_SMALL = ('WIDTH = 4', 'LambdaAgent.num_start_states = 2', 'experiment.evaluation_episodes = 1')


class Walk(gymnasium.Env):
  """Two numbers, a cost of 1 for each step, and no end of its own."""

  observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
  action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    return np.zeros(2, np.float32), {}

  def step(self, action):
    return np.asarray(action, np.float32), 0.0, False, False, {'cost': 1.0}


@gin.register(module='test_facts')
def make_gymnasium_walk(task, render_mode, max_episode_steps=None):
  del task, render_mode
  walk = Walk()
  walk.spec = gymnasium.envs.registration.EnvSpec('Walk-v0', max_episode_steps=max_episode_steps)
  return walk


_WALK = (
  'make_environment.simulator = @GymnasiumTask',
  'GymnasiumTask.task = "Walk-v0"',
  'GymnasiumTask.make = @test_facts.make_gymnasium_walk',
  'RecurrentWorldModel.observation_scale = 1.0',
)


def _budget(limit, repeat, length):
  """d (1 - g^T') / ((1 - g) T') with T' = length / repeat."""
  steps = length / repeat
  return limit * (1 - _DISCOUNT**steps) / ((1 - _DISCOUNT) * steps)


def _built(bindings, files=_GRID):
  """The spec of an experiment, and the budgets of its learner."""
  configuration.parse(files, [*_SMALL, *bindings], [_ROOT])
  seen = []

  def watched(spec, discount):
    seen.append(budgets.EpisodicBudget(until_time_limit=True)(spec, discount))
    assert discount == _DISCOUNT
    return seen[-1]

  try:
    gin.bind_parameter('LambdaAgent.budget', watched)
    with experiment_lib.build() as experiment:
      assert experiment.replay.header.action_repeat == experiment.spec.action_repeat
      assert len(seen) == 1
      return experiment.spec, seen[0]
  finally:
    gin.clear_config()


@pytest.mark.parametrize(
  'bindings, limit, repeat, length',
  [
    ((), 5.0, 1, 100),
    (('ACTION_REPEAT = 4',), 5.0, 4, 100),
    (('make_environment.action_repeat = 4',), 5.0, 4, 100),
    (('COST_LIMIT = 7.0',), 7.0, 1, 100),
    (('experiment.cost_limit = 7.0',), 7.0, 1, 100),
    (('GridCmdp.episode_length = 40',), 5.0, 1, 40),
    (('make_environment.action_repeat = 2', 'experiment.cost_limit = 3', 'GridCmdp.episode_length = 60'), 3.0, 2, 60),
    ((*_WALK, 'GymnasiumTask.episode_length = 20'), 5.0, 1, 20),
    ((*_WALK, 'test_facts.make_gymnasium_walk.max_episode_steps = 30', 'ACTION_REPEAT = 3'), 5.0, 3, 30),
    # The shorter one: the environment ends there.
    (
      (*_WALK, 'test_facts.make_gymnasium_walk.max_episode_steps = 30', 'GymnasiumTask.episode_length = 50'),
      5.0,
      1,
      30,
    ),
  ],
  ids=str,
)
def test_every_way_to_bind_a_fact_reaches_the_budget(bindings, limit, repeat, length):
  spec, budget = _built(bindings)
  assert (spec.cost_limits, spec.action_repeat, spec.episode_length) == ((limit,), repeat, length)
  np.testing.assert_allclose(budget, [_budget(limit, repeat, length)], rtol=1e-12)
  # And that of plans: an agent step may cost d repeat / length.
  np.testing.assert_allclose(mpc.episodic_step_budget(spec, 1.0, 8), [limit * repeat / length], rtol=1e-6)


def test_isolated_environments_pass_facts_on():
  spec, budget = _built(
    ('make_environment.action_repeat = 4', 'GridCmdp.episode_length = 40'), [*_GRID, 'gin/run/isolated.gin']
  )
  assert (spec.action_repeat, spec.episode_length) == (4, 40)
  np.testing.assert_allclose(budget, [_budget(5.0, 4, 40)], rtol=1e-12)


def test_safety_gymnasium_tells_the_length_of_its_task():
  make = lambda **options: environment.SafetyGymnasium(0, 'SafetyPointGoal1-v0', ('vector',), **options)
  assert make().episode_length == 1000 and make(episode_length=200).episode_length == 200


def test_an_episode_ends_at_the_length_that_is_bound():
  task = gymnasium_task.GymnasiumTask(0, 'Walk-v0', make_gymnasium_walk, episode_length=5)
  for _ in range(2):
    task.reset()
    timesteps = [task.step(np.zeros(2)) for _ in range(5)]
    assert [timestep.last() for timestep in timesteps] == [False] * 4 + [True] and timesteps[-1].discount == 1.0


def test_an_unknown_length_is_said_where_a_budget_needs_it():
  with pytest.raises(
    errors.SetupError, match='EpisodicBudget needs the length of episodes, and Walk-v0 registers none'
  ):
    _built(_WALK)


@pytest.mark.parametrize(
  'limit, message',
  [
    (-1.0, 'must not be negative'),
    (math.inf, 'must be finite'),
    (math.nan, 'must be finite'),
    (True, 'True is not a number'),
    ('25', "'25' is not a number"),
    ((1.0, 2.0, 3.0), '3 limits for the 2 constraints'),
    ((1.0, -2.0), 'must not be negative'),
    ((), '0 limits'),
  ],
)
def test_limits_that_make_no_sense_are_refused_in_a_sentence(limit, message):
  with pytest.raises(errors.SetupError, match=rf'experiment\.cost_limit = .*{message}') as error:
    spec_lib.make_spec(fakes.Counter(), limit)  # It has two costs.
  assert '\n' not in str(error.value)


def test_one_limit_is_for_all_constraints():
  assert specs.of(fakes.Counter(), 3).cost_limits == (3.0, 3.0)
  assert specs.of(fakes.Counter(), (3, 4)).cost_limits == (3.0, 4.0)
