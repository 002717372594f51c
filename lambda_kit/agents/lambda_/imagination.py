"""Trajectories that a posterior sample of the world model imagines under the policy (algorithms 1 and 3)."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lambda_kit import core
from lambda_kit import types

# Makes actions [..., A] of features [..., F] and noise [..., A]; tells the entropy [...] of what they are drawn from.
SampleAction = Callable[[types.Array, types.Array], tuple[types.Array, types.Array]]


class Noise(NamedTuple):
  """Standard normal numbers for each step from each start state."""

  action: types.Array  # [H, S, A]
  state: types.Array  # [H, S, world_model.noise_size]


class Imagined(NamedTuple):
  """Trajectories s_0, ..., s_H from S start states; s_0 is the start state itself."""

  features: types.Array  # [H + 1, S, F]
  actions: types.Array  # [H, S, A]
  entropy: types.Array  # [H, S], of the policy in s_0, ..., s_{H-1}.


def draw_noise(key: core.Key, horizon: int, num_starts: int, num_actions: int, state_noise_size: int) -> Noise:
  """Draws the noise for all trajectories of one model. All N models get the same.

  So they differ by their weights alone: without this, a bound over N would select on the noise of single
  trajectories, not on what the models disagree about.
  """
  if horizon < 1:
    raise ValueError(f'The imagination horizon must be at least 1, got {horizon}.')
  draw = lambda key, size: jax.random.normal(key, (horizon, num_starts, size))
  action_key, state_key = jax.random.split(key)
  return Noise(draw(action_key, num_actions), draw(state_key, state_noise_size))


def imagine(
  world_model: core.WorldModel, params: core.Params, sample_action: SampleAction, start: types.Nest, noise: Noise
) -> Imagined:
  """Lets one model imagine a trajectory from each start state.

  The policy is conditioned on stop_gradient(s_t) (algorithm 3, line 2): gradients reach an action only through the
  states that follow it.

  Args:
    world_model: p(s' | s, a, theta).
    params: theta.
    sample_action: The policy.
    start: States [S, ...].
    noise: Of actions and states.
  """

  def step(state, noise):
    features = world_model.features(state)
    action, entropy = sample_action(jax.lax.stop_gradient(features), noise.action)
    return world_model.imagine_step(params, state, action, noise.state), (features, action, entropy)

  last, (features, actions, entropy) = jax.lax.scan(step, start, noise)
  return Imagined(jnp.concatenate([features, world_model.features(last)[None]]), actions, entropy)


def follow_actions(
  world_model: core.WorldModel, params: core.Params, actions: types.Array, start: types.Nest, state_noise: types.Array
) -> types.Array:
  """Features [H + 1, S, F] of the trajectories that `imagine` finds, given their actions [H, S, A]."""

  def step(state, inputs):
    return world_model.imagine_step(params, state, *inputs), world_model.features(state)

  last, features = jax.lax.scan(step, start, (actions, state_noise))
  return jnp.concatenate([features, world_model.features(last)[None]])
