"""Encoders and decoders."""

import functools
import pathlib

from absl.testing import absltest
from absl.testing import parameterized
from dm_env import specs
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

import gin
from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit.config import configuration
from lambda_kit.models import decoders
from lambda_kit.models import encoders
from tests.fakes import models as fakes

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_SMALL_IMAGE_ENCODER = functools.partial(encoders.ImageEncoder, depth=4, kernels=(4, 4))
_SMALL_IMAGE_DECODER = functools.partial(decoders.ImageDecoder, depth=4, dense_size=16, kernels=(6, 6))


def _image_spec(height: int, width: int) -> specs.Array:
  return specs.BoundedArray((height, width, 3), np.uint8, 0, 255, name='image')


def _shapes(function, *inputs):
  """Shapes of parameters and outputs, without computing anything."""
  transformed = hk.without_apply_rng(hk.transform(function))
  params = jax.eval_shape(transformed.init, jax.random.key(0), *inputs)
  outputs = jax.eval_shape(transformed.apply, params, *inputs)
  return jax.tree.map(lambda x: x.shape, params), jax.tree.map(lambda x: x.shape, outputs)


class EncodersTest(parameterized.TestCase):
  def test_images_of_the_built_in_cmdp_are_seen_to_their_edge(self):
    configuration.parse(['gin/tasks/grid_images.gin'], [], search_paths=[str(_ROOT)])
    self.addCleanup(gin.clear_config)
    settings = {name: gin.query_parameter(f'ImageEncoder.{name}') for name in ('depth', 'kernels')}
    encoder = hk.without_apply_rng(hk.transform(lambda image: encoders.ImageEncoder(**settings)(image)))
    image = np.zeros((16, 16, 3), np.uint8)
    params = encoder.init(jax.random.key(0), image)
    for row, column in ((0, 0), (0, 15), (15, 0), (15, 15)):
      other = image.copy()
      other[row, column] = 255
      self.assertTrue(np.any(encoder.apply(params, other) != encoder.apply(params, image)), (row, column))

  def test_the_paper_s_convolutions(self):
    params, embedding = _shapes(lambda x: encoders.ImageEncoder()(x), jnp.zeros((2, 3, 64, 64, 3), jnp.uint8))
    kernels = [params[f'image_encoder/~/conv_{i}']['w'] for i in range(4)]
    self.assertEqual(kernels, [(4, 4, 3, 32), (4, 4, 32, 64), (4, 4, 64, 128), (4, 4, 128, 256)])
    self.assertEqual(embedding, (2, 3, 2 * 2 * 256))  # 64, 31, 14, 6, 2 pixels.

  def test_pixels_are_centred(self):
    pixels = encoders.preprocess_image(jnp.array([0, 51, 255], jnp.uint8))
    np.testing.assert_allclose(pixels, [-0.5, -0.3, 0.5], atol=1e-7)

  @parameterized.parameters(
    ({'image': fakes.IMAGE}, 2 * 2 * 8),  # 16, 7, 2 pixels; channels 4, 8.
    ({'vector': fakes.VECTOR}, 6),
    ({'image': fakes.IMAGE, 'vector': fakes.VECTOR}, 2 * 2 * 8 + 6),
  )
  def test_parts_of_observations(self, spec, expected_size):
    batch = fakes.random_batch(spec, 2, 3)
    make = lambda: encoders.ObservationEncoder(
      _SMALL_IMAGE_ENCODER, functools.partial(encoders.VectorEncoder, hidden_sizes=(7, 6))
    )
    _, embedding = _shapes(lambda x: make()(x), batch.observation)
    self.assertEqual(embedding, (2, 3, expected_size))

  def test_leading_axes_are_independent(self):
    images = fakes.random_batch({'image': fakes.IMAGE}, 2, 3).observation['image']
    transformed = hk.without_apply_rng(hk.transform(lambda x: _SMALL_IMAGE_ENCODER()(x)))
    params = jax.jit(transformed.init)(jax.random.key(0), images)
    both = jax.jit(lambda p, x: (transformed.apply(p, x)[1, 2], transformed.apply(p, x[1, 2])))
    together, alone = both(params, images)
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-6)

  def test_too_small_images(self):
    # 1 pixel needs 4, those need (4 - 1) 2 + 4 = 10, those 22, those 46.
    with self.assertRaisesRegex(ValueError, r'ImageEncoder.kernels = \(4, 4, 4, 4\) .* at least 46x46 .* got 16x16'):
      _shapes(lambda x: encoders.ImageEncoder()(x), jnp.zeros((16, 16, 3), jnp.uint8))
    _, embedding = _shapes(lambda x: encoders.ImageEncoder()(x), jnp.zeros((46, 46, 3), jnp.uint8))
    self.assertEqual(embedding, (256,))

  def test_images_are_bytes(self):
    with self.assertRaisesRegex(ValueError, 'uint8'):
      _shapes(lambda x: encoders.ImageEncoder()(x), jnp.zeros((64, 64, 3)))

  def test_unknown_parts(self):
    for observation in ({'lidar': jnp.zeros(3)}, {}):
      with self.assertRaisesRegex(ValueError, "'image', 'vector' or both"):
        _shapes(lambda x: encoders.ObservationEncoder()(x), observation)


