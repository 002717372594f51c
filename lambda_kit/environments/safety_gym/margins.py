"""How far costs are away, as functions of the observation."""

import gin
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit import types


@gin.register
@ranges.checked
class HazardLidar:
  """The distance in metres to the edge of the nearest hazard, from the lidar of hazards.

  The largest reading is that of the nearest hazard, and falls linearly with the distance to its centre. So a simulator
  step of PointGoal1 has a cost exactly if the distance is not positive in the observation that it ends in.
  """

  def __init__(
    self,
    first: ranges.Whole = 28,
    num_bins: ranges.Count = 16,
    max_distance: ranges.Positive = 3.0,
    radius: ranges.NotNegative = 0.2,
    farthest: ranges.Positive = 1.0,
  ):
    """By default, of Point's goal tasks.

    Args:
      first: Entry of the vector with the first reading of the hazards' lidar.
      num_bins: Readings of the lidar.
      max_distance: Where readings are 0, in metres.
      radius: Of a hazard, in metres.
      farthest: Larger distances count as this one, so that models attend to what is near.
    """
    if farthest > max_distance - radius:
      raise errors.SetupError(
        f'HazardLidar.farthest = {farthest} must be positive, and at most {max_distance - radius:g}, beyond which the '
        'lidar sees nothing.'
      )
    self._readings = slice(first, first + num_bins)
    self._max_distance, self._radius, self._farthest = max_distance, radius, farthest

  def __call__(self, observation: types.Observation) -> types.Array:
    """Maps 'vector' [..., D] to margins [..., 1]."""
    if 'vector' not in observation or observation['vector'].shape[-1] < self._readings.stop:
      raise errors.SetupError(
        f'HazardLidar reads entries {self._readings.start} to {self._readings.stop - 1} of the vector, which this '
        'environment does not observe: choose a size for vectors, or --parts=observe_both.'
      )
    reading = observation['vector'][..., self._readings].max(axis=-1, keepdims=True)
    return (self._max_distance * (1.0 - reading) - self._radius).clip(max=self._farthest)
