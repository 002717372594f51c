"""Agents that gin files describe, with observations and episodes of random numbers instead of a simulator's."""

from collections.abc import Mapping, Sequence
import dataclasses

from dm_env import specs
import numpy as np

import gin
from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit import core
from lambda_kit import types
from lambda_kit.config import configuration
from lambda_kit.environments import spec as spec_lib
from lambda_kit.replay import episodes
from lambda_kit.training import made_up


@dataclasses.dataclass(frozen=True)
class Size:
  """What is measured: gin files with bindings on top, and the shapes of the data."""

  gin_files: Sequence[str]
  observations: Mapping[str, tuple[int, ...]]  # Of 'image', 'vector' or both.
  bindings: Sequence[str] = ()
  num_constraints: int = 1  # C


SIZES = {
  # The paper's: B = 32, L = 50, H = 15, N = 5, all 1,600 start states.
  'paper_images': Size(('gin/sg6_pointgoal1.gin',), {'image': (64, 64, 3)}),
  'paper_vectors': Size(('gin/sg6_pointgoal1.gin', 'gin/parts/observe_vector.gin'), {'vector': (60,)}),
  'bfloat16_vectors': Size(
    ('gin/sg6_pointgoal1.gin', 'gin/parts/observe_vector.gin', 'gin/run/bfloat16.gin'), {'vector': (60,)}
  ),
  'small': Size(
    ('gin/sg6_pointgoal1.gin', 'gin/parts/observe_vector.gin', 'gin/sizes/narrow.gin'),
    {'vector': (60,)},
    (
      'WIDTH = 200',
      'LambdaAgent.batch_size = 16',
      'LambdaAgent.num_start_states = 128',
      'LambdaAgent.num_samples = 5',
      'LambdaAgent.horizon = 15',
      'EpisodeBuffer.sequence_length = 32',
    ),
  ),
  # That of results from images on two cores; and the same with all observations decoded.
  'small_images': Size(('gin/sg6_pointgoal1.gin', 'gin/sizes/image_small.gin'), {'image': (64, 64, 3)}),
  'decoded_images': Size(
    ('gin/sg6_pointgoal1.gin', 'gin/sizes/image_small.gin'),
    {'image': (64, 64, 3)},
    ('RecurrentWorldModel.decoded_steps = None',),
  ),
}


class SpecEnvironment(core.Environment):
  """Has specs, and can't be stepped: it stands for a simulator where only shapes matter."""

  action_repeat = 2  # The paper's.
  episode_length = 1000
  next_episode = 0
  last_step_count = 0

  def __init__(self, size: Size):
    self._size = size

  @property
  def constraint_names(self) -> tuple[str, ...]:
    return tuple(f'cost_{i}' for i in range(self._size.num_constraints))

  def observation_spec(self) -> dict[str, specs.Array]:
    return {
      name: specs.BoundedArray(shape, np.uint8, 0, 255) if name == 'image' else specs.Array(shape, np.float32)
      for name, shape in self._size.observations.items()
    }

  def action_spec(self) -> specs.BoundedArray:
    return specs.BoundedArray((2,), np.float32, -1.0, 1.0)

  def reset(self):
    raise NotImplementedError('This environment has specs only.')

  def step(self, action):
    raise NotImplementedError('This environment has specs only.')

  def render(self, height: int = 256, width: int = 256):
    raise NotImplementedError('This environment has specs only.')


def make_builder(size: Size, search_paths: Sequence[str]) -> tuple[core.AgentBuilder, core.Environment]:
  """Builds the agent of a size, and an environment that has nothing but specs.

  Args:
    size: What to build.
    search_paths: Folders where gin files are looked up.
  """
  configuration.parse(size.gin_files, size.bindings, search_paths)
  environment = SpecEnvironment(size)
  return gin.get_configurable('LambdaAgent')().build(spec_lib.make_spec(environment, cost_limit=25.0)), environment


def random_observations(
  environment: core.Environment, leading: tuple[int, ...], rng: np.random.Generator
) -> types.Observation:
  """Observations [*leading, ...]: bytes for images, normal numbers for all else."""
  return made_up.observations(environment.observation_spec(), leading, rng)


def random_episode(environment: core.Environment, num_steps: int, rng: np.random.Generator) -> episodes.Episode:
  """An episode of `num_steps` agent steps that ends by its time limit."""
  moments = num_steps + 1
  normal = lambda *shape: rng.standard_normal((moments, *shape), np.float32)
  return episodes.Episode(
    observation=random_observations(environment, (moments,), rng),
    action=np.tanh(normal(*environment.action_spec().shape)),
    reward=normal(),
    cost=(normal(len(environment.constraint_names)) > 1).astype(np.float32),
    terminal=np.zeros((moments,), np.float32),
  )
