"""The data of policy optimisers, and surrogates of return and costs near the policy that collected it.

M = T k is the number of steps of an epoch.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import chex
import jax
import jax.numpy as jnp

from lambda_kit import core
from lambda_kit import types
from lambda_kit.agents.on_policy import gaussian

Apply = Callable[[core.Params, types.Observation], gaussian.DiagonalGaussian]


class Batch(NamedTuple):
  """Steps of the policy to be improved."""

  observation: types.Observation  # [M, ...]
  action: types.Array  # [M, A]
  advantage: types.Array  # [M], of rewards: mean 0, standard deviation 1.
  cost_advantage: types.Array  # [M, C], mean 0, in units of cost.
  weight: types.Array  # [M], 0 for steps that don't count.
  policy: gaussian.DiagonalGaussian  # [M, A], which the actions were drawn from.
  log_prob: types.Array  # [M], of the actions.


class EpisodeCosts(NamedTuple):
  """Measured, undiscounted costs of the policy's episodes."""

  cost_return: types.Array  # [C], mean.
  limit: types.Array  # [C]
  length: types.Array  # [], agent steps, mean.


def weighted_mean(values: types.Array, weights: types.Array) -> types.Array:
  """The mean [] of values [M] with weights [M]."""
  chex.assert_equal_shape([values, weights])
  return jnp.sum(values * weights) / jnp.maximum(jnp.sum(weights), 1.0)


def mean_kl(weights: types.Array, new: gaussian.DiagonalGaussian, old: gaussian.DiagonalGaussian) -> types.Array:
  """D_KL(new || old) [], averaged over steps with `weights` [M]."""
  return weighted_mean(new.kl_divergence(old), weights)


def ratios(policy: gaussian.DiagonalGaussian, batch: Batch) -> types.Array:
  """pi(a | o) / pi_old(a | o), [M]."""
  return jnp.exp(policy.log_prob(batch.action) - batch.log_prob)


def surrogate(ratio: types.Array, batch: Batch) -> types.Array:
  """E[ratio A], []: the improvement of the return per step to first order, in units of `batch.advantage`."""
  return weighted_mean(ratio * batch.advantage, batch.weight)


def clipped_surrogate(ratio: types.Array, batch: Batch, clip: float) -> types.Array:
  """E[min(ratio A, clip(ratio, 1 - e, 1 + e) A)], [] (Schulman et al., 2017, eq. 7)."""
  clipped = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
  return weighted_mean(jnp.minimum(ratio * batch.advantage, clipped * batch.advantage), batch.weight)


def cost_surrogates(ratio: types.Array, batch: Batch) -> types.Array:
  """E[ratio A_i], [C]: the rise of each cost per step to first order."""
  return jax.vmap(lambda advantage: weighted_mean(ratio * advantage, batch.weight), in_axes=1)(batch.cost_advantage)


def penalised(objective: types.Array, costs: types.Array, multipliers: types.Array) -> types.Array:
  """(J - sum_i lambda_i J_i) / (1 + sum_i lambda_i), []: the Lagrangian, scaled so that steps keep their size."""
  chex.assert_equal_shape([costs, multipliers])
  multipliers = jax.lax.stop_gradient(multipliers)
  return (objective - jnp.vdot(multipliers, costs)) / (1.0 + jnp.sum(multipliers))


def standardise(values: types.Array, weights: types.Array, scale: bool) -> types.Array:
  """Centres values [M] and, with `scale`, divides them by their standard deviation."""
  centred = values - weighted_mean(values, weights)
  if not scale:
    return centred
  return centred / (jnp.sqrt(weighted_mean(centred**2, weights)) + 1e-8)


class Weighted(Protocol):
  """A pytree of arrays [M, ...]."""

  @property
  def weight(self) -> types.Array:
    """[M]"""


Steps = TypeVar('Steps', bound=Weighted)


def subset(batch: Steps, key: core.Key, size: int | None) -> Steps:
  """`size` steps drawn with replacement; all of them if `size` is None or at least M."""
  if size is None or size >= batch.weight.shape[0]:
    return batch
  chosen = jax.random.randint(key, (size,), 0, batch.weight.shape[0])
  return jax.tree.map(lambda x: x[chosen], batch)


def thin(batch: Batch, every: int) -> Batch:
  """Every `every`-th step."""
  return jax.tree.map(lambda x: x[::every], batch)
