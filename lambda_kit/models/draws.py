"""All randomness in a model's loss on a batch, drawn up front."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lambda_kit import core
from lambda_kit import types


class Overshooting(NamedTuple):
  """Where imagination starts in each sequence, and its noise. See `models/overshooting.py`."""

  starts: types.Array  # [B, M], time steps.
  noise: types.Array  # [B, J, M, S]


class Draws(NamedTuple):
  """For sequences of L steps."""

  noise: types.Array  # [B, L, S], for inferred states.
  decoded: types.Array | None = None  # [B, K], the time steps to decode; None for all.
  overshooting: Overshooting | None = None


def draw(
  key: core.Key,
  batch_size: int,
  length: int,
  noise_size: int,
  decoded_steps: int | None,
  overshooting_steps: int,
  overshooting_starts: int,
) -> Draws:
  """Draws for sequences [B, L, ...].

  Args:
    key: determines all draws.
    batch_size: B.
    length: L.
    noise_size: S.
    decoded_steps: K, capped at L; None for all steps.
    overshooting_steps: J, capped at L - 1; 0 for no overshooting.
    overshooting_starts: M, capped at L - J.
  """
  decoded = overshooting = None
  if decoded_steps is not None:
    key, steps_key = jax.random.split(key)
    decoded = random_steps(steps_key, batch_size, length, min(decoded_steps, length))
  if overshooting_steps := min(overshooting_steps, length - 1):
    key, starts_key, noise_key = jax.random.split(key, 3)
    possible = length - overshooting_steps
    starts = random_steps(starts_key, batch_size, possible, min(overshooting_starts, possible))
    overshooting = Overshooting(
      starts, jax.random.normal(noise_key, (batch_size, overshooting_steps, starts.shape[1], noise_size))
    )
  return Draws(sequence_noise(key, batch_size, length, noise_size), decoded, overshooting)


def sequence_noise(key: core.Key, batch_size: int, length: int, size: int) -> types.Array:
  """Standard normal noise [B, L, S]. At step t it is that of `filter` with key t of `jax.random.split(key, L)`."""
  draw_step = lambda step_key: jax.random.normal(step_key, (batch_size, size))
  return jax.vmap(draw_step, out_axes=1)(jax.random.split(key, length))


def random_steps(key: core.Key, batch_size: int, length: int, count: int) -> types.Array:
  """Indices [B, count] of time steps, drawn without replacement, independently for each sequence."""
  draw_steps = lambda key: jax.random.choice(key, length, (count,), replace=False)
  return jax.vmap(draw_steps)(jax.random.split(key, batch_size))


def take(sequences: types.Nest, steps: types.Array) -> types.Nest:
  """The elements of sequences [B, L, ...] at time steps [B, ...], which differ from sequence to sequence."""
  return jax.tree.map(lambda x: jax.vmap(lambda sequence, chosen: sequence[chosen])(x, steps), sequences)


def following(starts: types.Array, num_steps: int) -> types.Array:
  """The J = `num_steps` time steps after each of `starts` [B, M], [B, J, M]."""
  return starts[:, None] + 1 + jnp.arange(num_steps)[None, :, None]
