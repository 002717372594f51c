"""Convolutions on blocks against Haiku's."""

from absl.testing import absltest
from absl.testing import parameterized
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from lambda_kit.models import convolutions


class ConvolutionsTest(parameterized.TestCase):

  @parameterized.parameters(
      # Height and width, kernel, stride. Kernels of a whole number of blocks and not, pixels left over and not.
      ((9, 8), 4, 2), ((8, 7), 5, 2), ((6, 7), 1, 2), ((8, 11), 4, 3), ((6, 5), 3, 1), ((4, 4), 4, 2))
  def test_equals_haiku(self, shape, kernel, stride):
    ours = lambda x: convolutions.Conv(3, kernel, stride, name='conv')(x)
    theirs = lambda x: hk.Conv2D(3, kernel, stride, padding='VALID', name='conv')(x)
    self._compare(ours, theirs, lambda w: w, shape)

  @parameterized.parameters(
      ((1, 1), 5, 2), ((5, 4), 5, 2), ((3, 4), 6, 2), ((1, 3), 6, 2), ((3, 3), 4, 3), ((3, 5), 3, 1))
  def test_transpose_equals_haiku(self, shape, kernel, stride):
    ours = lambda x: convolutions.ConvTranspose(3, kernel, stride, name='conv')(x)
    theirs = lambda x: hk.Conv2DTranspose(3, kernel, stride, padding='VALID', name='conv')(x)
    self._compare(ours, theirs, lambda w: w[::-1, ::-1], shape)

  def test_transpose_is_the_transpose(self):
    images = jax.random.normal(jax.random.key(0), (2, 8, 10, 3))
    kernel = jax.random.normal(jax.random.key(1), (4, 4, 3, 5))

    @jax.jit
    def both(images, kernel):
      outputs, vjp = jax.vjp(lambda x: convolutions.conv(x, kernel, stride=2), images)
      return vjp(outputs)[0], convolutions.conv_transpose(outputs, kernel, stride=2)

    expected, actual = both(images, kernel)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)

  def _compare(self, ours, theirs, orient, shape):
    """Outputs are the same for the same parameters."""
    images = jax.random.normal(jax.random.key(0), (2,) + shape + (2,))
    ours, theirs = (hk.without_apply_rng(hk.transform(f)) for f in (ours, theirs))
    shapes = jax.eval_shape(ours.init, jax.random.key(1), images)['conv']
    w = jax.random.normal(jax.random.key(1), shapes['w'].shape)
    b = jnp.array([1.0, 2.0, 3.0])
    actual = jax.jit(ours.apply)({'conv': {'w': w, 'b': b.reshape(shapes['b'].shape)}}, images)
    with jax.numpy_rank_promotion('allow'):  # Haiku adds its bias with it.
      expected = jax.jit(theirs.apply)({'conv': {'w': orient(w), 'b': b}}, images)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


if __name__ == '__main__':
  absltest.main()
