"""Comparing forecasts of costs with costs: which episodes are played, and what is written."""

import json

import numpy as np
import pytest

from lambda_kit import types
from lambda_kit.analysis import calibration
from lambda_kit.analysis import certificate
from lambda_kit.training import evaluation
from tests.fakes import loops
from tests.fakes import specs
from tests.fakes import tiny

_HORIZON, _SEED, _FACTOR = 4, 5, 1.5
_SUBJECT = calibration.Subject('Tiny', 7, 1000, ('hazards',), (25.0,))


def _forecaster():
  """Expects 0.1 of each step, 0.15 after a correction; has a bound of 1 on four steps; draws 0, 1 and 2."""

  def forecast(observation, action):
    ones = np.ones((len(action) + 1, _HORIZON, 1))
    return types.CostForecast(
      raw_steps=0.1 * ones,
      steps=_FACTOR * 0.1 * ones,
      disagreement=0.05 * ones[:, 0],
      bound=0.25 * ones,
      draws=np.arange(3.0)[None, :, None] * ones[:, :1],
    )

  return types.CostForecaster(forecast, _HORIZON, 2, 2 / 3)


def _watch(seed=_SEED, **options):
  environment = tiny.make_environment(**options)
  return evaluation.Evaluator(environment, loops.random_actor(environment, seed), specs.of(environment), 1).watch


def _calibrate(num_episodes, folder, forecaster=_forecaster(), episode_length=200):
  return calibration.write_calibration(
    forecaster,
    _SUBJECT,
    _watch(episode_length=episode_length),
    _watch(_SEED + 1, episode_length=episode_length),
    num_episodes,
    'Tiny',
    folder,
    'step_1000-calibration',
  )


def _play(numbers, seed):
  """Rewards and costs of these episodes, played step by step."""
  environment = tiny.make_environment(episode_length=200)
  actor = loops.random_actor(environment, seed)
  for number in numbers:
    environment.next_episode = number
    actor.reseed(number)
    timestep, signals = environment.reset(), []
    while not timestep.last():
      timestep = environment.step(actor.select_action(timestep.observation))
      signals.append((timestep.reward.reward, timestep.reward.cost[0]))
    yield np.array(signals).T


def test_every_window_of_new_episodes_is_compared(tmp_path):
  result = _calibrate(2, tmp_path)
  assert json.loads((tmp_path / 'step_1000-calibration.json').read_text()) == result
  assert all((tmp_path / f'step_1000-calibration.{suffix}').stat().st_size > 1000 for suffix in ('png', 'svg'))
  identity = ('task', 'seed', 'environment_steps', 'episodes', 'horizon', 'samples')
  assert [result[name] for name in identity] == ['Tiny', 7, 1000, 2, _HORIZON, 2]
  (scores,) = result['constraints'].values()
  numbers = range(calibration.FIRST_EPISODE, calibration.FIRST_EPISODE + 2)
  costs = [cost for _, cost in _play(numbers, _SEED)]
  windows = np.concatenate([np.convolve(cost, np.ones(_HORIZON), 'valid') for cost in costs])
  assert windows.max() > 1 and windows.min() == 0
  near = lambda value: pytest.approx(value, rel=1e-3)
  assert scores['observed'][0] == near(windows.mean())
  assert scores['bound']['covered'][0] == near(np.mean(windows <= 1)) and scores['bound']['promised'] == near(2 / 3)
  assert scores['raw_forecast_over_observed'][0] == near(0.4 / windows.mean())
  assert scores['forecast_over_observed'][0] == near(0.6 / windows.mean())
  assert scores['bound_over_observed'][0] == near(1.0 / windows.mean())
  assert scores['steps'][3]['observed'] == near(np.mean([cost[3:] for cost in costs]))
  assert scores['bound']['level'] == near(2 / 3)
  # With exploration noise, and as the policy is evaluated.
  assert scores['training_cost_return'][0] == near(np.mean([cost.sum() for cost in costs]))
  returns, cost_returns = np.array([signals.sum(axis=1) for signals in _play(numbers, _SEED + 1)]).T
  assert result['episode_return'][0] == near(returns.mean()) != 0.0
  assert scores['cost_return'][0] == near(cost_returns.mean()) != scores['training_cost_return'][0]
  assert scores['limit'] == 25.0


def test_the_certificate_is_written_beside_the_details(tmp_path):
  result = _calibrate(3, tmp_path)
  found = certificate.read(tmp_path)
  assert found == calibration.read_certificate(tmp_path / 'step_1000-calibration.json')
  assert (found.task, found.seed, found.environment_steps, found.episodes) == ('Tiny', 7, 1000, 3)
  (scores,), (kept,) = result['constraints'].values(), found.constraints.values()
  assert list(found.episode_return) == result['episode_return']
  assert list(kept.cost_return) == scores['cost_return'] and kept.limit == 25.0
  assert list(kept.covered_at_90) == scores['upper'][2]['covered']
  assert (kept.bound_promised, list(kept.bound_covered)) == (scores['bound']['promised'], scores['bound']['covered'])
  assert f'an episode costs {scores["cost_return"][0]:.3g} (' in found.describe()


def test_calibrations_of_other_versions_give_no_certificate(tmp_path):
  path = tmp_path / 'step_1000-calibration.json'
  assert calibration.read_certificate(path) is None
  path.write_text(json.dumps(dict(horizon=10, episodes=20, constraints=dict(hazards=dict(mean=0.3)), trained={})))
  assert calibration.read_certificate(path) is None


def test_agents_without_models_have_nothing_to_calibrate(tmp_path):
  with pytest.raises(calibration.NothingToCalibrateError, match='This agent has no models'):
    _calibrate(1, tmp_path, forecaster=None)
  with pytest.raises(calibration.NothingToCalibrateError, match='3 agent steps is shorter than the horizon, 4'):
    _calibrate(1, tmp_path, episode_length=3)
  assert not list(tmp_path.iterdir())
