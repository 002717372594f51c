"""Random data in the shapes of an environment, for dry runs."""

from collections.abc import Mapping

import dm_env
from dm_env import specs
import numpy as np

from lambda_kit import core
from lambda_kit import types


def observations(
  observation_specs: Mapping[str, specs.Array], leading: tuple[int, ...], rng: np.random.Generator
) -> types.Observation:
  """Returns observations [*leading, ...]: uniform bytes for images, standard normal numbers otherwise."""
  return {
    name: rng.integers(0, 256, (*leading, *spec.shape), np.uint8)
    if spec.dtype == np.uint8
    else rng.standard_normal((*leading, *spec.shape), np.float32)
    for name, spec in observation_specs.items()
  }


def add_episode(adder: core.Adder, spec: core.EnvironmentSpec, num_steps: int, rng: np.random.Generator) -> None:
  """Adds an episode of `num_steps` agent steps, which ends by a time limit."""
  observe = lambda: observations(spec.observations, (), rng)
  adder.add_first(dm_env.restart(observe()))
  for step in range(1, num_steps + 1):
    reward = types.CmdpReward(
      np.float32(rng.standard_normal()), rng.integers(0, 2, spec.num_constraints).astype(np.float32)
    )
    kind = dm_env.StepType.LAST if step == num_steps else dm_env.StepType.MID
    adder.add(_actions(spec, (), rng), dm_env.TimeStep(kind, reward, 1.0, observe()))


def rollout(
  spec: core.EnvironmentSpec, num_steps: int, num_environments: int, episode_steps: int, rng: np.random.Generator
) -> types.Rollout:
  """Returns an epoch [T, k, ...] with episodes of `episode_steps`."""
  leading = (num_steps, num_environments)
  is_last = np.zeros(leading, bool)
  is_last[episode_steps - 1 :: episode_steps] = True
  is_last[-1] = True
  return types.Rollout(
    observation=observations(spec.observations, leading, rng),
    action=_actions(spec, leading, rng),
    reward=rng.standard_normal(leading, np.float32),
    cost=rng.integers(0, 2, (*leading, spec.num_constraints)).astype(np.float32),
    discount=np.ones(leading, np.float32),
    next_observation=observations(spec.observations, leading, rng),
    is_last=is_last,
    weight=np.ones(leading, np.float32),
    cost_return=np.full(spec.num_constraints, 0.5 * episode_steps, np.float32),
    episode_length=np.asarray(episode_steps, np.float32),
  )


def _actions(spec: core.EnvironmentSpec, leading: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
  actions = spec.actions
  return rng.uniform(actions.minimum, actions.maximum, (*leading, *actions.shape)).astype(np.float32)
