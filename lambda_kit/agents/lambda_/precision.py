"""Mixed precision: the products of layers in bfloat16, all else in float32.

Each layer casts its parameters and inputs to bfloat16 and its output back. So parameters, recurrent states,
distributions, losses and values are float32 whatever the layers compute in.
"""

from collections.abc import Callable
import contextlib
import functools
from typing import Any

import haiku as hk
import jax.numpy as jnp
import jmp

from lambda_kit.agents.lambda_ import networks as networks_lib
from lambda_kit.models import convolutions

# Haiku looks policies up by exact class: other layers, subclasses of these included, compute in float32.
LAYERS = (hk.Linear, hk.Conv2D, hk.Conv2DTranspose, convolutions.Conv, convolutions.ConvTranspose)


def get_policy(precision: str) -> jmp.Policy:
  """Parses what `LambdaAgent.precision` is bound to, and refuses what the agent can't be trained with."""
  try:
    policy = jmp.get_policy(precision)
  except (TypeError, ValueError) as error:
    raise _unsupported(precision, '`jmp.get_policy` can not read it') from error
  if policy.param_dtype != jnp.float32 or policy.output_dtype != jnp.float32:
    raise _unsupported(
      precision,
      'parameters and outputs of layers have to be float32; where the output is left out, it is what is computed in',
    )
  if policy.compute_dtype not in (jnp.float32, jnp.bfloat16):
    raise _unsupported(
      precision,
      'layers compute in float32 or bfloat16. The range of float16 is too small for '
      'gradients unless losses are scaled, which they are not',
    )
  return policy


def apply_policy(networks: networks_lib.LambdaNetworks, policy: jmp.Policy) -> networks_lib.LambdaNetworks:
  """The same networks with their layers under `policy`; in float32, the networks as they are."""
  if policy.compute_dtype == jnp.float32:
    return networks
  return networks._replace(
    world_model=_UnderPolicy(networks.world_model, policy),
    policy=_UnderPolicy(networks.policy, policy),
    critic=_UnderPolicy(networks.critic, policy),
    cost_critics=_UnderPolicy(networks.cost_critics, policy),
    single_cost_critic=_under_policy(networks.single_cost_critic, policy),
  )


class _UnderPolicy:
  """Has the attributes of another object, and its methods with layers under a policy."""

  def __init__(self, wrapped: Any, policy: jmp.Policy):
    self._wrapped = wrapped
    self._policy = policy

  def __getattr__(self, name: str) -> Any:
    attribute = getattr(self._wrapped, name)
    return _under_policy(attribute, self._policy) if callable(attribute) else attribute


def _under_policy(function: Callable[..., Any], policy: jmp.Policy) -> Callable[..., Any]:

  @functools.wraps(function)
  def wrapper(*args, **kwargs):
    # Haiku keeps policies by class. They are taken back after each call, so that no other agent meets them.
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
