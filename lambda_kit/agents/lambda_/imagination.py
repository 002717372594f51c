"""Trajectories that a posterior sample of the world model imagines under the policy (algorithms 1 and 3)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lambda_kit import core
from lambda_kit import types

# Makes actions [..., A] of features [..., F] and noise [..., A]; tells the entropy [...] of what they are drawn from.
SampleAction = Callable[[types.Array, types.Array], tuple[types.Array, types.Array]]


class Noise(NamedTuple):
  """Standard normal numbers for each step from each start state.

  Of each model, with a first axis of N, or the same for all models, with a first axis of 1; of one model without it.
  """

  action: types.Array  # [N or 1, H, S, A]
  state: types.Array  # [N or 1, H, S, world_model.noise_size]

  def of_model(self, index: int | types.Array) -> 'Noise':
    """That of one model, [H, S, ...]."""
    return jax.tree.map(lambda x: x[index if x.shape[0] > 1 else 0], self)


class Imagined(NamedTuple):
  """Trajectories s_0, ..., s_H from S start states; s_0 is the start state itself."""

  features: types.Array  # [H + 1, S, F]
  actions: types.Array  # [H, S, A]
  entropy: types.Array  # [H, S], of the policy in s_0, ..., s_{H-1}.


def draw_noise(
  key: core.Key, num_draws: int, horizon: int, num_starts: int, num_actions: int, state_noise_size: int
) -> Noise:
  """Draws the noise of all trajectories.

  Args:
    key: Source of the noise.
    num_draws: N for trajectories that are independent of each other, as in the paper (algorithm 1). A bound over N then
      also selects on the noise of single trajectories. 1 for models that share their noise, and differ by their
      weights alone.
    horizon: H.
    num_starts: S.
    num_actions: A.
    state_noise_size: Numbers that one step of the model takes.
  """
  if horizon < 1:
    raise ValueError(f'The imagination horizon must be at least 1, got {horizon}.')
  draw = lambda key, size: jax.random.normal(key, (num_draws, horizon, num_starts, size))
  action_key, state_key = jax.random.split(key)
  return Noise(draw(action_key, num_actions), draw(state_key, state_noise_size))


def policy_sampler(policy: Callable[[core.Params, types.Array], Any], policy_params: core.Params) -> SampleAction:
  """A policy, which maps parameters and features to a distribution, as imagination wants it."""

  def sample(features, noise):
    distribution = policy(policy_params, features)
    return distribution.from_noise(noise), distribution.gaussian_entropy()

  return sample


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
    noise: Of this model, [H, S, ...].
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
