"""A model's open-loop prediction of an evaluation episode: a picture, and the errors."""

from collections.abc import Callable
import json
import pathlib

from absl import logging

from lambda_kit import files
from lambda_kit import types

# Plays the first episode of an evaluation, given its number, for up to so many steps (None: to the end).
Watch = Callable[[int, int | None], types.Recording]

NUM_SEEN = 5  # n, observations that the model sees.
NUM_PREDICTED = 45  # m, agent steps that it then predicts.


def write_prediction(
  predictor: types.Predictor | None,
  watch: Watch,
  number: int,
  environment_steps: int,
  title: str,
  folder: pathlib.Path,
  name: str = 'prediction',
) -> pathlib.Path | None:
  """Predicts the first episode of an evaluation, which is also the one that is filmed.

  The run is not affected: the episode and its noise follow from the episode's number.

  Args:
    predictor: The agent's; None if it has no model of observations.
    watch: Plays the episode.
    number: Number of the evaluation.
    environment_steps: Environment steps that the agent has learned from.
    title: Title of the figure.
    folder: Where to write `name`.png and .svg (truth, model and error over time), and `name`.json: for each part of
      observations the mean absolute error of each step, of the `model` and of the persistence baseline, `last_seen`.
    name: Stem of the file names.

  Returns:
    The path of the PNG. None if the agent has no model of observations, or the episode is too short.
  """
  if predictor is None:
    return None
  observation, action, *_ = watch(number, NUM_SEEN - 1 + NUM_PREDICTED)
  if len(action) < NUM_SEEN:
    logging.warning('The episode ended after %d steps: there is nothing to predict.', len(action))
    return None
  # Imported here because Matplotlib is slow to import.
  from lambda_kit.analysis import drawing
  from lambda_kit.analysis import prediction_figures

  prediction = predictor(observation, action, NUM_SEEN)
  truth = prediction.truth
  errors = {
    part: dict(
      model=prediction_figures.errors(truth[part], prediction.model[part]).tolist(),
      last_seen=prediction_figures.errors(truth[part], prediction.last_seen[part][None]).tolist(),
    )
    for part in sorted(truth)
  }
  figure = prediction_figures.strip(prediction, NUM_SEEN, f'{title}: open-loop prediction')
  drawing.save(figure, folder, name)
  content = dict(environment_steps=environment_steps, evaluation=number, num_seen=NUM_SEEN, errors=errors)
  files.write_atomically(folder / f'{name}.json', json.dumps(content) + '\n')  # Last, as the mark of completeness.
  return folder / f'{name}.png'
