"""Adam as the paper uses it (appendix, "General"): it clips gradients, and skips non-finite ones."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit import types

# `optax.apply_if_finite` lets a bad gradient through after so many in a row. Its counter saturates at this: never.
_NEVER = np.iinfo(np.int32).max


class TrainingDiverged(errors.UserError):
  """Gradients stayed non-finite. The message has the diagnosis."""


@ranges.checked
def make_adam(
  learning_rate: ranges.Positive | optax.Schedule,
  clip_norm: ranges.PositiveOrInfinite,
  eps: ranges.Positive = 1e-5,
  clip: Callable[[float], optax.GradientTransformation] = optax.clip_by_global_norm,
) -> optax.GradientTransformation:
  """Adam on gradients clipped to a global norm of `clip_norm`. A gradient with a NaN or an infinity is skipped.

  Skipped gradients are counted (see `skipped_updates`), and move neither the moments nor the count that a schedule is
  called with. That count is 0 in the first update: the rate of update u = 1, 2, ... is `learning_rate(u - 1)`. Another
  `clip` may measure norms otherwise.
  """
  clipped = optax.chain(clip(clip_norm), optax.adam(learning_rate, eps=eps))
  return optax.apply_if_finite(clipped, _NEVER)


def skipped_updates(opt_state: Any) -> types.Array:
  """Updates skipped so far, [] int32: the sum over all guarded optimisers in a pytree of states."""
  return sum(guard.total_notfinite for guard in _guards(opt_state))


def consecutive_skips(opt_state: Any) -> types.Array:
  """Updates skipped in a row until now, [] int32: the maximum over a pytree of states."""
  counts = [guard.notfinite_count for guard in _guards(opt_state)]
  return jnp.max(jnp.stack(counts))


def _guards(opt_state: Any) -> list[optax.ApplyIfFiniteState]:
  is_guard = lambda node: isinstance(node, optax.ApplyIfFiniteState)
  guards = [node for node in jax.tree.leaves(opt_state, is_leaf=is_guard) if is_guard(node)]
  if not guards:
    raise ValueError('No optimiser in this state counts skipped updates: make it with `make_adam`.')
  return guards
