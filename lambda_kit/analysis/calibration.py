"""How an agent's bounds on costs compare with what its policy then costs."""

from collections.abc import Callable, Sequence
import json
import pathlib
from typing import Any

import numpy as np

from lambda_kit import core
from lambda_kit import errors
from lambda_kit import files
from lambda_kit import types

# Plays an episode, given its number: its observations [T + 1, ...], actions [T, A] and costs [T, C].
Watch = Callable[[int], tuple[types.Observation, np.ndarray, np.ndarray]]

_BINS = 10


class NothingToCalibrateError(errors.UserError):
  """The agent bounds no costs."""


def write_calibration(
  forecaster: core.CostForecaster | None,
  constraint_names: Sequence[str],
  watch_new: Watch,
  watch_trained: Watch,
  num_episodes: int,
  num_trained: int,
  title: str,
  folder: pathlib.Path,
  name: str,
) -> dict[str, Any]:
  """Plays episodes as in training, with the policy's noise, and compares each H steps of them with their forecasts.

  Once in new episodes, and once more in episodes that the agent has learned from, from their first time steps on:
  models that are right about these and wrong about those have seen too few.

  Args:
    forecaster: The agent's; None if it doesn't bound costs by models.
    constraint_names: Of the C costs.
    watch_new: Plays new episodes.
    watch_trained: Plays episodes of training.
    num_episodes: How many to play, of each kind.
    num_trained: How many episodes the agent has learned from.
    title: Of the figure.
    folder: Where to write `name`.json, which is what is returned, and `name`.png and .svg.
    name: Of the files.

  Returns:
    `horizon`, `episodes`, and for each constraint what `compare` finds: `constraints` for new episodes, and `trained`
    for as many of training, or all of these if there are fewer.
  """
  # Here, since Matplotlib is slow to import.
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
  observation: types.Observation, action: np.ndarray, cost: np.ndarray, forecaster: core.CostForecaster
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
  """Of each H steps of an episode, expected costs, those with given actions, their bound and realised costs.

  All are [T - H + 1, H, C], but for the bound, which is [T - H + 1, C].
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
  """Compares forecasts of M moments, [M, H] step by step and bounds [M] on their sums, with what followed, [M, H].

  Returns:
    `moments`: M; `mean`, `given_actions`, `bound` and `realised`: their means, where `given_actions` is what models
    expect given the recorded actions, so that they can be wrong about dynamics and costs, and not about the policy;
    `above`: the fraction of moments whose bound is at least the realised cost; `above_mean`: likewise for the mean over
    models; `above_where_costly`: likewise for the bound, among moments that were followed by a cost, None without any;
    `explained`: the part of the variance of realised costs that the mean over models explains, 1 if it is always right,
    0 or less if it says no more than a constant, None where costs don't vary; `steps`: how much was expected of the
    1st, 2nd, ... step ahead, by the policy and given the recorded actions, and came; and `bins`: of moments sorted by
    their bound, in parts of one size, mean bound and mean realised cost.
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
  """A sentence or two for each constraint."""
  return '\n'.join(
    f'{name}: within {result["horizon"]} steps models expect {row["mean"]:.2f} ({row["given_actions"]:.2f} given the '
    f'recorded actions), their bound is {row["bound"]:.2f}, and {row["realised"]:.2f} came ({row["moments"]:,} '
    f'moments of {result["episodes"]} new episodes). The bound was not exceeded in {row["above"]:.1%} of them, the '
    f'mean in {row["above_mean"]:.1%}.'
    + ('' if row['explained'] is None else f' The mean explains {row["explained"]:.0%} of the variance.')
    + _describe_trained(result['trained'].get(name))
    for name, row in result['constraints'].items()
  )


def _describe_trained(row: dict[str, Any] | None) -> str:
  if row is None:
    return ''
  return (
    f' In episodes of training, played again: {row["mean"]:.2f} expected, {row["bound"]:.2f} as a bound, '
    f'{row["realised"]:.2f} came.'
  )
