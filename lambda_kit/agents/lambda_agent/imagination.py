"""Trajectories that posterior samples of the world model imagine under the policy (algorithms 1 and 3)."""

from typing import Callable, NamedTuple

import jax
import jax.numpy as jnp

from lambda_kit import core
from lambda_kit import types

# Draws actions [S, A] for features [S, F], and tells the entropy [S] of what they were drawn from.
SampleAction = Callable[[types.Array, core.Key], tuple[types.Array, types.Array]]


class Imagined(NamedTuple):
  """Trajectories s_0, ..., s_H from S start states for each of N models; s_0 is the start state itself."""
  features: types.Array  # [N, H + 1, S, F]
  predictions: types.Predictions  # [N, H, S, ...], of the states s_1, ..., s_H.
  entropy: types.Array  # [N, H, S], of the policy in s_0, ..., s_{H-1}.


def imagine(world_model: core.WorldModel, samples: core.Params, sample_action: SampleAction, start: types.Nest,
            key: core.Key, horizon: int) -> Imagined:
  """Lets each posterior sample imagine a trajectory of `horizon` steps from each start state.

  The policy is conditioned on stop_gradient(s_t) (algorithm 3, line 2): gradients reach an action only through the
  states that follow it. All N models get the same noise, so that they differ by their weights alone: without this, a
  bound over N would select on the noise of single trajectories, not on what the models disagree about.

  Args:
    world_model: p(s' | s, a, theta) and its heads.
    samples: Parameters theta_1, ..., theta_N, leaves [N, ...].
    sample_action: The policy.
    start: States [S, ...].
    key: Noise of actions and states.
    horizon: H.
  """
  if horizon < 1:
    raise ValueError(f'The imagination horizon must be at least 1, got {horizon}.')

  def imagine_one(params: core.Params) -> Imagined:
    def step(state, step_key):
      action_key, state_key = jax.random.split(step_key)
      features = world_model.features(state)
      action, entropy = sample_action(jax.lax.stop_gradient(features), action_key)
      return world_model.imagine_step(params, state, action, state_key), (features, entropy)

    last, (features, entropy) = jax.lax.scan(step, start, jax.random.split(key, horizon))
    features = jnp.concatenate([features, world_model.features(last)[None]])
    # Outside the scan: one large product instead of H small ones.
    return Imagined(features, world_model.predict(params, features[1:]), entropy)

  return jax.vmap(imagine_one)(samples)
