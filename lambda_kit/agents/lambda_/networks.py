"""The networks of LAMBDA, made for an environment's shapes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lambda_kit import core
from lambda_kit import types
from lambda_kit.policies import critic
from lambda_kit.policies import networks
from lambda_kit.policies import squashed_gaussian


class LambdaNetworks(NamedTuple):
  """World model, policy and critics as pairs of pure functions."""

  spec: core.EnvironmentSpec
  world_model: core.WorldModel
  feature_size: int  # F
  policy: networks.FeedForwardNetwork  # To a distribution over actions [..., A].
  critic: networks.FeedForwardNetwork  # To values [...].
  cost_critics: networks.FeedForwardNetwork  # C critics, with parameters [C, ...], to values [..., C].
  single_cost_critic: Callable[[core.Params, types.Array], types.Array]  # One of them, to values [...].


def make_networks(
  spec: core.EnvironmentSpec,
  world_model_factory: core.WorldModelFactory,
  policy_factory: Callable[..., Any],
  critic_factory: Callable[..., Any],
  cost_critic_factory: Callable[..., Any],
) -> LambdaNetworks:
  """Makes networks that fit an environment."""
  world_model = world_model_factory(
    observation_spec=spec.observations,
    action_spec=spec.actions,
    num_constraints=spec.num_constraints,
    action_repeat=spec.action_repeat,
  )
  features = jax.eval_shape(lambda: world_model.features(world_model.initial_state(1)))
  return LambdaNetworks(
    spec,
    world_model,
    features.shape[-1],
    policy=squashed_gaussian.make_policy(spec.num_actions, policy_factory),
    critic=critic.make_critic(critic_factory),
    cost_critics=critic.make_stacked_critics(cost_critic_factory, spec.num_constraints),
    single_cost_critic=critic.make_critic(cost_critic_factory).apply,
  )


def example_batch(spec: core.EnvironmentSpec) -> types.Trajectory:
  """A batch of zeros with the shapes of the environment's data: B = 1, L = 2."""
  zeros = lambda field: jnp.zeros((1, 2, *field.shape), field.dtype)
  return types.Trajectory(
    observation={name: zeros(field) for name, field in spec.observations.items()},
    action=zeros(spec.actions),
    reward=jnp.zeros((1, 2)),
    cost=jnp.zeros((1, 2, spec.num_constraints)),
    terminal=jnp.zeros((1, 2)),
  )
