"""Forecasts of costs: with models whose answers can be written down, and with LAMBDA's own at tiny size."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.agents import random_agent
from lambda_kit.agents.lambda_ import forecasting
from lambda_kit.models import normalizer
from lambda_kit.planners import mpc
from lambda_kit.safety import bounds
from tests.fakes import linear
from tests.fakes import specs
from tests.fakes import tiny


def test_each_sample_expects_what_its_model_says():
  networks = types.SimpleNamespace(
    world_model=linear.LinearModel(), policy=types.SimpleNamespace(apply=linear.linear_policy)
  )
  filtering = {'model': {'theta': jnp.zeros(())}, 'normalizer': normalizer.State(jnp.zeros((), jnp.int32), {}, {})}
  observation, action = {'vector': jnp.array([[3.0], [-1.0]])}, jnp.array([[50.0]])
  result = forecasting.forecast(
    networks,
    bounds.UpperBound(),
    2,
    filtering,
    {'k': 1.0},
    {'theta': jnp.array([1.0, 2.0])},
    jnp.array([[1.0], [0.5]]),
    jax.random.PRNGKey(0),
    observation,
    action,
  )
  # s' = (theta + k) s, and each s' costs 2 s'. From 3: 12 and 24, 18 and 54. From -1: -4 and -8, -6 and -18.
  np.testing.assert_allclose(result.raw_steps, [[[15.0], [39.0]], [[-5.0], [-13.0]]])
  # Half of what the second step costs: 12 and 12, 18 and 27; -4 and -4, -6 and -9.
  np.testing.assert_allclose(result.steps, [[[15.0], [19.5]], [[-5.0], [-6.5]]])
  np.testing.assert_allclose(result.bound, [[[18.0], [27.0]], [[-4.0], [-4.0]]])
  # Half of 45 - 24, and of 15 - 8.
  np.testing.assert_allclose(result.disagreement, [[10.5], [3.5]])
  # This model draws nothing but what it expects.
  draws = np.repeat([[[24.0, 45.0]], [[-8.0, -15.0]]], forecasting.NUM_ROLLOUTS, axis=2)
  np.testing.assert_allclose(result.draws[..., 0], draws[:, 0])


def test_lambda_forecasts_with_its_own_samples():
  parts = tiny.Parts()
  observation = {'vector': np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)}
  action = np.zeros((49, 2), np.float32)
  # As long as all samples are the same, they expect the same, and draw different costs.
  same = parts.builder.make_cost_forecaster(parts.learner, seed=3).forecast(observation, action)
  np.testing.assert_allclose(same.disagreement, 0.0, atol=1e-6)
  np.testing.assert_allclose(same.bound, same.steps, rtol=1e-5)
  assert not np.array_equal(same.draws[:, 0], same.draws[:, forecasting.NUM_ROLLOUTS])
  parts.learner.step(6)  # The posterior has some spread then.
  forecaster = parts.builder.make_cost_forecaster(parts.learner, seed=3)
  assert (forecaster.horizon, forecaster.num_samples, forecaster.bound_level) == (3, 3, 3 / 4)
  result = forecaster.forecast(observation, action)
  assert result.steps.shape == (50, 3, 1) == result.bound.shape and result.disagreement.shape == (50, 1)
  assert np.all((result.steps > 0) & (result.steps < 1))  # Each step costs 1 at most.
  np.testing.assert_array_equal(result.steps, result.raw_steps)  # Nothing is corrected.
  bounds_of_sums, sums = result.bound.sum(axis=1), result.steps.sum(axis=1)
  assert np.all((bounds_of_sums > sums) & (bounds_of_sums < 3)) and np.all(result.disagreement > 0)
  # Drawn costs are whole, and on average as expected.
  assert result.draws.shape == (50, 3 * forecasting.NUM_ROLLOUTS, 1) and set(np.unique(result.draws)) <= {0, 1, 2, 3}
  error = np.std(result.draws) / np.sqrt(result.draws.size)
  assert abs(result.draws.mean() - sums.mean()) < 4 * error
  again = parts.builder.make_cost_forecaster(parts.learner, seed=3)
  np.testing.assert_array_equal(again.forecast(observation, action).bound, result.bound)


def test_planners_have_no_such_bounds():
  builder = tiny.make_agent(planner_factory=mpc.CemPlanner).build(specs.of(tiny.make_environment()))
  with pytest.raises(ValueError, match='acts by a planner'):
    builder.make_cost_forecaster(None, seed=0)


def test_agents_without_models_forecast_nothing():
  assert random_agent.RandomAgent().build(specs.make()).make_cost_forecaster(random_agent.RandomLearner(), 0) is None
