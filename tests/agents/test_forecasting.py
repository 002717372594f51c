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
    jnp.array([[1.0], [1.0]]),
    jax.random.PRNGKey(0),
    observation,
    action,
  )
  # s' = (theta + k) s, and each s' costs 2 s'. From 3: 2 (6 + 12) = 36 and 2 (9 + 27) = 72. From -1: -12 and -24.
  np.testing.assert_allclose(result.steps, [[[15.0], [39.0]], [[-5.0], [-13.0]]])
  np.testing.assert_allclose(result.bound, [[72.0], [-12.0]])
  # Given the action 50, and 0 behind it: s' = theta s + a. From 3: 53 and 53, 56 and 112. From -1: -1 and -1, -2 and
  # -4.
  np.testing.assert_allclose(result.given_actions, [[[2 * 54.5], [2 * 82.5]], [[-3.0], [-5.0]]])


def test_lambda_forecasts_with_its_own_samples():
  parts = tiny.Parts()
  parts.learner.step(6)  # The posterior has some spread then.
  forecast, horizon = parts.builder.make_cost_forecaster(parts.learner, seed=3)
  observation = {'vector': np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)}
  result = forecast(observation, np.zeros((4, 2), np.float32))
  assert horizon == 3 and result.steps.shape == (5, 3, 1) and result.bound.shape == (5, 1)
  assert np.all((result.steps > 0) & (result.steps < 1))  # Each step costs 1 at most.
  assert np.all((result.bound > result.steps.sum(axis=1)) & (result.bound < 3))
  again, _ = parts.builder.make_cost_forecaster(parts.learner, seed=3)
  np.testing.assert_array_equal(again(observation, np.zeros((4, 2), np.float32)).bound, result.bound)


def test_planners_have_no_such_bounds():
  builder = tiny.make_agent(planner_factory=mpc.CemPlanner).build(specs.of(tiny.make_environment()))
  with pytest.raises(ValueError, match='acts by a planner'):
    builder.make_cost_forecaster(None, seed=0)


def test_agents_without_models_forecast_nothing():
  assert random_agent.RandomAgent().build(specs.make()).make_cost_forecaster(random_agent.RandomLearner(), 0) is None
