"""Calibration: an agent's bounds on costs beside the costs that its policy then incurs."""

from collections.abc import Callable, Sequence
import json
import pathlib
from typing import Any

import numpy as np

from lambda_kit import errors
from lambda_kit import files
from lambda_kit import types

# Plays the episode of a given number. Returns observations [T + 1, ...], actions [T, A] and costs [T, C].
Watch = Callable[[int], tuple[types.Observation, np.ndarray, np.ndarray]]

_BINS = 10


class NothingToCalibrateError(errors.UserError):
  """There are no forecasts of costs to compare."""


def write_calibration(
  forecaster: types.CostForecaster | None,
  constraint_names: Sequence[str],
  watch_new: Watch,
  watch_trained: Watch,
  num_episodes: int,
  num_trained: int,
  title: str,
  folder: pathlib.Path,
  name: str,
) -> dict[str, Any]:
  """Plays episodes with the policy's exploration noise, and compares costs within the horizon with their forecasts.

  It does so in new episodes, and in episodes that start like those of training. Models that are right only in the
  latter have seen too few.

  Args:
    forecaster: The agent's; None if it doesn't bound costs by models.
    constraint_names: Names of the C costs.
    watch_new: Plays new episodes.
    watch_trained: Plays episodes of training again.
    num_episodes: Number of episodes to play, of each kind.
    num_trained: Number of episodes that the agent has learned from.
    title: Title of the figure.
    folder: Where to write `name`.json, which holds what is returned, and `name`.png and .svg.
    name: Stem of the file names.

  Returns:
    `horizon`, `episodes`, and the results of `compare` by constraint: `constraints` for new episodes, `trained` for
    `num_episodes` episodes of training (all of them if there are fewer).
  """
  # Imported here because Matplotlib is slow to import.
  from lambda_kit.analysis import calibration_figures
  from lambda_kit.analysis import drawing

  if forecaster is None:
    raise NothingToCalibrateError('This agent has no models to bound costs with: calibrate a run of LambdaAgent.')

  def compare_episodes(watch: Watch, numbers: Sequence[int]) -> dict[str, Any]:
    windows = [_windows(*watch(number), forecaster) for number in numbers]
    steps, given, bounds, realised = (np.concatenate(values) for values in zip(*windows))
    return {
      constraint: compare(steps[..., i], given[..., i], bounds[:, i], realised[..., i])
      for i, constraint in enumerate(constraint_names)
    }

  trained = np.unique(np.linspace(0, num_trained - 1, num_episodes).astype(int)).tolist() if num_trained else []
  result = dict(
    horizon=forecaster.horizon,
    episodes=num_episodes,
    constraints=compare_episodes(watch_new, range(num_episodes)),
    trained=compare_episodes(watch_trained, trained) if trained else {},
  )
  drawing.save(calibration_figures.reliability(result, title), folder, name)
  files.write_atomically(folder / f'{name}.json', json.dumps(result, indent=2) + '\n')
  return result


def _windows(
  observation: types.Observation, action: np.ndarray, cost: np.ndarray, forecaster: types.CostForecaster
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
  """Every window of H steps of an episode: expected costs, costs expected given the actions, bound, realised costs.

  All are [T - H + 1, H, C], except for the bound, which is [T - H + 1, C].
  """
  if len(action) < forecaster.horizon:
    raise NothingToCalibrateError(
      f'An episode of {len(action)} agent steps is shorter than the horizon, {forecaster.horizon}.'
    )
  forecast = forecaster.forecast(observation, action)
  # [T - H + 1, H, C]
  realised = np.lib.stride_tricks.sliding_window_view(cost, forecaster.horizon, axis=0).swapaxes(1, 2)
  return *(part[: len(realised)] for part in (forecast.steps, forecast.given_actions, forecast.bound)), realised


def compare(
  expected_steps: np.ndarray, given_steps: np.ndarray, bounds: np.ndarray, realised_steps: np.ndarray
) -> dict[str, Any]:
  """Compares forecasts at M time steps with the costs of the H steps that followed each of them.

  Args:
    expected_steps: [M, H], the mean over models of the cost of each step, under the policy.
    given_steps: [M, H], likewise given the recorded actions: models can then be wrong about dynamics and costs, but not
      about the policy.
    bounds: [M], on the sums over H steps.
    realised_steps: [M, H], the costs that were observed.

  Returns:
    `moments`: M.
    `mean`, `given_actions`, `bound`, `realised`: Means over the M time steps, of costs summed over H steps.
    `above`: Share of time steps at which the bound was at least the realised cost.
    `above_mean`: Likewise for the mean over models.
    `above_where_costly`: Likewise for the bound, among time steps that were followed by a cost; None without any.
    `explained`: Share of the variance of realised costs that the mean over models explains. 1 if it is always right,
      at most 0 if it is no better than a constant, None if costs don't vary.
    `steps`: For the 1st, 2nd, ... step ahead, the mean cost that was expected under the policy, expected given the
      recorded actions, and realised.
    `bins`: Mean bound and mean realised cost in equal parts of the time steps, sorted by bound.
  """
  means, realised = expected_steps.sum(axis=1), realised_steps.sum(axis=1)
  costly, variance = realised > 0, realised.var()
  parts = np.array_split(np.argsort(bounds, kind='stable'), min(_BINS, len(bounds)))
  by_step = (x.mean(axis=0).tolist() for x in (expected_steps, given_steps, realised_steps))
  return dict(
    moments=len(bounds),
    mean=float(means.mean()),
    given_actions=float(given_steps.sum(axis=1).mean()),
    bound=float(bounds.mean()),
    realised=float(realised.mean()),
    above=float(np.mean(bounds >= realised)),
    above_mean=float(np.mean(means >= realised)),
    above_where_costly=float(np.mean(bounds[costly] >= realised[costly])) if costly.any() else None,
    explained=float(1.0 - np.mean((means - realised) ** 2) / variance) if variance > 0 else None,
    steps=[dict(expected=expected, given_actions=given, realised=came) for expected, given, came in zip(*by_step)],
    bins=[dict(bound=float(bounds[part].mean()), realised=float(realised[part].mean())) for part in parts],
  )


def describe(result: dict[str, Any]) -> str:
  """Describes the result in a few sentences for each constraint."""
  return '\n'.join(
    f'{name}: within {result["horizon"]} steps the models expect a cost of {row["mean"]:.2f} '
    f'({row["given_actions"]:.2f} given the recorded actions), the bound is {row["bound"]:.2f}, and the observed cost '
    f'{row["realised"]:.2f} (means over {row["moments"]:,} time steps of {result["episodes"]} new episodes). The '
    f'observed cost was at most the bound at {row["above"]:.1%} of them, and at most the expected cost at '
    f'{row["above_mean"]:.1%}.'
    + ('' if row['explained'] is None else f' The expected cost explains {row["explained"]:.0%} of the variance.')
    + _describe_trained(result['trained'].get(name))
    for name, row in result['constraints'].items()
  )


def _describe_trained(row: dict[str, Any] | None) -> str:
  if row is None:
    return ''
  return (
    f' In episodes of training, played again: {row["mean"]:.2f} expected, a bound of {row["bound"]:.2f}, '
    f'{row["realised"]:.2f} observed.'
  )
