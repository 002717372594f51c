"""Comparing bounds on costs with costs."""

import json

import numpy as np
import pytest

from lambda_kit import types
from lambda_kit.analysis import calibration
from lambda_kit.training import evaluation
from tests.fakes import loops
from tests.fakes import specs
from tests.fakes import tiny

_HORIZON = 4
_SEED = 5


def _forecaster():
  """Expects nothing, and has a bound of 1."""
  ones = lambda action: np.ones((len(action) + 1, 1))
  steps = lambda action: np.zeros((len(action) + 1, _HORIZON, 1))
  return types.CostForecaster(
    lambda observation, action: types.CostForecast(steps(action), 0.5 + steps(action), ones(action)), _HORIZON
  )


def _watch(**options):
  environment = tiny.make_environment(**options)
  return evaluation.Evaluator(environment, loops.random_actor(environment, _SEED), specs.of(environment), 1).watch


def _calibrate(num_episodes, num_trained, folder, forecaster=_forecaster(), episode_length=200):
  return calibration.write_calibration(
    forecaster,
    ('hazards',),
    _watch(episode_length=episode_length),
    _watch(seed=1, episode_length=episode_length),
    num_episodes,
    num_trained,
    'Tiny',
    folder,
    'calibration',
  )


def _play(numbers, **options):
  """Costs of each H steps of these episodes, played step by step."""
  environment = tiny.make_environment(episode_length=200, **options)
  actor = loops.random_actor(environment, _SEED)
  windows = []
  for number in numbers:
    environment.next_episode = number
    actor.reseed(number)
    timestep, costs = environment.reset(), []
    while not timestep.last():
      timestep = environment.step(actor.select_action(timestep.observation))
      costs.append(timestep.reward.cost[0])
    windows += [sum(costs[t : t + _HORIZON]) for t in range(len(costs) - _HORIZON + 1)]
  return np.array(windows)


def test_each_horizon_of_each_episode_is_compared(tmp_path):
  result = _calibrate(2, 7, tmp_path)
  assert json.loads((tmp_path / 'calibration.json').read_text()) == result
  assert all((tmp_path / f'calibration.{suffix}').stat().st_size > 1000 for suffix in ('png', 'svg'))
  (row,), (trained,) = result['constraints'].values(), result['trained'].values()
  assert row['moments'] == 2 * (200 - _HORIZON + 1)
  windows = _play(range(2))
  assert windows.max() > 1 and windows.min() == 0
  assert row['realised'] == pytest.approx(windows.mean()) and row['above'] == pytest.approx(np.mean(windows <= 1))
  assert row['above_mean'] == pytest.approx(np.mean(windows == 0))
  assert (row['mean'], row['given_actions'], row['steps'][0]['given_actions']) == (0.0, 2.0, 0.5)
  assert '1.00' in calibration.describe(result)
  # Of seven episodes of training the first and the last, in their own environment.
  assert trained['realised'] == pytest.approx(_play((0, 6), seed=1).mean()) != row['realised']
  assert 'In episodes of training, played again: 0.00 expected' in calibration.describe(result)


def test_agents_without_experience_have_no_episodes_to_play_again(tmp_path):
  result = _calibrate(1, 0, tmp_path)
  assert not result['trained'] and 'training' not in calibration.describe(result)
  few = _calibrate(3, 1, tmp_path)
  (row,), (trained,) = few['constraints'].values(), few['trained'].values()
  assert row['moments'] == 3 * trained['moments']


def test_hand_numbers():
  found = calibration.compare(
    np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0], [3.0, 1.0]]),
    given_steps=np.array([[1.0, 1.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]),
    bounds=np.array([2.0, 3.0, 1.0, 5.0]),
    realised_steps=np.array([[1.0, 1.0], [2.0, 2.0], [0.0, 0.0], [0.0, 1.0]]),
  )
  assert found == dict(
    moments=4,
    mean=1.75,
    given_actions=1.25,
    bound=2.75,
    realised=1.75,
    above=0.75,
    above_mean=0.5,
    above_where_costly=pytest.approx(2 / 3),
    explained=pytest.approx(-0.6),  # Errors 1, 2, 0, 3: 1 - 3.5 / (21 / 4 - 1.75^2).
    steps=[dict(expected=1.0, given_actions=0.5, realised=0.75), dict(expected=0.75, given_actions=0.75, realised=1.0)],
    bins=[
      dict(bound=1.0, realised=0.0),
      dict(bound=2.0, realised=2.0),
      dict(bound=3.0, realised=4.0),
      dict(bound=5.0, realised=1.0),
    ],
  )
  never = calibration.compare(np.ones((2, 1)), np.ones((2, 1)), np.ones(2), np.zeros((2, 1)))
  assert never['above_where_costly'] is None and never['explained'] is None


def test_agents_without_models_have_nothing_to_calibrate(tmp_path):
  with pytest.raises(calibration.NothingToCalibrateError, match='This agent has no models'):
    _calibrate(1, 1, tmp_path, forecaster=None)
  with pytest.raises(calibration.NothingToCalibrateError, match='3 agent steps is shorter than the horizon, 4'):
    _calibrate(1, 1, tmp_path, episode_length=3)
  assert not list(tmp_path.iterdir())
