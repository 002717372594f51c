"""Values of imagined trajectories, V_lambda, and the loss of critics that learn from them."""

import chex
import jax
import jax.numpy as jnp

from lambda_kit import types
from lambda_kit.policies.quick_rlax import rlax


def lambda_values(
  rewards: types.Array, continuations: types.Array, next_values: types.Array, discount: float, lambda_: float
) -> types.Array:
  """TD(lambda) values V_lambda(s_0), ..., V_lambda(s_{H-1}) of one imagined trajectory, in the order of time.

  Actions a_0, ..., a_{H-1} lead from s_0 to the states s_1, ..., s_H. With G_H = v(s_H), and for t in [1, H]:

    G_{t-1} = r_t + discount c_t [(1 - lambda) v(s_t) + lambda G_t],  V_lambda(s_{t-1}) = G_{t-1}.

  A state in which the episode has ended (c_t = 0) contributes its own reward and nothing after it. Gradients flow to
  all arrays. For the value of a cost, pass that cost as `rewards`.

  Args:
    rewards: r_t, predicted in s_t, for t in [1, H], [H].
    continuations: c_t, the probability that the episode has not ended in s_t, [H].
    next_values: v(s_t) by the target critic, [H].
    discount: Per agent step.
    lambda_: 0 bootstraps after one step, 1 only at the horizon.

  Returns:
    Values of s_t for t in [0, H-1], [H]: one step earlier than the arguments.
  """
  chex.assert_rank([rewards, continuations, next_values], 1)
  chex.assert_equal_shape([rewards, continuations, next_values])
  return rlax.lambda_returns(rewards, discount * continuations, next_values, jnp.asarray(lambda_, rewards.dtype))


def value_loss(values: types.Array, targets: types.Array, weights: types.Array | None = None) -> types.Array:
  """Half the mean squared error of a critic (eq. 9).

  Args:
    values: v_psi(s_t), [..., H].
    targets: V_lambda(s_t), [..., H]. Gradients don't flow to them.
    weights: Of trajectories, [...], or of states, [..., H]; not negative. Gradients don't flow to them. None weights
      all equally. The loss is a weighted mean, so only proportions matter.

  Returns:
    The loss, [].
  """
  chex.assert_equal_shape([values, targets])
  errors = 0.5 * (values - jax.lax.stop_gradient(targets)) ** 2
  if weights is None:
    return jnp.mean(errors)
  weights = jax.lax.stop_gradient(weights)
  if weights.ndim == values.ndim - 1:
    weights = jnp.broadcast_to(weights[..., None], values.shape)
  chex.assert_equal_shape([weights, values])
  total = jnp.sum(weights)
  return jnp.sum(weights * errors) / jnp.where(total > 0, total, 1.0)
