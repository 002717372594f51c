"""Exact values of simple policies in the built-in CMDP."""

import numpy as np

from lambda_kit.environments import grid_cmdp
from lambda_kit.environments import occupancy


def move_probabilities(action: np.ndarray) -> np.ndarray:
  """The mixture [..., 9] of `grid_cmdp.MOVES` that an action [..., 2] stands for, before slips."""
  action = np.clip(np.asarray(action, float), -1.0, 1.0)
  # [..., 2, 3]: each axis moves by -1, 0 or 1.
  axes = np.stack([np.maximum(-action, 0.0), 1.0 - np.abs(action), np.maximum(action, 0.0)], axis=-1)
  return (axes[..., 0, :, None] * axes[..., 1, None, :]).reshape(action.shape[:-1] + (9,))


def random_value(environment: grid_cmdp.GridCmdp) -> occupancy.Value:
  """The expected return and costs of actions that are uniform in [-1, 1]^2.

  E|a| = 1/2 on each axis, in both directions alike: -1, 0 and 1 with probabilities 1/4, 1/2 and 1/4.
  """
  cmdp = environment.finite_cmdp()
  policy = np.outer([0.25, 0.5, 0.25], [0.25, 0.5, 0.25]).reshape(-1)
  return occupancy.evaluate(cmdp, np.broadcast_to(policy, cmdp.rewards.shape))
