"""The recurrent state space model (Hafner et al., 2019): dynamics with parameters theta, inference with phi.

A state s_t has a deterministic part d_t and a stochastic part z_t:

  d_t = GRU(d_{t-1}, elu(W [a_{t-1}, z_{t-1}] + b))
  prior      p(z_t | d_t, theta)    both diagonal Gaussians with standard deviations softplus(.) + 0.1,
  posterior  q(z_t | d_t, o_t, phi)   each from one hidden layer
"""

from typing import NamedTuple

import chex
import haiku as hk
import jax
import jax.numpy as jnp

from lambda_kit import types
from lambda_kit.models import activations
from lambda_kit.models import distributions
from lambda_kit.models import networks

# For layers with two inputs, i.e. the sum of two linear maps: each contributes half of the output's variance.
_HALF = hk.initializers.VarianceScaling(0.5, 'fan_in', 'truncated_normal')


class State(NamedTuple):
  """s_t."""

  stochastic: types.Array  # [..., S], z_t.
  deterministic: types.Array  # [..., D], d_t.


def initial_state(batch_size: int, stochastic_size: int, deterministic_size: int) -> State:
  """The state before the first observation, [batch_size, ...]."""
  return State(jnp.zeros((batch_size, stochastic_size)), jnp.zeros((batch_size, deterministic_size)))


def features(state: State) -> types.Array:
  """What networks see of a state, [..., S + D]."""
  return jnp.concatenate([state.stochastic, state.deterministic], axis=-1)


class Inferred(NamedTuple):
  """The result of inference on sequences."""

  states: State  # [B, L, ...], z_t drawn from the posterior.
  posterior: distributions.Gaussian  # [B, L, S]
  prior: distributions.Gaussian  # [B, L, S]


class GruCell(hk.Module):
  """A gated recurrent unit that resets after the matrix product, so that a step takes one product for each input.

  With gates in the order reset, update, candidate along the last axis of W ([I, 3 D]), U ([D, 3 D]) and b:

    r = sigmoid(x W_r + h U_r + b_r)
    u = sigmoid(x W_u + h U_u + b_u)
    c = tanh(x W_c + b_c + r * (h U_c))
    h' = u * h + (1 - u) * c
  """

  def __init__(self, size: int, name: str | None = None):
    super().__init__(name=name)
    self._input = hk.Linear(3 * size, name='input')
    self._recurrent = hk.Linear(3 * size, with_bias=False, name='recurrent')

  def __call__(self, inputs: types.Array, hidden: types.Array) -> types.Array:
    """Maps inputs x [..., I] and hidden state h [..., D] to h' [..., D]."""
    reset_x, update_x, candidate_x = jnp.split(self._input(inputs), 3, axis=-1)
    reset_h, update_h, candidate_h = jnp.split(self._recurrent(hidden), 3, axis=-1)
    update = jax.nn.sigmoid(update_x + update_h)
    candidate = jnp.tanh(candidate_x + jax.nn.sigmoid(reset_x + reset_h) * candidate_h)
    return update * hidden + (1.0 - update) * candidate


class Dynamics(hk.Module):
  """p(s_t | s_{t-1}, a_{t-1}, theta)."""

  def __init__(
    self, stochastic_size: int, deterministic_size: int, hidden_size: int, min_stddev: float, name: str | None = None
  ):
    super().__init__(name=name)
    self._action = hk.Linear(hidden_size, w_init=_HALF, name='action')
    self._stochastic = hk.Linear(hidden_size, with_bias=False, w_init=_HALF, name='stochastic')
    self._cell = GruCell(deterministic_size, name='gru')
    self._prior = networks.Mlp(2 * stochastic_size, (hidden_size,), name='prior')
    self._min_stddev = min_stddev

  def project_action(self, action: types.Array) -> types.Array:
    """The part of the first layer that depends only on actions [..., A], and so can leave the loop over time."""
    return self._action(action)

  def advance(self, state: State, projected_action: types.Array) -> types.Array:
    """d_t [..., D] from s_{t-1} and the result of `project_action` for a_{t-1}."""
    inputs = activations.elu(projected_action + self._stochastic(state.stochastic))
    return self._cell(inputs, state.deterministic)

  def prior(self, deterministic: types.Array) -> distributions.Gaussian:
    """p(z_t | d_t, theta), [..., S], from d_t [..., D]."""
    return distributions.gaussian(self._prior(deterministic), self._min_stddev)

  def step(self, state: State, action: types.Array, noise: types.Array) -> State:
    """Draws s_t from s_{t-1}, a_{t-1} [..., A] and standard normal noise [..., S]."""
    deterministic = self.advance(state, self.project_action(action))
    return State(self.prior(deterministic).sample(noise), deterministic)


class Inference(hk.Module):
  """q(z_t | d_t, o_t, phi), where an embedding stands for o_t."""

  def __init__(self, stochastic_size: int, hidden_size: int, min_stddev: float, name: str | None = None):
    super().__init__(name=name)
    self._embedding = hk.Linear(hidden_size, w_init=_HALF, name='embedding')
    self._deterministic = hk.Linear(hidden_size, with_bias=False, w_init=_HALF, name='deterministic')
    self._posterior = hk.Linear(2 * stochastic_size, name='posterior')
    self._min_stddev = min_stddev

  def project_embedding(self, embedding: types.Array) -> types.Array:
    """The part of the hidden layer that depends only on embeddings [..., E], and so can leave the loop over time."""
    return self._embedding(embedding)

  def posterior(self, deterministic: types.Array, projected_embedding: types.Array) -> distributions.Gaussian:
    """q(z_t | d_t, o_t, phi), [..., S], from d_t [..., D] and the result of `project_embedding` for o_t."""
    hidden = activations.elu(projected_embedding + self._deterministic(deterministic))
    return distributions.gaussian(self._posterior(hidden), self._min_stddev)


def infer_step(
  dynamics: Dynamics,
  inference: Inference,
  state: State,
  projected_action: types.Array,
  projected_embedding: types.Array,
  noise: types.Array,
) -> tuple[State, distributions.Gaussian]:
  """Draws s_t ~ q(. | s_{t-1}, a_{t-1}, o_t) with noise [..., S]. Also returns the posterior of z_t."""
  deterministic = dynamics.advance(state, projected_action)
  posterior = inference.posterior(deterministic, projected_embedding)
  return State(posterior.sample(noise), deterministic), posterior


def infer_sequences(
  dynamics: Dynamics,
  inference: Inference,
  initial: State,
  actions: types.Array,
  embeddings: types.Array,
  noise: types.Array,
) -> Inferred:
  """Infers the states of sequences. Only the recurrent part is computed step by step.

  Args:
    dynamics: p.
    inference: q.
    initial: states before the first action, [B, ...].
    actions: a_{t-1}, [B, L, A].
    embeddings: of the o_t, [B, L, E].
    noise: standard normal, [B, L, S].

  Returns:
    States and distributions, [B, L, ...].
  """
  chex.assert_rank([actions, embeddings, noise], 3)
  chex.assert_equal_shape_prefix([actions, embeddings, noise], 2)

  def step(state, inputs):
    state, posterior = infer_step(dynamics, inference, state, *inputs)
    return state, (state, posterior)

  inputs = (dynamics.project_action(actions), inference.project_embedding(embeddings), noise)
  time_major = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), inputs)
  _, outputs = hk.scan(step, initial, time_major)
  states, posterior = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), outputs)
  return Inferred(states, posterior, dynamics.prior(states.deterministic))
