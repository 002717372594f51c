"""Small parameter trees and losses whose gradients are known."""

import haiku as hk
import jax
from jax import flatten_util
import jax.numpy as jnp
import numpy as np

from lambda_kit import core

# Two matrices of different shapes, neither of them square, and two vectors: permuted entries would show.
SHAPES = {'encoder': {'w': (4, 3)}, 'rssm/prior': {'b': (2,), 'w': (2, 3)}, 'reward': {'w': (3, 2), 'b': (1,)}}
SELECTED = ('reward', 'rssm/prior')  # In the order of JAX's dictionaries: sorted by name.
NUM_SELECTED = 2 + 6 + 6 + 1


def init_params(key):
  return _normal(key, jax.tree.map(np.zeros, SHAPES, is_leaf=lambda node: isinstance(node, tuple)))


def _normal(key, like):
  """N(0, 1) in the shapes of a tree. One call for all leaves, since each takes long to compile."""
  vector, unflatten = flatten_util.ravel_pytree(jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), like))
  return unflatten(jax.random.normal(key, vector.shape))


def select(params):
  return {name: params[name] for name in SELECTED}


def to_vectors(selected):
  """Flattens leaves [N, ...] of selected parameters into [N, P], in an order written out by hand."""
  leaves = [selected['reward']['b'], selected['reward']['w'], selected['rssm/prior']['b'], selected['rssm/prior']['w']]
  return np.concatenate([np.reshape(leaf, (len(leaf), -1)) for leaf in leaves], axis=1)


def to_vector(params):
  return to_vectors(jax.tree.map(lambda leaf: np.asarray(leaf)[None], select(params)))[0]


def linear_loss(slope):
  """Its gradient is `slope` in every entry, whatever the parameters."""
  return lambda params, key: (slope * sum(jnp.sum(leaf) for leaf in jax.tree.leaves(params)), {'slope': slope})


def noisy_loss(params, key):
  """Its gradient is N(0, 1) noise, decided by the key."""
  products = jax.tree.map(lambda leaf, slope: jnp.sum(leaf * slope), params, _normal(key, params))
  return sum(jax.tree.leaves(products)), ()


class EnsembleLoss(core.EnsembleLoss):
  """What a loss of complete parameters means for an ensemble: members have the reference's other parameters.

  Its other output comes as 'aux'. A member's loss is the same for all sequences, one of each of `episodes`.
  """

  def __init__(self, loss, episodes=(0, 1, 2)):
    self._loss, self._episodes = loss, np.asarray(episodes)

  def __call__(self, params, key):
    value, aux = self._loss(params, key)
    return value, {'aux': aux, 'params': params}

  def of_member(self, theta, output, key):
    value, _ = self._loss({**output['params'], **theta}, key)
    return jnp.full(self._episodes.shape, value)

  @property
  def episodes(self):
    return self._episodes


class Jitted:
  """A posterior's functions, each compiled once. `update` multiplies the loss by a factor."""

  def __init__(self, posterior, loss=noisy_loss, init=init_params):
    def update(state, key, factor):
      def scaled(params, key):
        value, aux = loss(params, key)
        return factor * value, aux

      return posterior.update(state, EnsembleLoss(scaled) if posterior.needs_member_loss else scaled, key)

    self._update = jax.jit(update)
    self.init = jax.jit(lambda key: posterior.init(key, init))
    self.sample = jax.jit(posterior.sample, static_argnums=2)
    self.mean = jax.jit(posterior.mean)

  def update(self, state, key, factor=1.0):
    return self._update(state, key, factor)

  def train(self, num_updates):
    """Returns the state and the metrics after `num_updates` updates."""
    state = self.init(jax.random.key(0))
    for key in jax.random.split(jax.random.key(1), num_updates):
      state, _, metrics = self.update(state, key)
    return state, metrics


def haiku_network():
  """An encoder, a latent step and a reward head, with Haiku's own names. Returns `init` and `apply`."""

  def network(x):
    embedding = hk.nets.MLP([6], name='encoder')(x)
    latent = hk.Linear(4, name='prior')(jax.nn.elu(embedding))
    return hk.nets.MLP([5, 1], name='reward')(latent)

  return hk.without_apply_rng(hk.transform(network))


def select_haiku(params):
  return hk.data_structures.filter(lambda module, name, value: not module.startswith('encoder'), params)
