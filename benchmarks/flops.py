"""Floating point operations (FLOP) of LAMBDA's update, counted from the shapes of its weights.

Products of matrices and convolutions count, a multiplication and its addition as 2; what is done once for each number
(activations, noise, losses, Adam) doesn't. Products with zeros don't count either, those of padding or of a transposed
convolution's gaps: these are the operations that have to be done, however a layer is written.

The gradient of a layer costs twice its forward pass, once for its inputs and once for its weights. Where one of the two
is not needed, it is not counted.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lambda_kit import core

# Modules of the world model that each step of imagination, and each imagined state, needs.
_DYNAMICS = ('dynamics',)
_HEADS = ('reward', 'cost', 'terminal')
_DECODER = ('decoder',)


def dense(rows: int, weights: tuple[int, ...]) -> int:
  """A product of [rows, I] and weights [I, O]; or C such products, with weights [C, I, O]."""
  return 2 * rows * int(np.prod(weights))


def conv(images: int, kernel: tuple[int, ...], size: int, stride: int) -> tuple[int, int]:
  """A convolution without padding of `images` images of size x size pixels, with a kernel [k, k, I, O].

  Returns:
    FLOP, and the size of the result.
  """
  size = (size - kernel[0]) // stride + 1
  return 2 * images * size**2 * int(np.prod(kernel)), size


def conv_transpose(images: int, kernel: tuple[int, ...], size: int, stride: int) -> tuple[int, int]:
  """The transpose of `conv`, with a kernel [k, k, O, I]: each pixel adds a multiple of the kernel to the result.

  Returns:
    FLOP, and the size of the result.
  """
  return 2 * images * size**2 * int(np.prod(kernel)), (size - 1) * stride + kernel[0]


def layers(params: core.Params, rows: int, image_size: int = 0, stride: int = 2) -> dict[str, int]:
  """The forward pass of each layer, by the name of its Haiku module.

  Args:
    params: Parameters or their shapes. Layers are matrices, or stacks of them (see `dense`), or convolutions 'conv_i'
      and 'conv_transpose_i', of which the first meet images of `image_size` pixels and of one pixel.
    rows: Inputs of each network.
    image_size: Height and width of images.
    stride: Of all convolutions.
  """
  result = {}
  size, transposed_size = image_size, 1
  for name, module in sorted(params.items()):
    if 'w' not in module:
      continue
    weights, layer = module['w'].shape, name.split('/')[-1]
    if layer.startswith('conv_transpose_'):
      result[name], transposed_size = conv_transpose(rows, weights, transposed_size, stride)
    elif layer.startswith('conv_'):
      result[name], size = conv(rows, weights, size, stride)
    else:
      result[name] = dense(rows, weights)
  return result


def training(params: core.Params, rows: int, image_size: int = 0) -> int:
  """Forward pass and gradient of a network's weights: three times the forward pass.

  Less the gradients of data, which nobody asks for: in a model, of the layers that observations and actions meet; in a
  policy or a critic, of the first.
  """
  return sum((2 if _sees_data(name) else 3) * count for name, count in layers(params, rows, image_size).items())


def learner(
  model: core.Params,
  policy: core.Params,
  critic: core.Params,
  cost_critics: core.Params,
  image_size: int,
  num_states: int,
  num_decoded: int,
  num_overshot: int,
  num_starts: int,
  num_samples: int,
  horizon: int,
  num_columns: int,
) -> dict[str, int]:
  """One update of LAMBDA with the recurrent world model, by its pieces.

  The gradient of the policy flows through all N imagined trajectories, as `WholeGradient` has it. `SelectedGradient`
  takes fewer operations for the same result, and is measured by these all the same.

  Args:
    model, policy, critic, cost_critics: Parameters or their shapes.
    image_size: Height and width of images, 0 without.
    num_states: B L.
    num_decoded: States whose observations are decoded, B L or fewer.
    num_overshot: States that the model imagines in its own training, B J M.
    num_starts: Start states of imagination.
    num_samples: N.
    horizon: H.
    num_columns: K, those that a sample of the posterior combines; 0 for posteriors other than SWAG.

  Returns:
    `model`: update; `sampling`: of N models; `imagination`: forward, with values; `policy_gradient`: forward and
    backward, and the critics' targets; `critics`: update; and `update`, all of it.
  """
  imagined = num_samples * horizon * num_starts
  selected, decoder = _modules(model, _DYNAMICS + _HEADS), _modules(model, _DECODER)
  others = {name: module for name, module in model.items() if name not in decoder}
  forward = lambda params: sum(layers(params, imagined).values())
  fixed = forward(selected) + forward(critic) + forward(cost_critics)
  # Of the trajectories that the bounds selected: each cost has its own, and all C target critics value them.
  valued = lambda params: sum(layers(params, horizon * num_starts).values())
  num_costs = next((module['w'].shape[0] for module in cost_critics.values() if 'w' in module), 0)
  targets = valued(critic) + num_costs * valued(cost_critics)
  pieces = dict(
    model=(
      training(others, num_states, image_size)
      + training(decoder, num_decoded, image_size)
      + training(selected, num_overshot)
    ),
    sampling=2
    * num_samples
    * num_columns
    * sum(int(np.prod(array.shape)) for module in selected.values() for array in module.values()),
    imagination=fixed + forward(policy),
    # Model and critics are given: of their layers, only the inputs have gradients.
    policy_gradient=2 * fixed + training(policy, imagined) + targets,
    critics=training(critic, horizon * num_starts) + training(cost_critics, horizon * num_starts),
  )
  return dict(pieces, update=sum(count for name, count in pieces.items() if name != 'imagination'))


def _modules(params: core.Params, names: tuple[str, ...]) -> Mapping[str, Any]:
  return {name: module for name, module in params.items() if name.split('/')[0] in names}


def _sees_data(name: str) -> bool:
  """By name: the model's heads, decoder and prior begin with states, which do have gradients."""
  path = name.split('/')
  if path[0] == 'dynamics':
    return path[-1] == 'action'
  return path[-1] == 'linear_0' or (path[0] == 'encoder' and path[-1].endswith('_0'))
