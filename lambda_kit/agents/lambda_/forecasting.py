"""What posterior samples expect the policy to cost, from each time step of an episode on."""

from typing import Any

import jax
import jax.numpy as jnp

from lambda_kit import core
from lambda_kit import types
from lambda_kit.agents.lambda_ import imagination
from lambda_kit.agents.lambda_ import networks as networks_lib
from lambda_kit.agents.lambda_ import objective
from lambda_kit.agents.lambda_ import prediction
from lambda_kit.safety import bounds

NUM_ROLLOUTS = 8  # Trajectories that a sample imagines from each time step: what it expects is their mean.


def make_forecaster(
  networks: networks_lib.LambdaNetworks,
  cost_bound: core.Bound,
  horizon: int,
  filtering: Any,
  policy_params: core.Params,
  samples: core.Params,
  cost_factors: types.Array,
  key: core.Key,
) -> types.CostForecaster:
  """Forecasts with these variables of a learner.

  Args:
    networks: World model and policy.
    cost_bound: Over the N samples.
    horizon: H.
    filtering: The variables 'belief', with which states are inferred.
    policy_params: Of the policy, which acts with its noise.
    samples: theta of N models, [N, ...].
    cost_factors: Of the costs that models expect at each step ahead, [H, C].
    key: All noise.
  """
  compiled = jax.jit(
    lambda observation, action: forecast(
      networks, cost_bound, horizon, filtering, policy_params, samples, cost_factors, key, observation, action
    )
  )
  return types.CostForecaster(lambda observation, action: jax.device_get(compiled(observation, action)), horizon)


def forecast(
  networks: networks_lib.LambdaNetworks,
  cost_bound: core.Bound,
  horizon: int,
  filtering: Any,
  policy_params: core.Params,
  samples: core.Params,
  cost_factors: types.Array,
  key: core.Key,
  observation: types.Observation,
  action: types.Array,
) -> types.CostForecast:
  """Forecasts the costs of the H agent steps after each of o_0, ..., o_T [T + 1, ...], given actions [T, A]."""
  world_model = networks.world_model
  state_key, rollout_key = jax.random.split(key)
  states = prediction.infer_states(world_model, filtering, state_key, observation, action)
  num_states = action.shape[0] + 1

  def sample_action(features, noise):
    distribution = networks.policy.apply(policy_params, features)
    return distribution.from_noise(noise), distribution.gaussian_entropy()

  def expected_costs(theta, features):  # [T + 1, H, C]
    predictions = world_model.predict(theta, features[1:])
    weights = jax.vmap(objective.discounted_weights, 1, 1)(predictions.continuation)  # [H, T + 1]
    return jnp.swapaxes(weights[..., None] * predictions.cost * cost_factors[:, None], 0, 1)

  padded = jnp.concatenate([action, jnp.zeros((horizon, action.shape[1]), action.dtype)])
  given_actions = jnp.stack([padded[step : step + num_states] for step in range(horizon)])  # [H, T + 1, A]

  def roll_out(key):  # Two of [N, T + 1, H, C]
    noise = imagination.draw_noise(key, 1, horizon, num_states, action.shape[1], world_model.noise_size).of_model(0)
    imagined = lambda theta: imagination.imagine(world_model, theta, sample_action, states, noise).features
    given = lambda theta: imagination.follow_actions(world_model, theta, given_actions, states, noise.state)
    return jax.lax.map(
      lambda theta: (expected_costs(theta, imagined(theta)), expected_costs(theta, given(theta))), samples
    )

  costs, given = jax.tree.map(
    lambda x: jnp.mean(x, axis=0), jax.lax.map(roll_out, jax.random.split(rollout_key, NUM_ROLLOUTS))
  )
  bound = lambda costs: bounds.apply_bound(cost_bound, costs[..., None])[0][:, 0]  # [N, T + 1] to [T + 1].
  return types.CostForecast(
    steps=jnp.mean(costs, axis=0),
    given_actions=jnp.mean(given, axis=0),
    bound=jax.vmap(bound, -1, -1)(jnp.sum(costs, axis=2)),
  )
