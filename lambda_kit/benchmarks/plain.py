"""Convolutions as JAX has them, for comparison with those of `models.convolutions`, which give the same results."""

from collections.abc import Iterator
import contextlib
from unittest import mock

import jax

from lambda_kit import types
from lambda_kit.models import convolutions

_LAYOUT = ('NHWC', 'HWIO', 'NHWC')


@contextlib.contextmanager
def convolutions_of_jax() -> Iterator[None]:
  """Models that are traced in this context have JAX's own strided and transposed convolutions, and their gradients."""
  with mock.patch.multiple(convolutions, conv=_conv, conv_transpose=_conv_transpose):
    yield


def _conv(images: types.Array, kernel: types.Array, stride: int) -> types.Array:
  """See `convolutions.conv`."""
  return jax.lax.conv_general_dilated(images, kernel, (stride, stride), 'VALID', dimension_numbers=_LAYOUT)


def _conv_transpose(images: types.Array, kernel: types.Array, stride: int) -> types.Array:
  """See `convolutions.conv_transpose`."""
  return jax.lax.conv_transpose(
    images, kernel, (stride, stride), 'VALID', dimension_numbers=_LAYOUT, transpose_kernel=True
  )
