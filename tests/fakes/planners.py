"""A linear world model, for which returns, costs and best plans are arithmetic."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from lambda_kit import core
from lambda_kit import types


class LinearParams(NamedTuple):
  """N sets of parameters, each field [N]; or one set, each field []."""

  gain: types.Array  # b
  goal: types.Array  # g
  effort: types.Array  # rho
  value: types.Array  # v
  price: types.Array  # p
  survival: types.Array  # u
  noise: types.Array  # sigma


def stack_params(num_samples: int = 1, **values: float | Sequence[float]) -> LinearParams:
  """N sets of parameters; what is not given is 0, but survival 1."""
  values = {'survival': 1.0} | values
  return LinearParams(
    **{
      name: jnp.broadcast_to(jnp.asarray(values.get(name, 0.0), jnp.float32), (num_samples,))
      for name in LinearParams._fields
    }
  )


def start_state(x: float) -> types.Nest:
  return {'x': jnp.asarray(x, jnp.float32), 'action': jnp.zeros(())}


class LinearModel(core.WorldModel):
  """x_{t+1} = x_t + b a_t, plus sigma times Gaussian noise if it is noisy, with one action.

  The reward is -(x_{t+1} - g)^2 - rho a_t^2 + v a_t, cost i is i p a_t for i = 1, ..., C, and the episode goes on with
  probability u. The state keeps the action because predictions see nothing but states.
  """

  noise_size = 1

  def __init__(self, num_constraints: int = 1, noisy: bool = False):
    self._noisy = noisy
    self._multiples = jnp.arange(1.0, num_constraints + 1.0)

  def initial_state(self, batch_size):
    return {'x': jnp.zeros((batch_size,)), 'action': jnp.zeros((batch_size,))}

  def imagine_step(self, params, state, action, noise):
    x = state['x'] + params.gain * action[:, 0]
    if self._noisy:
      x += params.noise * noise[:, 0]
    return {'x': x, 'action': action[:, 0]}

  def features(self, state):
    return jnp.stack([state['x'], state['action']], axis=-1)

  def predict(self, params, features):
    x, action = features[..., 0], features[..., 1]
    reward = -jnp.square(x - params.goal) - params.effort * jnp.square(action) + params.value * action
    cost = jnp.tensordot(params.price * action, self._multiples, axes=0)
    return types.Predictions(reward, cost, jnp.broadcast_to(params.survival, x.shape))

  def init(self, key, batch):
    raise NotImplementedError

  def loss(self, params, batch, key):
    raise NotImplementedError

  def filter(self, params, state, action, observation, key):
    raise NotImplementedError

  def decode(self, params, features):
    raise NotImplementedError

  def log_likelihood(self, params, features, came):
    raise NotImplementedError

  def draw_costs(self, params, features, factors, key):
    raise NotImplementedError

  def imagination_params(self, params):
    return params
