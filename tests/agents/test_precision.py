"""Mixed precision: which products are in bfloat16, and that nothing else is."""

import re

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.agents.lambda_ import networks as networks_lib
from lambda_kit.agents.lambda_ import precision
from lambda_kit.models import convolutions
from tests.fakes import models as fakes
from tests.fakes import tiny

_BFLOAT16 = 'params=float32,compute=bfloat16,output=float32'
_POLICY = precision.get_policy(_BFLOAT16)
_ROUNDING = 2.0**-8  # The largest relative error of rounding to the 8 significant bits of bfloat16.


def _update_program(parts):
  """The text of the learner's update."""
  batch = networks_lib.example_batch(parts.spec)
  return parts.learner._update.lower(parts.learner.save(), batch).as_text()


def _product_types(program):
  """The types of both factors and the result, for each matrix product and convolution."""
  lines = re.findall(r'stablehlo\.(?:dot_general|convolution).* : (\(.*\) -> .*)', program)
  assert lines
  return [tuple(re.findall(r'(\w*f\d+)>', line.replace('x', ' '))) for line in lines]


@pytest.fixture(scope='module')
def both():
  """Agents in float32 and in bfloat16 with the same data."""
  return tiny.Parts(), tiny.Parts(precision=_BFLOAT16)


def test_float32_is_the_default_and_changes_nothing(both):
  float32, bfloat16 = both
  before = _update_program(float32)
  assert set(_product_types(before)) == {('f32', 'f32', 'f32')} and 'bf16' not in before
  _update_program(bfloat16)  # Its policies must not outlive it.
  assert _update_program(tiny.Parts(precision='float32')) == before
  plain = networks_lib.LambdaNetworks(*networks_lib.LambdaNetworks._fields)
  assert precision.apply_policy(plain, precision.get_policy('float32')) is plain


def test_all_products_of_layers_are_in_bfloat16(both):
  program = _update_program(both[1])
  types = _product_types(program)
  # One product is not that of a layer: SWAG's samples, which are combinations of snapshots of the parameters.
  assert types.count(('f32', 'f32', 'f32')) == 1
  assert types.count(('bf16', 'bf16', 'bf16')) == len(types) - 1
  assert 'f64' not in program and not re.search(r'\bf16|xf16', program)


@pytest.mark.slow
def test_a_few_updates_stay_close_to_float32(both):
  jax.tree.map(np.testing.assert_array_equal, *(parts.learner.save() for parts in both))
  expected, metrics = (parts.learner.step(3) for parts in both)
  assert all(np.isfinite(value) for value in metrics.values()), metrics
  # About 10 layers lie between data and losses, each with 3 roundings: of inputs, weights and output. Their signs are
  # random, so 30 of them add up to sqrt(30); a squared error is off by twice as much.
  for name in ('loss', 'kl', 'vector_log_prob', 'cost_log_prob', 'critic_loss', 'cost_critic_loss'):
    assert metrics[name] == pytest.approx(expected[name], rel=2 * np.sqrt(30) * _ROUNDING), name
    assert metrics[name] != expected[name], name


def test_what_is_learned_and_remembered_is_float32(both):
  batch = networks_lib.example_batch(both[0].spec)
  float32, bfloat16 = (jax.eval_shape(parts.learner._update, parts.learner.save(), batch) for parts in both)
  jax.tree.map(lambda x, y: np.testing.assert_equal(x.dtype, y.dtype), bfloat16, float32)
  both[1].actor.update()
  assert both[1].play().dtype == np.float32


def test_images_are_convolved_in_bfloat16():
  model = precision.model_under_policy(fakes.make_model({'image': fakes.IMAGE}, num_constraints=1), _POLICY)
  batch = fakes.random_batch({'image': fakes.IMAGE}, batch_size=2, length=3)
  key = jax.random.key(0)
  gradient = jax.jit(jax.value_and_grad(model.loss, has_aux=True))
  params = model.init(key, batch)
  assert set(_product_types(gradient.lower(params, batch, key).as_text())) == {('bf16', 'bf16', 'bf16')}
  output = jax.eval_shape(model.loss, params, batch, key)[1]
  member_loss = jax.jit(model.member_loss).lower(params, output, batch, key).as_text()
  assert set(_product_types(member_loss)) == {('bf16', 'bf16', 'bf16')}
  outputs = jax.tree.leaves(jax.eval_shape(gradient, params, batch, key))
  assert {output.dtype for output in outputs} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
  'layer,arguments',
  [
    (hk.Linear, (3,)),
    (hk.Conv2D, (3, 2)),
    (hk.Conv2DTranspose, (3, 2)),
    (convolutions.Conv, (3, 2, 2)),
    (convolutions.ConvTranspose, (3, 2, 2)),
  ],
)
def test_layers_round_and_nothing_worse(layer, arguments):
  assert layer in precision.LAYERS
  plain = hk.without_apply_rng(hk.transform(lambda x: layer(*arguments)(x)))
  rounded = hk.Transformed(*(precision.under_policy(function, _POLICY) for function in plain))
  inputs = jax.random.normal(jax.random.key(0), (2, 4, 4, 5))
  params = plain.init(jax.random.key(1), inputs)
  jax.tree.map(np.testing.assert_array_equal, rounded.init(jax.random.key(1), inputs), params)
  expected, outputs = plain.apply(params, inputs), rounded.apply(params, inputs)
  assert outputs.dtype == jnp.float32
  # Each term of a sum of products is off by the roundings of its two factors, the sum by those before and after the
  # bias is added. Sums themselves are taken in float32.
  magnitude = plain.apply(*jax.tree.map(jnp.abs, (params, inputs)))
  error = np.abs(outputs - expected)
  assert error.max() > 0 and np.all(error <= 1.02 * 4 * _ROUNDING * magnitude)


@pytest.mark.parametrize(
  'name,reason',
  [
    ('float23', 'read'),
    ('params=float32;compute=bfloat16', 'read'),
    ('speed=bfloat16', 'read'),
    (16, 'read'),
    ('bfloat16', 'parameters'),
    ('params=bfloat16,compute=bfloat16,output=float32', 'parameters'),
    ('compute=bfloat16', 'outputs'),
    ('float64', 'parameters'),
    ('compute=float16,output=float32', 'float16'),
    ('compute=float64,output=float32', 'compute in'),
  ],
)
def test_other_precisions_are_refused(name, reason):
  with pytest.raises(ValueError, match=reason) as error:
    tiny.make_agent(precision=name)
  message = str(error.value)
  assert message.startswith(f'LambdaAgent.precision = {name!r} is not supported') and _BFLOAT16 in message
