"""Generalised advantage estimation (Schulman et al., 2016) over rollouts that hold several episodes."""

import chex
import jax.numpy as jnp

from lambda_kit import types
from lambda_kit.policies.quick_rlax import rlax


def advantages(
  rewards: types.Array,
  discounts: types.Array,
  is_last: types.Array,
  values: types.Array,
  next_values: types.Array,
  lambda_: float,
) -> types.Array:
  """Advantages of T consecutive steps of one environment, [T]. For a cost, `rewards` are that cost.

    delta_t = r_t + g_t v(o'_t) - v(o_t),    A_t = delta_t + (1 - last_t) g_t lambda A_{t+1}

  where o'_t is what was really observed after step t: at a time limit the last observation of the episode, not the
  first of the next one. So time limits bootstrap, true ends (g_t = 0) don't, and nothing leaks from one episode into
  the one before. Where the rollout itself ends, A_{T} = 0.

  Args:
    rewards: r_t, [T].
    discounts: g_t, the discount, times 0 where the episode has truly ended, [T].
    is_last: Whether step t is the last of its episode, or of what is known of it, [T].
    values: v(o_t), [T].
    next_values: v(o'_t), [T]. Only those of last steps, and of the last one of all, are used.
    lambda_: 0 for one-step advantages, 1 for Monte Carlo.
  """
  chex.assert_rank([rewards, discounts, is_last, values, next_values], 1)
  chex.assert_equal_shape([rewards, discounts, is_last, values, next_values])
  # What follows an episode is folded into its last reward; a discount of 0 then cuts the recursion.
  bootstrap = jnp.where(is_last, discounts * next_values, 0.0)
  discounts = jnp.where(is_last, 0.0, discounts)
  return rlax.truncated_generalized_advantage_estimation(
    rewards + bootstrap, discounts, jnp.asarray(lambda_, rewards.dtype), jnp.append(values, next_values[-1])
  )
