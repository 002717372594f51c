"""Learners of tiny size, for the tests of benchmarks.

Vectors are those of the built-in CMDP: tests that let it run and tests that don't compile the same update, once.
"""

import dataclasses
import pathlib

from benchmarks import stand_ins

ROOT = [str(pathlib.Path(__file__).resolve().parents[2])]
VECTORS = stand_ins.Size(
  ('gin/tasks/grid.gin',),
  {'vector': (2,)},
  (
    'WIDTH = 16',
    'LambdaAgent.batch_size = 2',
    'LambdaAgent.num_start_states = 5',
    'LambdaAgent.num_samples = 3',
    'LambdaAgent.horizon = 4',
    'EpisodeBuffer.sequence_length = 6',
    'Swag.num_models = 2',
  ),
)
IMAGES = dataclasses.replace(
  VECTORS,
  observations={'image': (16, 16, 3)},
  bindings=(
    *VECTORS.bindings,
    'ImageEncoder.kernels = (4, 4)',
    'ImageDecoder.kernels = (6, 6)',
    'ImageEncoder.depth = 2',
    'ImageDecoder.depth = 2',
    'ImageDecoder.dense_size = 8',
  ),
)
