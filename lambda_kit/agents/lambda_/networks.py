"""The networks of LAMBDA, made for an environment's shapes."""

from typing import Any, Callable, NamedTuple

import jax
import jax.numpy as jnp

from lambda_kit import core
from lambda_kit import types
from lambda_kit.policies import squashed_gaussian
from lambda_kit.policies import critic


class LambdaNetworks(NamedTuple):
  """World model, policy and critics as pairs of pure functions."""
  observation_spec: Any
  action_spec: Any
  world_model: core.WorldModel
  feature_size: int  # F
  policy: Any  # init(key, F) -> params; apply(params, features [..., F]) -> distribution.
  critic: Any  # init(key, F) -> params; apply(params, features [..., F]) -> values [...].
  cost_critics: Any  # The same for C critics: params [C, ...], values [..., C].
  single_cost_critic: Callable[[core.Params, types.Array], types.Array]  # One of them: values [...].


def make_networks(environment: core.Environment, action_repeat: int, world_model_factory: core.WorldModelFactory,
                  policy_factory: Callable[..., Any], critic_factory: Callable[..., Any],
                  cost_critic_factory: Callable[..., Any]) -> LambdaNetworks:
  """Makes networks that fit `environment`."""
  num_constraints = len(environment.constraint_names)
  observation_spec, action_spec = environment.observation_spec(), environment.action_spec()
  world_model = world_model_factory(observation_spec=observation_spec, action_spec=action_spec,
                                    num_constraints=num_constraints, action_repeat=action_repeat)
  features = jax.eval_shape(lambda: world_model.features(world_model.initial_state(1)))
  return LambdaNetworks(
      observation_spec, action_spec, world_model, features.shape[-1],
      policy=squashed_gaussian.make_policy(action_spec.shape[0], policy_factory),
      critic=critic.make_critic(critic_factory),
      cost_critics=critic.make_stacked_critics(cost_critic_factory, num_constraints),
      single_cost_critic=critic.make_critic(cost_critic_factory).apply)


def example_batch(environment: core.Environment) -> types.Trajectory:
  """A batch of zeros with the shapes of the environment's data, B = 1, L = 2."""
  zeros = lambda spec: jnp.zeros((1, 2, *spec.shape), spec.dtype)
  return types.Trajectory(
      observation={name: zeros(spec) for name, spec in environment.observation_spec().items()},
      action=zeros(environment.action_spec()), reward=jnp.zeros((1, 2)),
      cost=jnp.zeros((1, 2, len(environment.constraint_names))), terminal=jnp.zeros((1, 2)))
