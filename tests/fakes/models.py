"""Batches for the tests of models, and a tiny world model."""

from collections.abc import Mapping
import functools
from typing import Any

from dm_env import specs
import jax
import numpy as np

from lambda_kit import types
from lambda_kit.environments import grid_cmdp
from lambda_kit.models import decoders
from lambda_kit.models import encoders
from lambda_kit.models import heads
from lambda_kit.models import world_model

ACTION_SPEC = specs.BoundedArray((2,), np.float32, -1.0, 1.0, name='action')
IMAGE = specs.BoundedArray((16, 16, 3), np.uint8, 0, 255, name='image')
VECTOR = specs.Array((5,), np.float32, name='vector')


def make_model(
  observation_spec: Mapping[str, Any], num_constraints: int = 2, action_repeat: int = 1, **options
) -> world_model.RecurrentWorldModel:
  """A tiny model: 3 stochastic and 4 deterministic variables."""
  small = functools.partial
  settings = {
    'encoder_factory': small(
      encoders.ObservationEncoder,
      small(encoders.ImageEncoder, depth=2, kernels=(4, 4)),
      small(encoders.VectorEncoder, hidden_sizes=(8,)),
    ),
    'decoder_factory': small(
      decoders.ObservationDecoder,
      image_factory=small(decoders.ImageDecoder, depth=2, dense_size=8, kernels=(6, 6)),
      vector_factory=small(decoders.VectorDecoder, hidden_sizes=(8,)),
    ),
    'reward_factory': small(heads.NormalHead, hidden_sizes=(8,)),
    'cost_factory': small(heads.BernoulliCost, hidden_sizes=(8,)),
    'terminal_factory': small(heads.BernoulliHead, hidden_sizes=(8,)),
    'stochastic_size': 3,
    'deterministic_size': 4,
    'hidden_size': 5,
  }
  return world_model.RecurrentWorldModel(
    observation_spec, ACTION_SPEC, num_constraints, action_repeat, **{**settings, **options}
  )


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
    timesteps = [(timestep.observation, np.zeros(2, np.float32), *zeros, np.float32(0.0))]
    while not timestep.last():
      action = rng.uniform(-1.0, 1.0, 2).astype(np.float32)
      timestep = environment.step(action)
      timesteps.append((timestep.observation, action, *timestep.reward, np.float32(1.0 - timestep.discount)))
    episodes.append(types.Trajectory(*jax.tree.map(lambda *x: np.stack(x), *timesteps)))
  return jax.tree.map(lambda *x: np.stack(x), *episodes)
