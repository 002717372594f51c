"""Haiku networks as pairs of pure functions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import haiku as hk
import jax.numpy as jnp

from lambda_kit import core
from lambda_kit import types


class FeedForwardNetwork(NamedTuple):
  """A function of features, and the initialiser of its parameters."""

  init: Callable[[core.Key, int], core.Params]  # Key and feature size F to parameters.
  apply: Callable[[core.Params, types.Array], Any]  # Parameters and features [..., F] to the output.


def transform(module_factory: Callable[[], hk.Module]) -> FeedForwardNetwork:
  """Makes a network from a Haiku module, which is built anew in each transformed call."""

  def forward(features: types.Array) -> Any:
    return module_factory()(features)

  network = hk.without_apply_rng(hk.transform(forward))
  return FeedForwardNetwork(
    init=lambda key, feature_size: network.init(key, jnp.zeros([feature_size])), apply=network.apply
  )
