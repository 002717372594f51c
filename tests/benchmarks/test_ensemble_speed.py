"""The benchmark of the ensemble, at tiny size."""

import dataclasses

import pytest

from benchmarks import ensemble_speed
from tests.benchmarks import tiny_sizes


@pytest.mark.slow
@pytest.mark.parametrize('piece', ['update', 'model'])
def test_it_runs(piece):
  bindings = [binding for binding in tiny_sizes.VECTORS.bindings if not binding.startswith('Swag')]
  size = dataclasses.replace(tiny_sizes.VECTORS, bindings=(*bindings, 'LambdaAgent.posterior_factory = @Ensemble'))
  assert ensemble_speed.prepare(size, tiny_sizes.ROOT, piece, updates=2)(0) == 2