class DecodersTest(parameterized.TestCase):
  def test_the_paper_s_convolutions(self):
    params, mean = _shapes(lambda x: decoders.ImageDecoder(_image_spec(64, 64))(x), jnp.zeros((2, 3, 230)))
    self.assertEqual(params['image_decoder/~/dense']['w'], (230, 1024))
    kernels = [params[f'image_decoder/~/conv_transpose_{i}']['w'] for i in range(4)]
    self.assertEqual(kernels, [(5, 5, 128, 1024), (5, 5, 64, 128), (6, 6, 32, 64), (6, 6, 3, 32)])
    self.assertEqual(mean, (2, 3, 64, 64, 3))

  @parameterized.parameters(
    {'spec': {'image': fakes.IMAGE}},
    {'spec': {'vector': fakes.VECTOR}},
    {'spec': {'image': fakes.IMAGE, 'vector': fakes.VECTOR}},
  )
  def test_parts_of_observations(self, spec):
    _, means = _shapes(lambda x: decoders.ObservationDecoder(spec, _SMALL_IMAGE_DECODER)(x), jnp.zeros((2, 3, 9)))
    self.assertEqual(means, {name: (2, 3) + part.shape for name, part in spec.items()})

  @parameterized.parameters((16, 16), (64, 48))
  def test_other_images(self, height, width):
    message = (
      r'ImageDecoder.kernels = \(5, 5, 6, 6\) with ImageDecoder.stride = 2 produce images of 64x64 pixels, '
      f'but .* {height}x{width}'
    )
    with self.assertRaisesRegex(ValueError, message):
      _shapes(lambda x: decoders.ImageDecoder(_image_spec(height, width))(x), jnp.zeros(9))

  def test_log_probs(self):
    # One entry: -(1/2) error^2 - (1/2) log(2 pi). The image has 2 2 3 = 12 entries with pixels 255, i.e. 0.5, and
    # means of 0.1: errors of 0.4. The vector's errors are 1 and 2.
    observation = {'image': jnp.full((1, 2, 2, 3), 255, jnp.uint8), 'vector': jnp.array([[1.0, 3.0]])}
    means = {'image': jnp.full((1, 2, 2, 3), 0.1), 'vector': jnp.array([[2.0, 1.0]])}
    constant = -0.5 * np.log(2.0 * np.pi)
    actual = decoders.log_probs(means, observation)
    np.testing.assert_allclose(actual['image'], [12 * (-0.5 * 0.16 + constant)], rtol=1e-5)
    np.testing.assert_allclose(actual['vector'], [-0.5 * (1.0 + 4.0) + 2 * constant], rtol=1e-5)
    errors = decoders.mean_squared_errors(means, observation)
    np.testing.assert_allclose([errors['image'], errors['vector']], [0.16, 2.5], rtol=1e-5)


if __name__ == '__main__':
  absltest.main()
