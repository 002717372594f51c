"""Data that flows between components, and the letters used for shapes everywhere.

Legend:
  B  batch of sequences            L  length of a sequence from replay
  H  imagination horizon           N  samples from the posterior over models
  C  constraints (costs)           A  action dimensions
  k  parallel environments         T  steps of an episode
Capital letters in brackets are shapes: `[B, L, C]`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Array = Any  # np.ndarray or jax.Array.
# One array, or named arrays: 'image' uint8 [height, width, 3], 'vector' float32 [D].
Observation = Mapping[str, Array]
Nest = Any  # An array, or mappings and tuples of arrays.


class CmdpReward(NamedTuple):
  """What `TimeStep.reward` holds: the reward and the raw cost signals of one step."""

  reward: Array  # [] float32.
  cost: Array  # [C] float32, one entry for each constraint.


class Trajectory(NamedTuple):
  """Sequences from replay. All entries of index t belong to the time step of o_t.

  Sequences never cross the end of an episode.
  """

  observation: Observation  # [B, L, ...]
  action: Array  # [B, L, A], a_{t-1}, which led to o_t; 0 at the first time step of an episode.
  reward: Array  # [B, L], r_t, which came with o_t; 0 at the first time step.
  cost: Array  # [B, L, C], likewise.
  terminal: Array  # [B, L], 1 where the episode terminated in o_t; 0 elsewhere, also at time limits.
  # Parts of the observation that were normalised, as they came [B, L, ...]; None if `observation` is as it came.
  raw: Observation | None = None
  # [B, L] int32, the number of the episode in the replay, which it keeps; None for sequences from elsewhere.
  episode: Array | None = None


class Rollout(NamedTuple):
  """T agent steps of one policy in each of k environments, from new episodes on. Index t is the step from o_t."""

  observation: Observation  # [T, k, ...]
  action: Array  # [T, k, A]
  reward: Array  # [T, k]
  cost: Array  # [T, k, C]
  discount: Array  # [T, k], 0 where the episode terminated; 1 elsewhere, also at time limits.
  next_observation: Observation  # [T, k, ...], the true one, also where an episode ended.
  is_last: Array  # [T, k] bool, whether the next step belongs to another episode.
  weight: Array  # [T, k], 0 where an environment failed and there was no step; 1 elsewhere.
  cost_return: Array  # [C], mean over the episodes that ended.
  episode_length: Array  # [], mean agent steps of these episodes.


class ModelOutput(NamedTuple):
  """By-products of a world model's loss."""

  states: Nest  # [B, L, ...], inferred by the model: s_t ~ q(. | o_{<=t}, a_{<t}).
  metrics: dict[str, Array]  # Scalars.
  latents: Nest = ()  # [B, L, ...], the distributions that random parts of states were drawn from.


class Recording(NamedTuple):
  """T agent steps of an episode, from its beginning on."""

  observation: Observation  # o_0, ..., o_T, [T + 1, ...]
  action: Array  # a_0, ..., a_{T-1}, [T, A]
  reward: Array  # [T], of these actions.
  cost: Array  # [T, C], likewise.


class CostForecast(NamedTuple):
  """Undiscounted costs of the H agent steps after each time step of an episode, under the policy with its noise.

  All but `raw_steps` is multiplied by the factors that the agent corrects expected costs with, if it does.
  """

  raw_steps: Array  # [T + 1, H, C], the cost that models expect of each step: the mean over posterior samples.
  steps: Array  # [T + 1, H, C], the same, corrected.
  disagreement: Array  # [T + 1, C], standard deviation over samples of the cost expected of all H steps.
  bound: Array  # [T + 1, H, C], of each step; summed over steps the bound over the samples' sums.
  draws: (
    Array  # [T + 1, M, C], costs of all H steps drawn from the models: those of weights, states, actions and costs.
  )


class Predictions(NamedTuple):
  """A world model's expectations for a state."""

  reward: Array  # [...], expected r_t of the agent step that led to the state.
  cost: Array  # [..., C], expected costs of that step, summed over repeated simulator steps.
  continuation: Array  # [...], probability that the episode has not terminated in the state.


class OpenLoop(NamedTuple):
  """Open-loop prediction of the m time steps of an episode after those that the model has seen.

  In the model's own units: images in [-0.5, 0.5], vectors normalised.
  """

  truth: Observation  # [m, ...]
  model: Observation  # [m, ...]
  last_seen: Observation  # [...], the time step before. Repeating it is the persistence baseline.


class EpisodeSummary(NamedTuple):
  """Undiscounted sums over one finished episode."""

  episode_return: float
  cost_return: np.ndarray  # [C]
  length: int  # Agent steps.
  environment_steps: int  # Simulator steps, action repeats counted.


# Shows a model the first n observations of an episode and all of its actions. Called with observations o_0, ..., o_T
# [T + 1, ...], actions a_0, ..., a_{T-1} [T, A] and 1 <= n <= T; what is returned is about o_n, ..., o_T.
Predictor = Callable[[Observation, Array, int], OpenLoop]


class CostForecaster(NamedTuple):
  """Forecasts what a policy will cost."""

  # Maps observations o_0, ..., o_T [T + 1, ...] and actions a_0, ..., a_{T-1} [T, A] of an episode to a forecast.
  forecast: Callable[[Observation, Array], CostForecast]
  horizon: int  # H, agent steps.
  num_samples: int  # N.
  # Of a bound that selects the k-th smallest of N estimates, k / (N + 1): how often the next one of the same kind would
  # be below it. None for bounds that don't select.
  bound_level: float | None
