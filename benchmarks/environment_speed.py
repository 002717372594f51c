"""How fast the Safety-Gymnasium tasks are, beside safety-gymnasium itself and beside the least possible work."""

from collections.abc import Callable
import os
from typing import Any

import numpy as np

from benchmarks import contenders
from lambda_kit.environments import episodic
from lambda_kit.environments import opengl
from lambda_kit.environments.safety_gym import environment as environment_lib
from lambda_kit.environments.safety_gym import making

_ACTION_REPEAT = 2
_IMAGE_SIZE = 64


def measure(task: str, rounds: int, agent_steps: int = 500) -> dict[str, Any]:
  """Times episodes of `agent_steps` agent steps, their reset included, with uniformly random actions.

  Images: action repeat 2, one 64x64 picture for each agent step. safety-gymnasium's own vision task, set to 64x64, is
  stepped twice for each agent step. Vectors: no action repeat.
  """
  common = dict(task=task, steps=agent_steps)
  images = contenders.take_turns(
    {'theirs': (reference_images, common), 'ours': (our_images, common), 'floor': (bare_images, common)}, rounds
  )
  vectors = contenders.take_turns(
    {'theirs': (reference_vectors, common), 'ours': (our_vectors, common), 'floor': (bare_vectors, common)}, rounds
  )
  resets = contenders.take_turns(
    {'theirs': (reference_resets, dict(task=task)), 'ours': (our_resets, dict(task=task))}, rounds
  )
  return dict(task=task, rounds=rounds, images=_summary(images), vectors=_summary(vectors), resets=_summary(resets))


def _summary(times: dict[str, np.ndarray]) -> dict[str, float]:
  result = {f'{name}_ms': float(np.median(values) * 1e3) for name, values in times.items()}
  result['times_faster'] = contenders.ratio(times['theirs'], times['ours'])
  if 'floor' in times:
    result['times_floor'] = contenders.ratio(times['ours'], times['floor'])
  return result


def reference_images(task: str, steps: int) -> Callable[[int], int]:
  os.environ['LP_NUM_THREADS'] = str(os.cpu_count())  # The driver's own default, which users of it have.
  environment: Any = making.make(task.replace('-v', 'Vision-v'))
  environment.unwrapped.task.vision_env_conf.vision_size = (_IMAGE_SIZE, _IMAGE_SIZE)
  environment.unwrapped.task.build_observation_space()

  def episode(seed: int) -> int:
    environment.reset(seed=episodic.episode_seed(0, seed))
    for action in _actions(seed, environment.action_space.shape, steps):
      for _ in range(_ACTION_REPEAT):
        environment.step(action)
    return steps

  return episode


def reference_vectors(task: str, steps: int) -> Callable[[int], int]:
  environment: Any = making.make(task)

  def episode(seed: int) -> int:
    environment.reset(seed=episodic.episode_seed(0, seed))
    for action in _actions(seed, environment.action_space.shape, _ACTION_REPEAT * steps):
      environment.step(action)
    return _ACTION_REPEAT * steps

  return episode


def reference_resets(task: str) -> Callable[[int], int]:
  environment: Any = making.make(task)

  def reset(seed: int) -> int:
    environment.reset(seed=episodic.episode_seed(0, seed))
    return 1

  return reset


def our_images(task: str, steps: int) -> Callable[[int], int]:
  environment = environment_lib.SafetyGymnasium(0, task, observations=('image',), image_size=_IMAGE_SIZE)
  return _our_episode(environment, steps, _ACTION_REPEAT)


def our_vectors(task: str, steps: int) -> Callable[[int], int]:
  environment = environment_lib.SafetyGymnasium(0, task, observations=('vector',))
  return _our_episode(environment, _ACTION_REPEAT * steps, 1)


def our_resets(task: str) -> Callable[[int], int]:
  environment = environment_lib.SafetyGymnasium(0, task, observations=('vector',))

  def reset(seed: int) -> int:
    environment.next_episode = seed
    environment.reset()
    return 1

  return reset


def _our_episode(environment: environment_lib.SafetyGymnasium, steps: int, repeat: int) -> Callable[[int], int]:
  def episode(seed: int) -> int:
    environment.next_episode = seed
    environment.reset()
    for action in _actions(seed, environment.action_spec().shape, steps):
      environment.step_many(action, repeat)
    return steps

  return episode


def bare_images(task: str, steps: int) -> Callable[[int], int]:
  """Physics and drawing alone: what is left if everything else were free."""
  mujoco = opengl.import_mujoco()
  environment = environment_lib.SafetyGymnasium(0, task, observations=('image',), image_size=_IMAGE_SIZE)

  def episode(seed: int) -> int:
    environment.next_episode = seed
    environment.reset()
    camera = environment._camera(_IMAGE_SIZE, _IMAGE_SIZE)
    model, data = environment._task.model, environment._task.data
    for action in _actions(seed, environment.action_spec().shape, steps):
      data.ctrl[:] = action
      mujoco.mj_step(model, data, nstep=10 * _ACTION_REPEAT)
      camera.render(data)
    return steps

  return episode


def bare_vectors(task: str, steps: int) -> Callable[[int], int]:
  """Physics alone."""
  mujoco = opengl.import_mujoco()
  environment = environment_lib.SafetyGymnasium(0, task, observations=('vector',))

  def episode(seed: int) -> int:
    environment.next_episode = seed
    environment.reset()
    model, data = environment._task.model, environment._task.data
    for action in _actions(seed, environment.action_spec().shape, _ACTION_REPEAT * steps):
      data.ctrl[:] = action
      mujoco.mj_step(model, data, nstep=10)
    return _ACTION_REPEAT * steps

  return episode


def _actions(seed: int, shape: tuple[int, ...], count: int) -> np.ndarray:
  return np.random.default_rng(seed).uniform(-1, 1, (count, *shape))
