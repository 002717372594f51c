"""Mixed precision: the products of layers in bfloat16, everything else in float32.

Each layer casts its parameters and inputs to bfloat16 and its output back to float32. Parameters, recurrent states,
distributions, losses and values stay float32.
"""

from collections.abc import Callable
import contextlib
import copy
import functools
from typing import ParamSpec, TypeVar

import haiku as hk
import jax.numpy as jnp
import jmp

from lambda_kit import core
from lambda_kit.agents.lambda_ import networks as networks_lib
from lambda_kit.models import convolutions
from lambda_kit.policies import networks as policy_networks

P = ParamSpec('P')
T = TypeVar('T')

# Haiku looks policies up by exact class: all other layers, including subclasses of these, compute in float32.
LAYERS = (hk.Linear, hk.Conv2D, hk.Conv2DTranspose, convolutions.Conv, convolutions.ConvTranspose)


def get_policy(precision: str) -> jmp.Policy:
  """Parses `LambdaAgent.precision`, and refuses what the agent can't be trained with."""
  try:
    policy = jmp.get_policy(precision)
  except (TypeError, ValueError) as error:
    raise _unsupported(precision, '`jmp.get_policy` can not read it') from error
  if policy.param_dtype != jnp.float32 or policy.output_dtype != jnp.float32:
    raise _unsupported(
      precision,
      'parameters and outputs of layers have to be float32; the output defaults to the precision of computation',
    )
  if policy.compute_dtype not in (jnp.float32, jnp.bfloat16):
    raise _unsupported(
      precision,
      'layers compute in float32 or bfloat16. The range of float16 is too small for gradients of unscaled losses',
    )
  return policy


def apply_policy(networks: networks_lib.LambdaNetworks, policy: jmp.Policy) -> networks_lib.LambdaNetworks:
  """The same networks with their layers under `policy`. In float32, returns the networks themselves."""
  if policy.compute_dtype == jnp.float32:
    return networks
  return networks._replace(
    world_model=model_under_policy(networks.world_model, policy),
    policy=_network_under_policy(networks.policy, policy),
    critic=_network_under_policy(networks.critic, policy),
    cost_critics=_network_under_policy(networks.cost_critics, policy),
    single_cost_critic=under_policy(networks.single_cost_critic, policy),
  )


def model_under_policy(world_model: core.WorldModel, policy: jmp.Policy) -> core.WorldModel:
  """A copy of the model whose methods run under `policy`."""
  copied = copy.copy(world_model)
  for name in {*core.WorldModel.__abstractmethods__, 'member_loss'}:
    setattr(copied, name, under_policy(getattr(world_model, name), policy))
  return copied


def _network_under_policy(
  network: policy_networks.FeedForwardNetwork, policy: jmp.Policy
) -> policy_networks.FeedForwardNetwork:
  return policy_networks.FeedForwardNetwork(*(under_policy(function, policy) for function in network))


def under_policy(function: Callable[P, T], policy: jmp.Policy) -> Callable[P, T]:
  """The same function with all layers that it calls under `policy`."""

  @functools.wraps(function)
  def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
    # Haiku keeps policies globally, by class. They are removed after each call, so that they reach no other agent.
    with contextlib.ExitStack() as stack:
      for layer in LAYERS:
        stack.enter_context(hk.mixed_precision.push_policy(layer, policy))
      return function(*args, **kwargs)

  return wrapper


def _unsupported(precision: str, reason: str) -> ValueError:
  return ValueError(
    f'LambdaAgent.precision = {precision!r} is not supported: {reason}. Bind it to "float32" or '
    '"params=float32,compute=bfloat16,output=float32".'
  )
