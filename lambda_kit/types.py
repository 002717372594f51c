"""Data that flows between components, and the legend of shapes used everywhere.

Legend:
  B  batch of sequences            L  length of a sequence from replay
  H  imagination horizon           N  samples from the posterior over models
  C  constraints (costs)           A  action dimensions
  k  parallel environments         T  steps of an episode
Capital letters in brackets are shapes: `[B, L, C]`.
"""

from typing import Any, Mapping, NamedTuple, Union

import numpy as np

Array = Any  # np.ndarray or jax.Array.
# One array, or named arrays: 'image' uint8 [height, width, 3], 'vector' float32 [D].
Observation = Mapping[str, Array]
Nest = Union[Array, Mapping[str, Any], tuple]


class CmdpReward(NamedTuple):
  """What `TimeStep.reward` holds: the reward and the raw cost signals of one step."""
  reward: Array  # [] float32.
  cost: Array  # [C] float32, one entry for each constraint.


class Transition(NamedTuple):
  """One agent step as it is stored: o_t, a_t and what followed them."""
  observation: Observation
  action: Array  # [A]
  reward: Array  # []
  cost: Array  # [C]
  discount: Array  # [] 0 where the episode terminated, 1 elsewhere (time limits included).
  next_observation: Observation


class EpisodeSummary(NamedTuple):
  """Undiscounted sums over one finished episode."""
  episode_return: float
  cost_return: np.ndarray  # [C]
  length: int  # Agent steps.
  environment_steps: int  # Simulator steps, action repeats counted.
