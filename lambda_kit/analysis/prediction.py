"""What an agent's model predicts of an episode of its evaluation: a picture of it, and its errors."""

import json
import pathlib

from absl import logging

from lambda_kit import core
from lambda_kit.training import experiment as experiment_lib

NUM_SEEN = 5  # n, observations that the model is shown.
NUM_PREDICTED = 45  # m, agent steps that it then predicts.


def write_prediction(experiment: experiment_lib.Experiment, number: int, environment_steps: int, folder: pathlib.Path,
                     name: str = 'prediction') -> pathlib.Path | None:
  """Lets the model predict the first episode of an evaluation, the one that is filmed.

  It takes nothing that the run needs: an episode and noise follow from the episode's number.

  Args:
    experiment: Whose agent has learned.
    number: Of the evaluation.
    environment_steps: That the agent has learned from.
    folder: Where to write `name`.png and .svg, truth, model and error over time; and `name`.json: for each part of
      observations the mean absolute `model` error of each step, and the `last_seen` one of copying what was seen last.
    name: Of the files.

  Returns:
    The path of the PNG. None if the agent has no model of observations, or the episode is too short.
  """
  if not isinstance(experiment.agent, core.PredictorBuilder):
    return None
  observation, action, _ = experiment.evaluator.watch(number, NUM_SEEN - 1 + NUM_PREDICTED)
  if len(action) < NUM_SEEN:
    logging.warning('The episode ended after %d steps: there is nothing to predict.', len(action))
    return None
  predictor = experiment.agent.make_predictor(experiment.evaluation_environment, experiment.learner,
                                              experiment.seeds.evaluation_actor)
  # Here, since Matplotlib is slow to import.
  from lambda_kit.analysis import drawing  # pylint: disable=import-outside-toplevel
  from lambda_kit.analysis import prediction_figures  # pylint: disable=import-outside-toplevel
  prediction = predictor(observation, action, NUM_SEEN)
  truth = prediction.truth
  errors = {part: dict(model=prediction_figures.errors(truth[part], prediction.model[part]).tolist(),
                       last_seen=prediction_figures.errors(truth[part], prediction.last_seen[part][None]).tolist())
            for part in sorted(truth)}
  figure = prediction_figures.strip(prediction, NUM_SEEN, f'{experiment.settings.title}: prediction without looking')
  drawing.save(figure, folder, name)
  content = dict(environment_steps=environment_steps, evaluation=number, num_seen=NUM_SEEN, errors=errors)
  drawing.write_bytes(folder / f'{name}.json', (json.dumps(content) + '\n').encode())  # Last: the files are complete.
  return folder / f'{name}.png'
