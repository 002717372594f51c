"""Open-loop predictions written by runs: pictures, and errors by step."""

from collections.abc import Mapping
import dataclasses
import pathlib

import numpy as np

from lambda_kit import reading
from lambda_kit.analysis import streams

PARTS = ('image', 'vector')
UNITS = {'image': 'of a pixel in [0, 1]', 'vector': 'in standard deviations'}
_MAX_STEPS = 10_000


class PredictionError(ValueError):
  """A file was not written by `analysis.prediction`."""


@dataclasses.dataclass(frozen=True)
class Prediction:
  """A model's open-loop prediction of m steps of an episode."""

  picture: pathlib.Path  # A PNG; there is an SVG beside it.
  model_errors: Mapping[str, np.ndarray]  # By part of observations, [m]: the mean absolute error of each step.
  last_seen_errors: Mapping[str, np.ndarray]  # Likewise, of the persistence baseline: the last observation, repeated.

  def describe(self) -> str:
    """Describes the mean errors over all steps."""
    return '; '.join(
      f'{part}: mean absolute error {errors.mean():.3g} {UNITS[part]} over {len(errors)} steps, '
      f'{self.last_seen_errors[part].mean():.3g} for the last observation, repeated'
      for part, errors in self.model_errors.items()
    )


def read(folder: pathlib.Path) -> Prediction | None:
  """Reads the prediction in a workdir; None if there is none.

  Raises:
    PredictionError: The errors can't be read, or one of the files is no regular file.
    OSError: Likewise.
  """
  path = folder / 'prediction.json'
  try:
    if not all(reading.exists(path.with_suffix(suffix)) for suffix in ('.json', '.png', '.svg')):
      return None
    errors = reading.read_json(path)['errors']
    columns = {
      part: (streams.vector(errors[part]['model']), streams.vector(errors[part]['last_seen']))
      for part in PARTS
      if part in errors
    }
  except reading.RefusedError as error:
    raise PredictionError(f'{error.path.name}: {error.reason}') from error
  except (KeyError, TypeError) as error:
    raise PredictionError(f'it holds no errors of a prediction: {type(error).__name__}') from error
  model_errors, last_seen_errors = {}, {}
  for part, (model, last_seen) in columns.items():
    if model is None or last_seen is None or len(model) != len(last_seen) or not np.isfinite([model, last_seen]).all():
      raise PredictionError('its errors are not finite numbers')
    if len(model) > _MAX_STEPS:
      raise PredictionError(f'it has {len(model)} steps')
    model_errors[part], last_seen_errors[part] = model, last_seen
  return Prediction(path.with_suffix('.png'), model_errors, last_seen_errors)
