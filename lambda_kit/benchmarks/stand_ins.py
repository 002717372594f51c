"""Agents that gin files describe, with observations and episodes of random numbers instead of a simulator's."""

from typing import Any, Sequence

import gin
import numpy as np

from lambda_kit import core
from lambda_kit import types
from lambda_kit.benchmarks import learner_pieces
from lambda_kit.experiments import configuration
from lambda_kit.replay import episodes


def make_agent(size: learner_pieces.Size, search_paths: Sequence[str]) -> tuple[Any, core.Environment]:
  """The agent of a size, and an environment that has nothing but specs.

  Args:
    size: What to build.
    search_paths: Folders where gin files are looked up.
  """
  configuration.parse(size.gin_files, size.bindings, search_paths)
  return gin.get_configurable('LambdaAgent')(), learner_pieces.SpecEnvironment(size)


def random_observations(environment: core.Environment, leading: tuple[int, ...],
                        rng: np.random.Generator) -> types.Observation:
  """Observations [*leading, ...]: bytes for images, normal numbers for all else."""
  return {name: rng.integers(0, 256, (*leading, *spec.shape), np.uint8) if spec.dtype == np.uint8
          else rng.standard_normal((*leading, *spec.shape), np.float32)
          for name, spec in environment.observation_spec().items()}


def random_episode(environment: core.Environment, num_steps: int, rng: np.random.Generator) -> episodes.Episode:
  """An episode of `num_steps` agent steps that ends by its time limit."""
  moments = num_steps + 1
  normal = lambda *shape: rng.standard_normal((moments, *shape), np.float32)
  return episodes.Episode(
      observation=random_observations(environment, (moments,), rng),
      action=np.tanh(normal(*environment.action_spec().shape)),
      reward=normal(),
      cost=(normal(len(environment.constraint_names)) > 1).astype(np.float32),
      terminal=np.zeros((moments,), np.float32))
