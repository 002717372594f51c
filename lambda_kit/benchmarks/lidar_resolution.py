"""Whether a network can tell costs from lidars, in layouts that it has not seen, with and without powers of readings.

A hazard costs from 0.2 m on. There a reading, which falls linearly from 1 to 0 over 3 m, is 0.93: one more number close
to 1 in a vector of 60, which small data sets don't tell apart from its neighbours. Episodes are driven to goals by
rule.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

from lambda_kit import core
from lambda_kit.environments import factory
from lambda_kit.environments.safety_gym import environment as environment_lib
from lambda_kit.models import activations

_NUM_SENSORS, _NUM_BINS = 12, 16  # Of Point, before the lidars; the goal's lidar is the first.
_WIDTHS = (200, 200, 200, 1)
_BATCH_SIZE = 512


def measure(
  powers: Sequence[float],
  num_train: int = 40,
  num_test: int = 20,
  updates: int = 700,
  episode_length: int = 1000,
  seeds: Sequence[int] = (0, 1, 2),
) -> dict[str, Any]:
  """Trains networks on episodes of PointGoal1 to say whether a step was unsafe, and tests them on other episodes.

  Args:
    powers: See `SafetyGymnasium.lidar_powers`.
    num_train, num_test: Episodes.
    updates: Of Adam.
    episode_length: Simulator steps.
    seeds: Of networks and of their batches.

  Returns:
    `train_auc` and `test_auc`, for each seed: the probability that an unsafe step gets a higher score than a safe one.
  """
  environment = factory.make_environment(
    seed=0,
    action_repeat=2,
    simulator=lambda seed: environment_lib.SafetyGymnasium(
      seed=seed,
      task='SafetyPointGoal1-v0',
      observations=('vector',),
      lidar_powers=powers,
      episode_length=episode_length,
    ),
  )
  rng = np.random.default_rng(0)
  vectors, unsafe = zip(*(_drive(environment, rng) for _ in range(num_train + num_test)))
  train, test = (
    tuple(np.concatenate(part[rows]) for part in (vectors, unsafe))
    for rows in (slice(num_train), slice(num_train, None))
  )
  scores = [_fit(*train, test[0], updates, seed) for seed in seeds]
  return dict(
    powers=list(powers),
    train_auc=[auc(of_train, train[1]) for of_train, _ in scores],
    test_auc=[auc(of_test, test[1]) for _, of_test in scores],
  )


def table(results: Mapping[str, dict[str, Any]]) -> tuple[str, list[str], list[list[str]]]:
  """Title, headings and rows for the figures of `measure`, by name."""
  show = lambda values: ', '.join(f'{value:.3f}' for value in values)
  return (
    'Telling costs from vectors of PointGoal1: area under the ROC curve, by seed',
    ['powers of lidars', 'episodes of training', 'other episodes'],
    [[name, show(row['train_auc']), show(row['test_auc'])] for name, row in results.items()],
  )


def auc(scores: np.ndarray, is_positive: np.ndarray) -> float:
  """The probability that a positive one has a higher score than a negative one; ties count half. Scores [M]."""
  positive, negative = scores[is_positive], np.sort(scores[~is_positive])
  if not len(positive) or not len(negative):
    raise ValueError('There must be both, positive and negative ones.')
  below = np.searchsorted(negative, positive, 'left') + np.searchsorted(negative, positive, 'right')
  return float(np.mean(below) / (2 * len(negative)))


def _drive(environment: core.Environment, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
  """Vectors [T, D] of an episode, and whether they were met with a cost [T]. Heads for the goal, noisily."""
  timestep, vectors, unsafe = environment.reset(), [], []
  speed, bias = 1.0, 0.0
  while not timestep.last():
    if len(vectors) % 20 == 0:
      speed, bias = rng.uniform(0.3, 1.0), 0.4 * rng.normal()
    goal = timestep.observation['vector'][_NUM_SENSORS : _NUM_SENSORS + _NUM_BINS]
    angle = (np.argmax(goal) + 0.5) * 2 * np.pi / _NUM_BINS
    angle = (angle + np.pi) % (2 * np.pi) - np.pi
    forward = speed * np.cos(angle) if abs(angle) < 1.0 else 0.0
    action = np.array([forward, 1.5 * (angle + bias)]) + 0.3 * rng.normal(size=2)
    timestep = environment.step(np.clip(action, -1.0, 1.0).astype(np.float32))
    vectors.append(timestep.observation['vector'])
    unsafe.append(timestep.reward.cost[0] > 0)
  return np.stack(vectors), np.array(unsafe)


def _fit(
  vectors: np.ndarray, unsafe: np.ndarray, others: np.ndarray, updates: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
  """Scores of `vectors` [M, D], which the network is fitted to, and of `others`."""
  mean, scale = vectors.mean(axis=0), np.maximum(vectors.std(axis=0), 1e-3)
  normalize = lambda x: jnp.asarray(np.clip((x - mean) / scale, -10.0, 10.0), jnp.float32)
  inputs, targets = normalize(vectors), jnp.asarray(unsafe, jnp.float32)
  network = hk.without_apply_rng(
    hk.transform(lambda x: jnp.squeeze(hk.nets.MLP(_WIDTHS, activation=activations.elu)(x), axis=-1))
  )
  adam = optax.adam(5e-4)
  params = network.init(jax.random.PRNGKey(seed), inputs[:1])

  def update(state, key):
    params, optimizer = state
    rows = jax.random.randint(key, (_BATCH_SIZE,), 0, len(inputs))
    loss = lambda params: jnp.mean(
      optax.sigmoid_binary_cross_entropy(network.apply(params, inputs[rows]), targets[rows])
    )
    changes, optimizer = adam.update(jax.grad(loss)(params), optimizer)
    return (optax.apply_updates(params, changes), optimizer), None

  keys = jax.random.split(jax.random.PRNGKey(seed + 1), updates)
  (params, _), _ = jax.jit(lambda state: jax.lax.scan(update, state, keys))((params, adam.init(params)))
  return tuple(np.asarray(jax.jit(network.apply)(params, x)) for x in (inputs, normalize(others)))
