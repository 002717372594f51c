"""What is compared with has to give the same results."""

import jax
import numpy as np
import pytest

from lambda_kit.benchmarks import plain
from lambda_kit.models import convolutions


@pytest.mark.parametrize('name, size', [('conv', 4), ('conv_transpose', 5), ('conv_transpose', 6)])
def test_plain_convolutions_are_the_same(name, size):
  images = jax.random.normal(jax.random.key(0), (2, 8, 8, 3))
  kernel = jax.random.normal(jax.random.key(1), (size, size, 3, 3))
  run = lambda: jax.vjp(lambda *inputs: getattr(convolutions, name)(*inputs, 2), images, kernel)
  ours = getattr(convolutions, name)
  expected, vjp = run()
  with plain.convolutions_of_jax():
    assert getattr(convolutions, name) is not ours
    actual, plain_vjp = run()
  assert getattr(convolutions, name) is ours
  for x, y in zip((actual, *plain_vjp(expected)), (expected, *vjp(expected))):
    np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-3)
