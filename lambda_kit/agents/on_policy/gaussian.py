"""Policy and critics of the model-free baselines, as in safety-starter-agents (Ray et al., 2019)."""

from collections.abc import Callable, Mapping, Sequence
import math
from typing import Any, NamedTuple

import chex
import haiku as hk
import jax
import jax.numpy as jnp

import gin
from lambda_kit import core
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.models import encoders
from lambda_kit.models import normalizer

_GLOROT = hk.initializers.VarianceScaling(1.0, 'fan_avg', 'uniform')


class DiagonalGaussian(NamedTuple):
  """N(mean, diag(exp(log_std)^2)), without squashing: the environment clips. A pytree: `jit` can return it."""

  mean: types.Array  # [..., A]
  log_std: types.Array  # [..., A]

  def sample(self, key: core.Key) -> types.Array:
    """Draws actions [..., A]."""
    return self.from_noise(jax.random.normal(key, self.mean.shape, self.mean.dtype))

  def from_noise(self, noise: types.Array) -> types.Array:
    """Maps standard normal noise [..., A] to actions [..., A]."""
    chex.assert_equal_shape([noise, self.mean])
    return self.mean + jnp.exp(self.log_std) * noise

  def mode(self) -> types.Array:
    """The most likely action, [..., A]."""
    return self.mean

  def log_prob(self, action: types.Array) -> types.Array:
    """Log density [...] of actions [..., A]."""
    chex.assert_equal_shape([action, self.mean])
    return jnp.sum(jax.scipy.stats.norm.logpdf(action, self.mean, jnp.exp(self.log_std)), axis=-1)

  def entropy(self) -> types.Array:
    """In nats, [...]."""
    return jnp.sum(0.5 * jnp.log(2.0 * jnp.pi * jnp.e) + self.log_std, axis=-1)

  def kl_divergence(self, other: 'DiagonalGaussian') -> types.Array:
    """D_KL(self || other), [...]."""
    chex.assert_equal_shape([self.mean, other.mean])
    variance, other_variance = jnp.exp(2.0 * self.log_std), jnp.exp(2.0 * other.log_std)
    each = other.log_std - self.log_std + 0.5 * (variance + (self.mean - other.mean) ** 2) / other_variance - 0.5
    return jnp.sum(each, axis=-1)


class _Torso(hk.Module):
  """Maps observations to outputs [..., size] by tanh layers, after an encoder if there are images."""

  def __init__(
    self, hidden_sizes: Sequence[int], size: int, image_factory: encoders.EncoderFactory, name: str | None = None
  ):
    super().__init__(name)
    self._hidden_sizes = tuple(hidden_sizes)
    self._size = size
    self._image_factory = image_factory

  def __call__(self, observation: types.Observation) -> types.Array:
    encoders.check_names(observation)
    parts = {'image': lambda image: self._image_factory(name='image')(image), 'vector': lambda vector: vector}
    features = jnp.concatenate([parts[name](observation[name]) for name in sorted(observation)], axis=-1)
    return hk.nets.MLP((*self._hidden_sizes, self._size), w_init=_GLOROT, activation=jnp.tanh)(features)


@gin.register
@ranges.checked
class GaussianPolicy(hk.Module):
  """pi(a | o), a `DiagonalGaussian` with a standard deviation that doesn't depend on the observation.

  Args:
    num_actions: A.
    hidden_sizes: Widths of the tanh layers.
    init_log_std: Initial logarithm of the standard deviation, for all actions.
    image_factory: Makes the encoder of images, if observations have one.
  """

  def __init__(
    self,
    num_actions: int,
    hidden_sizes: Sequence[ranges.Count] = (256, 256),
    init_log_std: ranges.Finite = -0.5,
    image_factory: encoders.EncoderFactory = encoders.ImageEncoder,
    name: str | None = None,
  ):
    super().__init__(name)
    self._num_actions = num_actions
    self._init_log_std = init_log_std
    self._torso = _Torso(hidden_sizes, num_actions, image_factory)

  def __call__(self, observation: types.Observation) -> DiagonalGaussian:
    mean = self._torso(observation)
    log_std = hk.get_parameter('log_std', (self._num_actions,), init=hk.initializers.Constant(self._init_log_std))
    return DiagonalGaussian(mean, jnp.broadcast_to(log_std, mean.shape))


