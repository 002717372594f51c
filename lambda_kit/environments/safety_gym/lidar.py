"""safety-gymnasium's pseudo-lidar for all objects at once.

Each kind of object has a ring of bins around the agent. A bin's reading is how close the nearest object in its
direction is; a share of it goes to the two neighbouring bins, so that readings change smoothly.
"""

import numpy as np


def pseudo_lidar(
  positions: np.ndarray,
  kinds: np.ndarray,
  num_kinds: int,
  agent_position: np.ndarray,
  agent_rotation: np.ndarray,
  num_bins: int,
  max_distance: float | None,
  exponential_gain: float,
  alias: bool,
) -> np.ndarray:
  """Returns readings [num_kinds, num_bins] for objects at `positions` [n, 3] of `kinds` [n].

  Args:
    agent_rotation: [3, 3], from the agent's frame to the world's.
    max_distance: Where readings, which fall linearly, are 0; if None, they fall exponentially by `exponential_gain`.
    alias: Whether neighbouring bins get a share of a reading.
  """
  offsets = np.concatenate([positions[:, :2], np.zeros((len(positions), 1))], axis=1) - agent_position
  x, y = np.matmul(offsets, agent_rotation)[:, :2].T
  distance = np.hypot(x, y)
  angle = np.arctan2(y, x) % (2 * np.pi)
  width = 2 * np.pi / num_bins
  bins = (angle / width).astype(int) % num_bins  # An angle just below 0 rounds to a full turn.
  if max_distance is None:
    reading = np.exp(-exponential_gain * distance)
  else:
    reading = np.maximum(0, max_distance - distance) / max_distance
  readings = np.zeros((num_kinds, num_bins))
  np.maximum.at(readings, (kinds, bins), reading)
  if alias:
    share = (angle - width * bins) / width
    np.maximum.at(readings, (kinds, (bins + 1) % num_bins), share * reading)
    np.maximum.at(readings, (kinds, (bins - 1) % num_bins), (1 - share) * reading)
  return readings
