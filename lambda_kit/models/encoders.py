"""Encoders, from observations to embeddings: the first part of the inference network."""

from collections.abc import Sequence
from typing import Protocol

import haiku as hk
import jax
import jax.numpy as jnp

import gin
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.models import activations
from lambda_kit.models import convolutions
from lambda_kit.models import networks


class EncoderFactory(Protocol):
  """Makes a module that maps an observation, or a part of one, with leading axes [...] to an embedding [..., E]."""

  def __call__(self, *, name: str) -> hk.Module: ...


def preprocess_image(image: types.Array) -> types.Array:
  """Maps bytes to [-0.5, 0.5]."""
  return image.astype(jnp.float32) / 255.0 - 0.5


@gin.register
@ranges.checked
class ImageEncoder(hk.Module):
  """Convolutions without padding, each with twice as many channels as the one before."""

  def __init__(
    self,
    depth: ranges.Count = 32,
    kernels: Sequence[ranges.Count] = (4, 4, 4, 4),
    stride: ranges.Count = 2,
    activation: activations.Activation = jax.nn.relu,
    name: str | None = None,
  ):
    """Makes the layers.

    Args:
      depth: channels of the first layer; layer i has 2^i times as many.
      kernels: height and width of each layer's kernel. Four layers of 4 suit 64x64 pixels, two of 4 and 3 suit 16x16.
        Pixels left over at the right and lower edges are not seen: two rows and columns of 16x16 with two kernels of 4.
      stride: of all layers.
      activation: after each layer.
      name: of the module.
    """
    super().__init__(name=name)
    self._kernels = tuple(kernels)
    self._stride = stride
    self._layers = [
      convolutions.Conv(depth * 2**i, kernel, stride, name=f'conv_{i}') for i, kernel in enumerate(kernels)
    ]
    self._activation = activation

  def __call__(self, image: types.Array) -> types.Array:
    """Maps images, uint8 [..., height, width, 3], to embeddings [..., E]."""
    if image.dtype != jnp.uint8:
      raise errors.SetupError(f'Images must be bytes (uint8), got {image.dtype}.')
    smallest = 1
    for kernel in reversed(self._kernels):
      smallest = (smallest - 1) * self._stride + kernel
    height, width = image.shape[-3:-1]
    if min(height, width) < smallest:
      raise errors.SetupError(
        f'ImageEncoder.kernels = {self._kernels} with ImageEncoder.stride = {self._stride} need images of at least '
        f'{smallest}x{smallest} pixels, got {height}x{width}. Bind ImageEncoder.kernels to fewer or smaller kernels.'
      )
    leading = image.shape[:-3]
    hidden = preprocess_image(image.reshape((-1,) + image.shape[-3:]))
    for layer in self._layers:
      hidden = self._activation(layer(hidden))
    return hidden.reshape(leading + (-1,))


@gin.register
@ranges.checked
class VectorEncoder(hk.Module):
  """A multilayer perceptron whose last hidden layer is the embedding."""

  def __init__(
    self,
    hidden_sizes: Sequence[ranges.Count] = (400, 400, 400),
    activation: activations.Activation = activations.elu,
    name: str | None = None,
  ):
    super().__init__(name=name)
    self._mlp = networks.Mlp(hidden_sizes=hidden_sizes, activation=activation, name='mlp')

  def __call__(self, vector: types.Array) -> types.Array:
    """Maps vectors [..., D] to embeddings [..., E]."""
    return self._mlp(vector)


@gin.register
class ObservationEncoder(hk.Module):
  """Encodes each part of an observation, 'image', 'vector' or both, and concatenates."""

  def __init__(
    self,
    image_factory: EncoderFactory = ImageEncoder,
    vector_factory: EncoderFactory = VectorEncoder,
    name: str | None = None,
  ):
    super().__init__(name=name)
    self._encoders = {'image': image_factory(name='image'), 'vector': vector_factory(name='vector')}

  def __call__(self, observation: types.Observation) -> types.Array:
    """Maps observations, entries [..., height, width, 3] and [..., D], to embeddings [..., E]."""
    check_names(observation)
    return jnp.concatenate([self._encoders[name](observation[name]) for name in sorted(observation)], axis=-1)


def check_names(observation: types.Observation) -> None:
  """Refuses an observation, or its spec, with parts that models don't know."""
  if not observation or not set(observation) <= {'image', 'vector'}:
    raise errors.SetupError(f"An observation consists of 'image', 'vector' or both, got {sorted(observation)}.")