@gin.register
@ranges.checked
class ObservationCritic(hk.Module):
  """v(o), from observations to values [...]."""

  def __init__(
    self,
    hidden_sizes: Sequence[ranges.Count] = (256, 256),
    image_factory: encoders.EncoderFactory = encoders.ImageEncoder,
    name: str | None = None,
  ):
    super().__init__(name)
    self._torso = _Torso(hidden_sizes, 1, image_factory)

  def __call__(self, observation: types.Observation) -> types.Array:
    return jnp.squeeze(self._torso(observation), axis=-1)


def normalize(statistics: normalizer.State, observation: types.Observation) -> dict[str, types.Array]:
  """Centres vectors, and scales down numbers with a standard deviation above 1.

  Lidars are mostly 0 and not scaled up, which would make rare readings huge. Constants, such as gravity in an
  accelerometer, become 0; otherwise a gradient step would mostly shift all actions alike.
  """
  return normalizer.normalize(statistics, observation, min_scale=1.0)


class Network(NamedTuple):
  """A function of observations, and the initialiser of its parameters."""

  init: Callable[[core.Key], core.Params]
  apply: Callable[[core.Params, types.Observation], Any]


class OnPolicyNetworks(NamedTuple):
  """All networks of a baseline, for the shapes of one environment."""

  observation_spec: Mapping[str, Any]
  num_actions: int  # A
  num_constraints: int  # C
  policy: Network  # To a `DiagonalGaussian` [..., A].
  critics: Network  # To values [..., 1 + C], of the reward and of each cost. Parameters [1 + C, ...].


def make_networks(
  spec: core.EnvironmentSpec,
  policy_factory: Callable[..., hk.Module] = GaussianPolicy,
  critic_factory: Callable[..., hk.Module] = ObservationCritic,
  image_chunk_size: int = 500,
) -> OnPolicyNetworks:
  """Makes networks that fit an environment. Both factories are called inside a Haiku transform.

  If there are images, networks process `image_chunk_size` observations at a time, and gradients recompute the
  activations: those of all images of an epoch would take tens of gigabytes.
  """
  example = {name: jnp.zeros(field.shape, field.dtype) for name, field in spec.observations.items()}
  chunk_size = image_chunk_size if 'image' in example else None
  policy = _transform(lambda: policy_factory(num_actions=spec.num_actions), example, chunk_size)
  critic = _transform(critic_factory, example, chunk_size)
  critics = Network(
    init=lambda key: jax.vmap(critic.init)(jax.random.split(key, 1 + spec.num_constraints)),
    apply=jax.vmap(critic.apply, in_axes=(0, None), out_axes=-1),
  )
  return OnPolicyNetworks(spec.observations, spec.num_actions, spec.num_constraints, policy, critics)


def _transform(module_factory: Callable[[], hk.Module], example: types.Observation, chunk_size: int | None) -> Network:
  network = hk.without_apply_rng(hk.transform(lambda observation: module_factory()(observation)))
  apply = network.apply if chunk_size is None else _in_chunks(network.apply, example, chunk_size)
  return Network(lambda key: network.init(key, example), apply)


def _in_chunks(
  apply: Callable[[core.Params, types.Observation], Any], example: types.Observation, chunk_size: int
) -> Callable[[core.Params, types.Observation], Any]:
  """The same function of observations [..., *example.shape], a chunk at a time, forward and backward."""

  def chunked(params: core.Params, observation: types.Observation) -> Any:
    leading = observation['image'].shape[: -example['image'].ndim]
    num_observations = math.prod(leading)
    if num_observations <= chunk_size:
      return apply(params, observation)
    num_chunks = -(-num_observations // chunk_size)
    missing = num_chunks * chunk_size - num_observations

    def split(values: types.Array, like: types.Array) -> types.Array:  # [num_chunks, chunk_size, ...]
      values = values.reshape((num_observations, *like.shape))
      padded = jnp.pad(values, [(0, missing)] + [(0, 0)] * like.ndim)
      return padded.reshape((num_chunks, chunk_size, *like.shape))

    outputs = jax.lax.map(
      jax.checkpoint(lambda chunk: apply(params, chunk)),
      {name: split(values, example[name]) for name, values in observation.items()},
    )
    join = lambda values: values.reshape((-1, *values.shape[2:]))[:num_observations].reshape(
      (*leading, *values.shape[2:])
    )
    return jax.tree.map(join, outputs)

  return chunked
