"""The measurement at tiny sizes; `launchers/benchmark.py --parts=learner` runs it at those of use."""

import dataclasses
import math
import pathlib

import jax
import numpy as np
import pytest

from benchmarks import learner_pieces
from benchmarks import learner_speed
from benchmarks import stand_ins

_ROOT = [str(pathlib.Path(__file__).resolve().parents[2])]
_VECTORS = stand_ins.Size(
  ('gin/tasks/grid.gin',),
  {'vector': (7,)},
  (
    'WIDTH = 16',
    'LambdaAgent.batch_size = 2',
    'LambdaAgent.num_start_states = 5',
    'LambdaAgent.num_samples = 3',
    'LambdaAgent.horizon = 4',
    'LambdaAgent.policy_gradient = @WholeGradient()',
    'EpisodeBuffer.sequence_length = 6',
    'Swag.num_models = 2',
  ),
  num_constraints=2,
)
_IMAGES = dataclasses.replace(
  _VECTORS,
  observations={'image': (16, 16, 3)},
  bindings=(
    *_VECTORS.bindings,
    'ImageEncoder.kernels = (4, 4)',
    'ImageDecoder.kernels = (6, 6)',
    'ImageEncoder.depth = 2',
    'ImageDecoder.depth = 2',
    'ImageDecoder.dense_size = 8',
  ),
)


def _traced_flop(jaxpr):
  """FLOP of all products of matrices and convolutions in a program, those of loops as often as they run."""
  total = 0
  for equation in jaxpr.eqns:
    name, params = equation.primitive.name, equation.params
    inner = [
      _traced_flop(leaf.jaxpr if hasattr(leaf, 'jaxpr') else leaf)
      for leaf in jax.tree.leaves(list(params.values()), is_leaf=lambda x: hasattr(x, 'eqns'))
      if hasattr(leaf, 'eqns')
    ]
    if name == 'dot_general':
      (contracted, _), _ = params['dimension_numbers']
      left, output = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
      total += 2 * math.prod(output) * math.prod(left[axis] for axis in contracted)
    elif inner:
      total += max(inner) if name == 'cond' else sum(inner) * params.get('length', 1)
  return total


def _flop_of(function, arguments):
  return _traced_flop(jax.make_jaxpr(function)(*arguments).jaxpr)


@pytest.fixture(scope='module')
def subject():
  return learner_pieces.make_subject(_VECTORS, _ROOT)


def test_flop_are_those_of_the_traced_update(subject):
  assert _flop_of(subject.update, (subject.state, subject.batch)) == subject.flop
  for name, piece in subject.pieces(subject.state).items():
    assert _flop_of(piece.function, piece.arguments) == piece.flop, name


def test_data_have_the_shapes_that_gin_says(subject):
  assert subject.batch.observation['vector'].shape == (2, 6, 7)
  assert subject.batch.cost.shape == (2, 6, 2)
  samples = subject.pieces(subject.state)['imagination with values'].arguments[1]
  assert samples['dynamics/~/gru/~/recurrent']['w'].shape == (3, 16, 48)


def _check_ratios(row, result):
  for kind in ('', 'cpu_'):
    floor = row['flop'] / result[f'gemm_flop_per_{kind}second']
    assert row[f'{kind}seconds'] > 0
    assert row[f'{kind}floor_ratio'] == pytest.approx(floor / row[f'{kind}seconds'])


@pytest.mark.slow
def test_the_figures_fit_together():
  result = learner_speed.measure_here(_VECTORS, _ROOT, updates=1, split=False)
  _check_ratios(result, result)
  # The state is donated, and comes out again beside the metrics.
  assert 0 < result['donated_bytes'] <= min(result['argument_bytes'], result['output_bytes'])
  assert result['peak_rss_bytes'] > result['argument_bytes'] + result['temporary_bytes']
  assert result['cached_compile_seconds'] < result['trace_seconds'] + result['compile_seconds']


@pytest.mark.slow
def test_a_piece_that_carries_its_state_runs_again_and_again(subject):
  pieces = subject.pieces(subject.state)
  for name in ('critics', 'optimisers of policy and critics'):
    figures = learner_speed.measure_piece(pieces[name], rounds=2, rates=np.array([1e9, 5e8]))
    _check_ratios(figures, dict(gemm_flop_per_second=1e9, gemm_flop_per_cpu_second=5e8))


@pytest.mark.slow
def test_images_in_a_process_of_their_own():
  result = learner_speed.measure(_IMAGES, _ROOT, updates=1, split=True)
  assert result['compile_seconds'] > 0.5  # Nothing was cached.
  for row in result['pieces'].values():
    _check_ratios(row, result)
