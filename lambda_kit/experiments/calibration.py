"""How an agent's bounds on costs compare with what its policy then costs."""

import json
import pathlib
from typing import Any

import numpy as np

from lambda_kit import core
from lambda_kit.experiments import evaluation
from lambda_kit.experiments import run
from lambda_kit.reports import calibration_figures
from lambda_kit.reports import drawing

_BINS = 10


class NothingToCalibrateError(ValueError):
  """The agent bounds no costs."""


def write_calibration(experiment: run.Experiment, num_episodes: int, folder: pathlib.Path, name: str) -> dict[str, Any]:
  """Plays episodes as in training, with the policy's noise, and compares each H steps of them with their forecasts.

  Args:
    experiment: Whose agent has learned.
    num_episodes: How many to play.
    folder: Where to write `name`.json, which is what is returned, and `name`.png and .svg.
    name: Of the files.

  Returns:
    `horizon`, `episodes`, and for each constraint what `compare` finds.
  """
  agent, environment, learner = experiment.agent, experiment.evaluation_environment, experiment.learner
  if not isinstance(agent, core.ForecasterBuilder):
    raise NothingToCalibrateError(f'The agent {type(agent).__name__} has no models to bound costs with.')
  seed = experiment.seeds.evaluation_actor
  forecaster, horizon = agent.make_cost_forecaster(environment, learner, seed)
  player = evaluation.Evaluator(environment, agent.make_actor(environment, learner, None, seed, evaluation=False), 1)
  means, bounds, realised = [], [], []
  for number in range(num_episodes):
    observation, action, cost = player.watch(number)
    if len(action) < horizon:
      raise NothingToCalibrateError(f'An episode of {len(action)} agent steps is shorter than the horizon, {horizon}.')
    forecast = forecaster(observation, action)
    windows = np.lib.stride_tricks.sliding_window_view(cost, horizon, axis=0).sum(axis=-1)  # [T - H + 1, C]
    realised.append(windows)
    means.append(forecast.mean[:len(windows)])
    bounds.append(forecast.bound[:len(windows)])
  means, bounds, realised = (np.concatenate(values) for values in (means, bounds, realised))
  result = dict(horizon=horizon, episodes=num_episodes, constraints={
      constraint: compare(means[:, i], bounds[:, i], realised[:, i])
      for i, constraint in enumerate(environment.constraint_names)})
  drawing.save(calibration_figures.reliability(result, experiment.settings.title), folder, name)
  drawing.write_bytes(folder / f'{name}.json', (json.dumps(result, indent=2) + '\n').encode())
  return result


def compare(means: np.ndarray, bounds: np.ndarray, realised: np.ndarray) -> dict[str, Any]:
  """Compares forecasts [M] of as many moments with what followed.

  Returns:
    `moments`: M; `mean`, `bound` and `realised`: their means; `above`: the fraction of moments whose bound is at least
    the realised cost; `above_mean`: likewise for the mean over models; `above_where_costly`: likewise for the bound,
    among moments that were followed by a cost, None without any; `explained`: the part of the variance of realised
    costs that the mean over models explains, 1 if it is always right, 0 or less if it says no more than a constant,
    None where costs don't vary; and `bins`: of moments sorted by their bound, in parts of one size, mean bound and
    mean realised cost.
  """
  costly, variance = realised > 0, realised.var()
  parts = np.array_split(np.argsort(bounds, kind='stable'), min(_BINS, len(bounds)))
  return dict(
      moments=len(bounds), mean=float(means.mean()), bound=float(bounds.mean()), realised=float(realised.mean()),
      above=float(np.mean(bounds >= realised)), above_mean=float(np.mean(means >= realised)),
      above_where_costly=float(np.mean(bounds[costly] >= realised[costly])) if costly.any() else None,
      explained=float(1.0 - np.mean((means - realised)**2) / variance) if variance > 0 else None,
      bins=[dict(bound=float(bounds[part].mean()), realised=float(realised[part].mean())) for part in parts])


def describe(result: dict[str, Any]) -> str:
  """A sentence for each constraint."""
  return '\n'.join(
      f'{name}: within {result["horizon"]} steps models expect {row["mean"]:.2f}, their bound is {row["bound"]:.2f}, '
      f'and {row["realised"]:.2f} came ({row["moments"]:,} moments of {result["episodes"]} episodes). The bound was not '
      f'exceeded in {row["above"]:.1%} of them, the mean in {row["above_mean"]:.1%}.'
      + ('' if row['explained'] is None else f' The mean explains {row["explained"]:.0%} of the variance.')
      for name, row in result['constraints'].items())
