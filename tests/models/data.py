"""Batches for the tests of models."""

from collections.abc import Mapping
from typing import Any

from dm_env import specs
import jax
import numpy as np

from lambda_kit import types
from lambda_kit.environments import grid_cmdp

ACTION_SPEC = specs.BoundedArray((2,), np.float32, -1.0, 1.0, name='action')
IMAGE = specs.BoundedArray((16, 16, 3), np.uint8, 0, 255, name='image')
VECTOR = specs.Array((5,), np.float32, name='vector')


def random_batch(
  observation_spec: Mapping[str, Any], batch_size: int, length: int, num_constraints: int = 1, seed: int = 0
) -> types.Trajectory:
  """A batch without any meaning."""
  rng = np.random.default_rng(seed)
  leading = (batch_size, length)
  observation = {}
  for name, spec in observation_spec.items():
    if spec.dtype == np.uint8:
      observation[name] = rng.integers(0, 256, leading + spec.shape, np.uint8)
    else:
      observation[name] = rng.normal(size=leading + spec.shape).astype(np.float32)
  return types.Trajectory(
    observation=observation,
    action=rng.uniform(-1.0, 1.0, leading + ACTION_SPEC.shape).astype(np.float32),
    reward=rng.normal(size=leading).astype(np.float32),
    cost=(rng.random(leading + (num_constraints,)) < 0.3).astype(np.float32),
    terminal=(rng.random(leading) < 0.1).astype(np.float32),
  )


def grid_episodes(num_episodes: int, seed: int, **kwargs) -> types.Trajectory:
  """Episodes of the built-in CMDP under uniformly random actions, [num_episodes, T + 1, ...]."""
  environment = grid_cmdp.GridCmdp(seed=seed, **kwargs)
  rng = np.random.default_rng(seed)
  zeros = types.CmdpReward(np.float32(0.0), np.zeros(len(environment.constraint_names), np.float32))
  episodes = []
  for _ in range(num_episodes):
    timestep = environment.reset()
    moments = [(timestep.observation, np.zeros(2, np.float32), *zeros, np.float32(0.0))]
    while not timestep.last():
      action = rng.uniform(-1.0, 1.0, 2).astype(np.float32)
      timestep = environment.step(action)
      moments.append((timestep.observation, action, *timestep.reward, np.float32(1.0 - timestep.discount)))
    episodes.append(types.Trajectory(*jax.tree.map(lambda *x: np.stack(x), *moments)))
  return jax.tree.map(lambda *x: np.stack(x), *episodes)
