"""Generalised advantage estimation (Schulman et al., 2016) on rollouts with several episodes."""

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
  """Advantages of T consecutive steps of one environment, [T]. For a cost, pass that cost as `rewards`.

    delta_t = r_t + g_t v(o'_t) - v(o_t),    A_t = delta_t + (1 - last_t) g_t lambda A_{t+1}

  where o'_t is the true observation after step t: at a time limit the last one of the episode, not the first of the
  next. So time limits bootstrap, true ends (g_t = 0) don't, and nothing leaks from one episode into the one before. At
  the end of the rollout, A_T = 0.

  Args:
    rewards: r_t, [T].
    discounts: g_t, the discount, or 0 where the episode truly ended, [T].
    is_last: Whether step t is the last one recorded of its episode, [T].
    values: v(o_t), [T].
    next_values: v(o'_t), [T]. Used only at the last steps of episodes and of the rollout.
    lambda_: 0 for one-step advantages, 1 for Monte Carlo.
  """
  chex.assert_rank([rewards, discounts, is_last, values, next_values], 1)
  chex.assert_equal_shape([rewards, discounts, is_last, values, next_values])
  # The value after an episode's end is folded into its last reward. A discount of 0 then cuts the recursion.
  bootstrap = jnp.where(is_last, discounts * next_values, 0.0)
  discounts = jnp.where(is_last, 0.0, discounts)
  return rlax.truncated_generalized_advantage_estimation(
    rewards + bootstrap, discounts, jnp.asarray(lambda_, rewards.dtype), jnp.append(values, next_values[-1])
  )
