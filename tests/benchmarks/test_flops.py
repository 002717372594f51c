"""Formulas beside what XLA counts for single layers. `test_learner_speed` has whole updates."""

import haiku as hk
import jax
import jax.numpy as jnp
import pytest

from benchmarks import flops
from lambda_kit.models import networks
from lambda_kit.models import rssm

_LAYOUT = ('NHWC', 'HWIO', 'NHWC')


def _arrays(*shapes):
  return [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]


def _xla_flops(function, *arguments):
  return jax.jit(function).lower(*arguments).compile().cost_analysis()['flops']


def test_dense():
  assert flops.dense(8, (16, 32)) == 2 * 8 * 16 * 32 == _xla_flops(jnp.matmul, *_arrays((8, 16), (16, 32)))
  assert flops.dense(8, (3, 16, 32)) == 3 * flops.dense(8, (16, 32))


@pytest.mark.parametrize('size, kernel, stride', [(16, 4, 2), (31, 4, 2), (12, 3, 1)])
def test_conv(size, kernel, stride):
  convolve = lambda images, weights: jax.lax.conv_general_dilated(
    images, weights, (stride, stride), 'VALID', dimension_numbers=_LAYOUT
  )
  arguments = _arrays((2, size, size, 3), (kernel, kernel, 3, 8))
  count, new_size = flops.conv(2, (kernel, kernel, 3, 8), size, stride)
  assert count == _xla_flops(convolve, *arguments)
  assert jax.eval_shape(convolve, *arguments).shape == (2, new_size, new_size, 8)


@pytest.mark.parametrize('size, kernel, stride', [(5, 5, 2), (13, 6, 2), (4, 3, 1)])
def test_conv_transpose(size, kernel, stride):
  """XLA leaves out products with the zeros between pixels and around them, as the formula does."""
  convolve = lambda images, weights: jax.lax.conv_transpose(
    images, weights, (stride, stride), 'VALID', dimension_numbers=_LAYOUT
  )
  arguments = _arrays((2, size, size, 8), (kernel, kernel, 8, 3))
  count, new_size = flops.conv_transpose(2, (kernel, kernel, 3, 8), size, stride)
  assert count == _xla_flops(convolve, *arguments)
  assert jax.eval_shape(convolve, *arguments).shape == (2, new_size, new_size, 3)


@pytest.mark.parametrize(
  'make, shapes, expected',
  [
    # 64 rows: 32 x 128 + 128 x 128 + 128 x 16 weights.
    (lambda: networks.Mlp(16, (128, 128)), [(64, 32)], 2 * 64 * 22_528),
    # Three gates of 128 units, from 96 inputs and 128 units.
    (lambda: rssm.GruCell(128), [(64, 96), (64, 128)], 2 * 64 * 3 * 128 * (96 + 128)),
  ],
)
def test_networks(make, shapes, expected):
  network = hk.without_apply_rng(hk.transform(lambda *inputs: make()(*inputs)))
  inputs = _arrays(*shapes)
  params = jax.eval_shape(network.init, jax.random.PRNGKey(0), *inputs)
  assert sum(flops.layers(params, rows=64).values()) == expected
  # XLA counts biases and activations, too: a few operations for each unit, against hundreds of weights.
  assert expected < _xla_flops(network.apply, params, *inputs) < 1.05 * expected


def test_parts_of_sequences_take_parts_of_the_model():
  weights = lambda *shape: {'w': jax.ShapeDtypeStruct(shape, jnp.float32)}
  model = {'encoder/linear_0': weights(4, 8), 'dynamics/prior': weights(8, 8), 'decoder/linear': weights(8, 4)}
  count = lambda num_decoded, num_overshot: flops.learner(
    model,
    {},
    {},
    {},
    image_size=0,
    num_states=10,
    num_decoded=num_decoded,
    num_overshot=num_overshot,
    num_starts=1,
    num_samples=1,
    horizon=1,
    num_columns=0,
  )['model']
  # 2 x 10 x (2 x 32 + 3 x 64), 2 x 3 x 32 for each decoded state, and 2 x 3 x 64 for each that is imagined.
  assert [count(10, 0), count(3, 0), count(3, 5)] == [5_120 + 1_920, 5_120 + 576, 5_120 + 576 + 1_920]


def test_training_is_three_times_the_forward_pass_less_the_gradients_of_data():
  network = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP((32, 64), with_bias=False, activation=abs)(x)))
  (inputs,) = _arrays((128, 16))
  params = jax.eval_shape(network.init, jax.random.PRNGKey(0), inputs)
  count = flops.training(params, rows=128)
  assert count == 2 * 128 * (2 * 16 * 32 + 3 * 32 * 64)
  gradient = jax.grad(lambda params, x: jnp.sum(network.apply(params, x) ** 2))
  assert count < _xla_flops(gradient, params, inputs) < 1.05 * count
