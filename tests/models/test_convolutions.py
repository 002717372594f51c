"""Convolutions on blocks against Haiku's."""

import functools
import re

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
    ((9, 8), 4, 2),
    ((8, 7), 5, 2),
    ((6, 7), 1, 2),
    ((8, 11), 4, 3),
    ((6, 5), 3, 1),
    ((4, 4), 4, 2),
  )
  def test_equals_haiku(self, shape, kernel, stride):
    ours = lambda x: convolutions.Conv(3, kernel, stride, name='conv')(x)
    theirs = lambda x: hk.Conv2D(3, kernel, stride, padding='VALID', name='conv')(x)
    self._compare(ours, theirs, lambda w: w, shape)

  @parameterized.parameters(
    ((1, 1), 5, 2), ((5, 4), 5, 2), ((3, 4), 6, 2), ((1, 3), 6, 2), ((3, 3), 4, 3), ((3, 5), 3, 1)
  )
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

  @parameterized.parameters(convolutions.conv, convolutions.conv_transpose)
  def test_gradients_in_loops_have_the_fast_order_of_axes(self, function):
    """XLA on CPUs has fast code for one order of axes, and in loops leaves others as they are."""
    images, kernel = jnp.ones((2, 8, 8, 3)), jnp.ones((4, 4, 3, 3))
    gradient = jax.grad(lambda inputs: jnp.sum(function(*inputs, stride=2) ** 2))

    def loop(images, kernel):
      step = lambda inputs, _: (jax.tree.map(jnp.add, inputs, gradient(inputs)), None)
      return jax.lax.scan(step, (images, kernel), length=2)[0]

    labels = re.findall(r'dim_labels=(\S+)', jax.jit(loop).lower(images, kernel).compile().as_text())
    self.assertNotEmpty(labels)
    self.assertEqual({label.rstrip(',') for label in labels}, {'b01f_01io->b01f'})

  def _compare(self, ours, theirs, orient, shape):
    """Outputs and gradients are the same for the same parameters."""
    images = jax.random.normal(jax.random.key(0), (2,) + shape + (2,))
    ours, theirs = (hk.without_apply_rng(hk.transform(f)) for f in (ours, theirs))
    shapes = jax.eval_shape(ours.init, jax.random.key(1), images)['conv']
    w = jax.random.normal(jax.random.key(1), shapes['w'].shape)
    b = jnp.array([1.0, 2.0, 3.0])

    def run(apply, w, b):
      """Outputs, and gradients with respect to images and kernels of a function that weighs outputs differently."""
      weigh = lambda outputs: jnp.sum(outputs * jnp.sin(jnp.arange(outputs.size).reshape(outputs.shape)))
      loss = lambda images, w: weigh(apply({'conv': {'w': w, 'b': b}}, images))
      return apply({'conv': {'w': w, 'b': b}}, images), jax.grad(loss, argnums=(0, 1))(images, w)

    actual, (images_gradient, kernel_gradient) = jax.jit(functools.partial(run, ours.apply))(
      w, b.reshape(shapes['b'].shape)
    )
    with jax.numpy_rank_promotion('allow'):  # Haiku adds its bias with it.
      expected, expected_gradients = jax.jit(functools.partial(run, theirs.apply))(orient(w), b)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(images_gradient, expected_gradients[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(orient(kernel_gradient), expected_gradients[1], rtol=1e-4, atol=1e-4)


if __name__ == '__main__':
  absltest.main()
