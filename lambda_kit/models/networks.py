"""The network that most parts of a model are made of."""

from collections.abc import Callable, Sequence

import haiku as hk

from lambda_kit import types
from lambda_kit.models import activations


def on_rows(network: Callable[[types.Array], types.Array], inputs: types.Array) -> types.Array:
  """Applies a network that maps [..., D] to [..., E] to all rows at once.

  The result is the same, and XLA's loops over activations of two axes are several times as fast on CPUs as over those
  of more.
  """
  if inputs.ndim <= 2:
    return network(inputs)
  outputs = network(inputs.reshape(-1, inputs.shape[-1]))
  return outputs.reshape(*inputs.shape[:-1], outputs.shape[-1])


class Mlp(hk.Module):
  """A multilayer perceptron on the last axis."""

  def __init__(
    self,
    output_size: int | None = None,
    hidden_sizes: Sequence[int] = (400, 400),
    activation: activations.Activation = activations.elu,
    name: str | None = None,
  ):
    """Makes the layers.

    Args:
      output_size: units of the last layer, which is linear. None: the last hidden layer is the output.
      hidden_sizes: units of the layers before it.
      activation: after each of these.
      name: of the module.
    """
    super().__init__(name=name)
    self._hidden = [hk.Linear(size, name=f'hidden_{i}') for i, size in enumerate(hidden_sizes)]
    self._output = None if output_size is None else hk.Linear(output_size, name='output')
    self._activation = activation

  def __call__(self, inputs: types.Array) -> types.Array:
    """Maps [..., D] to [..., output_size]."""
    return on_rows(self._on_rows, inputs)

  def _on_rows(self, inputs: types.Array) -> types.Array:
    for layer in self._hidden:
      inputs = self._activation(layer(inputs))
    return inputs if self._output is None else self._output(inputs)
