"""Calibration: what an agent's models forecast of costs in new episodes, beside the costs that came."""

from collections.abc import Callable, Sequence
import pathlib
from typing import Any, NamedTuple

from absl import logging
import numpy as np

from lambda_kit import errors
from lambda_kit import files
from lambda_kit import reading
from lambda_kit import types
from lambda_kit.analysis import certificate as certificate_lib
from lambda_kit.analysis import forecast_scores
from lambda_kit.analysis.metrics import ratios

Watch = Callable[[int], types.Recording]  # Plays the episode of a given number.

# No training and no evaluation comes so far: neither weights nor checkpoints were chosen by these episodes.
FIRST_EPISODE = 1_000_000


class NothingToCalibrateError(errors.UserError):
  """There are no forecasts of costs to compare."""


class Subject(NamedTuple):
  """What is calibrated."""

  task: str
  seed: int  # Of the run.
  environment_steps: int  # Of the checkpoint.
  constraint_names: Sequence[str]  # [C]
  cost_limits: Sequence[float]  # [C]


def write_calibration(
  forecaster: types.CostForecaster | None,
  subject: Subject,
  watch_training: Watch,
  watch_policy: Watch,
  num_episodes: int,
  title: str,
  folder: pathlib.Path,
  name: str,
) -> dict[str, Any]:
  """Plays new episodes with the policy's exploration noise, and compares costs within the horizon with forecasts.

  The same episodes are played again without that noise, as the policy is evaluated and exported: they tell what an
  episode costs.

  Args:
    forecaster: The agent's; None if it doesn't bound costs by models.
    subject: What is calibrated.
    watch_training: Plays episodes with exploration noise.
    watch_policy: Plays them as the policy is evaluated.
    num_episodes: E, the number of episodes to play.
    title: Title of the figure.
    folder: Where to write `name`.json, which holds what is returned, `name`.png and .svg, and the certificate,
      `calibration.json`.
    name: Stem of the file names.

  Returns:
    `task`, `seed`, `environment_steps`, `episodes`, `horizon` and `samples`; the `episode_return` of the policy; and
    for each of `constraints` its `limit`, the `cost_return` of an episode of the policy, `training_cost_return` of an
    episode with exploration noise (means with 90% intervals), and what `forecast_scores.score` returns.
  """
  # Imported here because Matplotlib is slow to import.
  from lambda_kit.analysis import calibration_figures
  from lambda_kit.analysis import drawing

  if forecaster is None:
    raise NothingToCalibrateError('This agent has no models to bound costs with: calibrate a run of LambdaAgent.')
  numbers = range(FIRST_EPISODE, FIRST_EPISODE + num_episodes)
  training_costs, episodes = zip(*(_forecast(watch_training(number), forecaster) for number in numbers))
  played = [watch_policy(number) for number in numbers]
  (episode_return,) = _returns([episode.reward[:, None] for episode in played])
  training_cost_returns, cost_returns = _returns(training_costs), _returns([episode.cost for episode in played])
  result = dict(
    task=subject.task,
    seed=subject.seed,
    environment_steps=subject.environment_steps,
    episodes=num_episodes,
    horizon=forecaster.horizon,
    samples=forecaster.num_samples,
    episode_return=episode_return,
    constraints={
      constraint: dict(
        limit=float(limit),
        cost_return=cost_returns[i],
        training_cost_return=training_cost_returns[i],
        **forecast_scores.score([episode[i] for episode in episodes], forecaster.bound_level),
      )
      for i, (constraint, limit) in enumerate(zip(subject.constraint_names, subject.cost_limits, strict=True))
    },
  )
  drawing.save(calibration_figures.calibration(result, title), folder, name)
  files.write_atomically(folder / f'{name}.json', certificate_lib.to_text(result))
  certificate_lib.write(folder, certificate_lib.of_calibration(result))
  return result


def read_certificate(path: pathlib.Path) -> certificate_lib.Certificate | None:
  """The certificate in what `write_calibration` wrote to `name`.json; None if it was not written, or by other code."""
  try:
    return certificate_lib.of_calibration(reading.read_json(path)) if reading.exists(path) else None
  except ValueError as error:
    logging.warning('%s gives no certificate: %s. Calibrate again.', path, error)
    return None


def _forecast(
  recording: types.Recording, forecaster: types.CostForecaster
) -> tuple[np.ndarray, list[forecast_scores.Episode]]:
  """Costs of an episode [T, C], and for each constraint the forecasts of every window of H steps of it."""
  observation, action, _, cost = recording
  horizon = forecaster.horizon
  if len(action) < horizon:
    raise NothingToCalibrateError(f'An episode of {len(action)} agent steps is shorter than the horizon, {horizon}.')
  forecast = forecaster.forecast(observation, action)
  observed = np.lib.stride_tricks.sliding_window_view(cost, horizon, axis=0)  # [S, C, H]
  windows = types.CostForecast(*(part[: len(observed)] for part in forecast))
  return cost, [
    forecast_scores.Episode(
      raw_forecast=windows.raw_steps[..., i],
      forecast=windows.steps[..., i],
      disagreement=windows.disagreement[..., i],
      bound=windows.bound[..., i],
      draws=windows.draws[..., i],
      observed=observed[:, i],
    )
    for i in range(cost.shape[1])
  ]


def _returns(signals: Sequence[np.ndarray]) -> list[list[float | None]]:
  """The mean over episodes of the sum over steps with its interval, for each of C signals [T, C] of E episodes."""
  sums = np.stack([signal.sum(axis=0, dtype=np.float64) for signal in signals])
  ones = np.ones(len(sums))
  return [forecast_scores.to_json(ratios.ratio_of_sums(column, ones)) for column in sums.T]
