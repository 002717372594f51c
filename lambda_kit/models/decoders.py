"""Decoders, from the features of a state to observations: p(o_t | s_t), a Normal with standard deviation 1."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import chex
import haiku as hk
import jax
import jax.numpy as jnp

import gin
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.models import activations
from lambda_kit.models import convolutions
from lambda_kit.models import distributions
from lambda_kit.models import encoders
from lambda_kit.models import networks


class DecoderFactory(Protocol):
  """Makes a module that maps features [..., F] to the mean of an observation with this spec, or of a part of one."""

  def __call__(self, *, spec: Any, name: str) -> hk.Module: ...


@gin.register
@ranges.checked
class ImageDecoder(hk.Module):
  """A dense layer, then transposed convolutions that grow one pixel to an image."""

  def __init__(
    self,
    spec: Any,
    depth: ranges.Count = 32,
    dense_size: ranges.Count = 1024,
    kernels: Sequence[ranges.Count] = (5, 5, 6, 6),
    stride: ranges.Count = 2,
    activation: activations.Activation = jax.nn.relu,
    name: str | None = None,
  ):
    """Makes the layers.

    Args:
      spec: of the image, [height, width, 3].
      depth: channels of the last layer but one. Going back, each layer has twice as many.
      dense_size: units of the dense layer, which is linear.
      kernels: height and width of each layer's kernel. (5, 5, 6, 6) produces 64x64 pixels, (6, 6) produces 16x16.
      stride: of all layers.
      activation: after each transposed convolution but the last.
      name: of the module.
    """
    super().__init__(name=name)
    size = 1
    for kernel in kernels:
      size = (size - 1) * stride + kernel
    height, width, num_channels = spec.shape
    if (height, width) != (size, size):
      raise errors.SetupError(
        f'ImageDecoder.kernels = {tuple(kernels)} with ImageDecoder.stride = {stride} produce images of {size}x{size} '
        f'pixels, but observations have {height}x{width}. Bind other ImageDecoder.kernels: starting from 1 pixel, each '
        'kernel k turns n pixels into (n - 1) stride + k.'
      )
    channels = [depth * 2**i for i in reversed(range(len(kernels) - 1))] + [num_channels]
    self._dense = hk.Linear(dense_size, name='dense')
    self._layers = [
      convolutions.ConvTranspose(channels[i], kernel, stride, name=f'conv_transpose_{i}')
      for i, kernel in enumerate(kernels)
    ]
    self._activation = activation

  def __call__(self, features: types.Array) -> types.Array:
    """Maps features [..., F] to means [..., height, width, 3], in the range of `encoders.preprocess_image`."""
    leading = features.shape[:-1]
    hidden = self._dense(features.reshape(-1, features.shape[-1]))[:, None, None, :]
    for layer in self._layers[:-1]:
      hidden = self._activation(layer(hidden))
    image = self._layers[-1](hidden)
    return image.reshape(leading + image.shape[1:])


@gin.register
@ranges.checked
class VectorDecoder(hk.Module):
  """A multilayer perceptron."""

  def __init__(
    self,
    spec: Any,
    hidden_sizes: Sequence[ranges.Count] = (400, 400, 400),
    activation: activations.Activation = activations.elu,
    name: str | None = None,
  ):
    super().__init__(name=name)
    self._mlp = networks.Mlp(spec.shape[0], hidden_sizes, activation, name='mlp')

  def __call__(self, features: types.Array) -> types.Array:
    """Maps features [..., F] to means [..., D]."""
    return self._mlp(features)


@gin.register
class ObservationDecoder(hk.Module):
  """Decodes each part of an observation: 'image', 'vector' or both."""

  def __init__(
    self,
    spec: Mapping[str, Any],
    image_factory: DecoderFactory = ImageDecoder,
    vector_factory: DecoderFactory = VectorDecoder,
    name: str | None = None,
  ):
    super().__init__(name=name)
    encoders.check_names(spec)
    factories = {'image': image_factory, 'vector': vector_factory}
    self._decoders = {part: factories[part](spec=spec[part], name=part) for part in sorted(spec)}

  def __call__(self, features: types.Array) -> dict[str, types.Array]:
    """Maps features [..., F] to the means of all parts, [..., height, width, 3] and [..., D]."""
    return {part: decoder(features) for part, decoder in self._decoders.items()}


def targets(observation: types.Observation) -> dict[str, types.Array]:
  """The observation in the units of the decoders' means: images in [-0.5, 0.5], vectors as they are."""
  return {part: encoders.preprocess_image(value) if part == 'image' else value for part, value in observation.items()}


def log_probs(means: Mapping[str, types.Array], observation: types.Observation) -> dict[str, types.Array]:
  """log p(o_t | s_t) of each part [...], summed over its entries, for leading axes [...]."""
  values = targets(observation)
  chex.assert_trees_all_equal_shapes(dict(means), values)
  log_prob = lambda part, mean: distributions.normal_log_prob(values[part], mean).sum(axis=_event_axes(part))
  return {part: log_prob(part, mean) for part, mean in means.items()}


def mean_squared_errors(means: Mapping[str, types.Array], observation: types.Observation) -> dict[str, types.Array]:
  """The mean squared error of each part, []."""
  return {part: jnp.mean((value - means[part]) ** 2) for part, value in targets(observation).items()}


def _event_axes(part: str) -> tuple[int, ...]:
  return (-3, -2, -1) if part == 'image' else (-1,)
