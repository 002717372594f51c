"""Running normalisation of vector observations. Images are left as they are.

Pure functions: learners and actors keep the state, and normalise observations before they reach the world model.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from lambda_kit import types

CLIP = 10.0  # Normalised observations are in [-CLIP, CLIP].
# Numbers that vary less count as constant and are only centred: such variation is likely to be rounding.
MIN_STDDEV = 1e-4


class State(NamedTuple):
  """Exact statistics of all data so far, for each part of observations that is a vector."""

  count: types.Array  # [] int32: counting in float32 would stop at 2^24.
  mean: dict[str, types.Array]  # [D]
  m2: dict[str, types.Array]  # [D], sums of squared deviations from the mean.


def init(observation_spec: Mapping[str, Any]) -> State:
  """Statistics before any data, for the entries of rank 1."""
  zeros = {name: jnp.zeros(spec.shape) for name, spec in sorted(observation_spec.items()) if len(spec.shape) == 1}
  return State(jnp.zeros((), jnp.int32), zeros, dict(zeros))


def update(state: State, observation: types.Observation) -> State:
  """Adds observations, vectors [..., D], to the statistics.

  With n observations in the batch, N before it, and d the difference of their means (Chan et al., 1979):
    mean' = mean + d n / (N + n),   m2' = m2 + m2_batch + d^2 N n / (N + n).
  """
  if not state.mean:
    return state
  counts, mean, m2 = set(), {}, {}
  for name in state.mean:
    values = observation[name].astype(jnp.float32)
    chex.assert_axis_dimension(values, -1, state.mean[name].shape[0])
    values = values.reshape(-1, values.shape[-1])
    if not len(values):
      return state
    counts.add(len(values))
    share = len(values) / (state.count + len(values))  # n / (N + n)
    batch_mean = values[0] + (values - values[:1]).mean(axis=0)  # Deviations: a sum of large numbers loses digits.
    difference = batch_mean - state.mean[name]
    mean[name] = state.mean[name] + difference * share
    m2[name] = state.m2[name] + jnp.sum((values - batch_mean[None]) ** 2, axis=0) + difference**2 * state.count * share
  if len(counts) != 1:
    raise ValueError(f'The vectors of an observation have different leading axes: {counts} observations.')
  return State(state.count + counts.pop(), mean, m2)


def variance(state: State) -> dict[str, types.Array]:
  """The variance of all data so far (mean of squared deviations), [D]; 0 before any."""
  return jax.tree.map(lambda m2: m2 / jnp.maximum(state.count, 1), state.m2)


def normalize(state: State, observation: types.Observation, min_scale: float = 0.0) -> dict[str, types.Array]:
  """Centres, scales and clips vectors [..., D] by the statistics. Before any data, they stay as they are.

  Args:
    state: The statistics.
    observation: Parts that aren't vectors stay as they are.
    min_scale: Lower bound of the divisor, so that numbers that vary less are not blown up.
  """
  result = dict(observation)
  for name, mean in state.mean.items():
    chex.assert_axis_dimension(observation[name], -1, mean.shape[0])
    stddev = jnp.sqrt(variance(state)[name])
    scale = jnp.maximum(jnp.where(stddev > MIN_STDDEV, stddev, 1.0), min_scale)
    shape = (1,) * (observation[name].ndim - 1) + mean.shape
    normalized = (observation[name] - mean.reshape(shape)) / scale.reshape(shape)
    result[name] = jnp.where(state.count > 0, jnp.clip(normalized, -CLIP, CLIP), observation[name])
  return result
