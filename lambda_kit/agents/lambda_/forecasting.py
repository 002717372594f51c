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
  num_samples = jax.tree.leaves(samples)[0].shape[0]
  return types.CostForecaster(
    lambda observation, action: jax.device_get(compiled(observation, action)),
    horizon,
    num_samples,
    bounds.level(cost_bound, num_samples),
  )


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

  sample_action = imagination.policy_sampler(networks.policy.apply, policy_params)

  def roll_out(theta, key):  # Features of s_1, ..., s_H, [H, T + 1, F].
    noise = imagination.draw_noise(key, 1, horizon, num_states, action.shape[1], world_model.noise_size).of_model(0)
    return imagination.imagine(world_model, theta, sample_action, states, noise).features[1:]

  def expect(theta, key):  # Costs of one trajectory, [T + 1, H, C].
    predictions = world_model.predict(theta, roll_out(theta, key))
    reached = jax.vmap(objective.discounted_weights, 1, 1)(predictions.continuation)
    return jnp.swapaxes(reached[..., None] * predictions.cost, 0, 1)

  def draw(theta, key):  # What another one costs, [T + 1, C].
    state_key, cost_key, end_key = jax.random.split(key, 3)
    features = roll_out(theta, state_key)
    predictions = world_model.predict(theta, features)
    factors = jnp.broadcast_to(cost_factors[:, None], predictions.cost.shape)
    costs = world_model.draw_costs(theta, features, factors, cost_key)
    goes_on = jax.random.uniform(end_key, predictions.continuation.shape) < predictions.continuation
    reached = jax.vmap(objective.discounted_weights, 1, 1)(goes_on.astype(jnp.float32))
    return jnp.sum(reached[..., None] * costs, axis=0)

  num_samples = jax.tree.leaves(samples)[0].shape[0]
  expected_key, drawn_key = jax.random.split(rollout_key)
  # Samples share their noise, so that expected costs differ by weights alone. What is drawn differs by all noise.
  expected_keys = jax.random.split(expected_key, NUM_ROLLOUTS)
  drawn_keys = jax.random.split(drawn_key, (num_samples, NUM_ROLLOUTS))

  def of_sample(inputs):  # [T + 1, H, C] and [NUM_ROLLOUTS, T + 1, C].
    theta, keys = inputs
    expected = jax.lax.map(lambda key: expect(theta, key), expected_keys)
    return jnp.mean(expected, axis=0), jax.lax.map(lambda key: draw(theta, key), keys)

  raw_costs, draws = jax.lax.map(of_sample, (samples, drawn_keys))
  costs = raw_costs * cost_factors[None, None]
  bound = lambda costs: bounds.apply_bound(cost_bound, costs)[0]  # [N, T + 1, H] to [T + 1, H].
  return types.CostForecast(
    raw_steps=jnp.mean(raw_costs, axis=0),
    steps=jnp.mean(costs, axis=0),
    disagreement=jnp.std(jnp.sum(costs, axis=2), axis=0),
    bound=jax.vmap(bound, -1, -1)(costs),
    draws=jnp.moveaxis(draws.reshape(-1, *draws.shape[2:]), 0, 1),
  )
