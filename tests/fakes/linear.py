"""A world model, a policy and critics whose values and gradients can be written down."""

from typing import NamedTuple

import jax.numpy as jnp

from lambda_kit import core
from lambda_kit import types


class LinearModel(core.WorldModel):
  """s' = theta s + a, reward s', cost 2 s', never ends; states are seen as they are. One dimension, no noise."""

  noise_size = 1

  def init(self, key, batch):
    return {'theta': jnp.ones(())}

  def loss(self, params, batch, key):
    raise NotImplementedError

  def initial_state(self, batch_size):
    return jnp.zeros((batch_size, 1))

  def filter(self, params, state, action, observation, key):
    return observation['vector']

  def imagine_step(self, params, state, action, noise):
    return params['theta'] * state + action

  def features(self, state):
    return state

  def predict(self, params, features):
    reward = features[..., 0]
    return types.Predictions(reward, 2 * features, jnp.ones_like(reward))

  def decode(self, params, features):
    return {'vector': features}

  def log_likelihood(self, params, features, came):
    """Normal with standard deviation 1, without constants."""
    predictions = self.predict(params, features)
    return {
      'reward': -0.5 * (came.reward - predictions.reward) ** 2,
      'cost': -0.5 * jnp.sum((came.cost - predictions.cost) ** 2, axis=-1),
    }

  def draw_costs(self, params, features, factors, key):
    """Without noise."""
    return factors * self.predict(params, features).cost

  def imagination_params(self, params):
    return params


class FixedAction(NamedTuple):
  """A distribution that has no spread."""

  action: types.Array

  def sample(self, key):
    del key
    return self.action

  def from_noise(self, noise):
    del noise
    return self.action

  def mode(self):
    return self.action

  def gaussian_entropy(self):
    return jnp.zeros(self.action.shape[:-1])


def linear_policy(params, features):
  """a = k s."""
  return FixedAction(params['k'] * features)
