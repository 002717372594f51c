"""Open-loop predictions that runs have written: pictures, and errors by step."""

from collections.abc import Mapping
import dataclasses
import json
import pathlib

import numpy as np

from lambda_kit.analysis import streams

PARTS = ('image', 'vector')
UNITS = {'image': 'of a pixel in [0, 1]', 'vector': 'in standard deviations'}
_MAX_BYTES = 1 << 20


class PredictionError(ValueError):
  """A file is not one that `analysis.prediction` has written."""


@dataclasses.dataclass(frozen=True)
class Prediction:
  """What a run's model expected of m steps of an episode without looking."""

  picture: pathlib.Path  # A PNG; there is an SVG beside it.
  model_errors: Mapping[str, np.ndarray]  # By part of observations, [m]: the mean absolute error of each step.
  last_seen_errors: Mapping[str, np.ndarray]  # Likewise, if what was seen last is taken to stay.

  def describe(self) -> str:
    """The errors in words: means over all steps."""
    return '; '.join(
      f'{part}: mean absolute error {errors.mean():.3g} {UNITS[part]} over {len(errors)} steps, '
      f'{self.last_seen_errors[part].mean():.3g} if what was seen last is taken to stay'
      for part, errors in self.model_errors.items()
    )


def read(folder: pathlib.Path) -> Prediction | None:
  """Reads the prediction in a workdir; None if there is none.

  Raises:
    PredictionError: The errors can't be read.
    OSError: Likewise.
  """
  path = folder / 'prediction.json'
  if not all(path.with_suffix(suffix).is_file() for suffix in ('.json', '.png', '.svg')):
    return None
  try:
    with open(path, encoding='utf-8') as file:
      errors = json.loads(file.read(_MAX_BYTES))['errors']
    columns = {
      part: [streams.vector(errors[part][name]) for name in ('model', 'last_seen')] for part in PARTS if part in errors
    }
  except (ValueError, KeyError, TypeError, RecursionError) as error:
    raise PredictionError(f'no errors of a prediction: {type(error).__name__}') from error
  for model, last_seen in columns.values():
    if model is None or last_seen is None or len(model) != len(last_seen) or not np.isfinite([model, last_seen]).all():
      raise PredictionError('its errors are no finite numbers')
  return Prediction(
    path.with_suffix('.png'),
    {part: values[0] for part, values in columns.items()},
    {part: values[1] for part, values in columns.items()},
  )
