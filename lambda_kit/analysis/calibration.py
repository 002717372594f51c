"""How an agent's bounds on costs compare with what its policy then costs."""

import json
import pathlib
from typing import Any, Sequence

import numpy as np

from lambda_kit import core
from lambda_kit import types
from lambda_kit.training import evaluation
from lambda_kit.training import experiment as experiment_lib

_BINS = 10


class NothingToCalibrateError(ValueError):
  """The agent bounds no costs."""


def write_calibration(experiment: experiment_lib.Experiment, num_episodes: int, num_trained: int, folder: pathlib.Path,
                      name: str) -> dict[str, Any]:
  """Plays episodes as in training, with the policy's noise, and compares each H steps of them with their forecasts.

  Once in new episodes, and once more in episodes that the agent has learned from, from their first moments on: models
  that are right about these and wrong about those have seen too few.

  Args:
    experiment: Whose agent has learned.
    num_episodes: How many to play, of each kind.
    num_trained: How many episodes the agent has learned from.
    folder: Where to write `name`.json, which is what is returned, and `name`.png and .svg.
    name: Of the files.

  Returns:
    `horizon`, `episodes`, and for each constraint what `compare` finds: `constraints` for new episodes, and `trained`
    for as many of training, or all of these if there are fewer.
  """
  # Here, since Matplotlib is slow to import.
  from lambda_kit.analysis import calibration_figures  # pylint: disable=import-outside-toplevel
  from lambda_kit.analysis import drawing  # pylint: disable=import-outside-toplevel
  agent, learner = experiment.agent, experiment.learner
  if not isinstance(agent, core.ForecasterBuilder):
    raise NothingToCalibrateError(f'The agent {type(agent).__name__} has no models to bound costs with.')
  seed = experiment.seeds.evaluation_actor
  forecaster, horizon = agent.make_cost_forecaster(experiment.evaluation_environment, learner, seed)

  def compare_episodes(environment: core.Environment, numbers: Sequence[int]) -> dict[str, Any]:
    actor = agent.make_actor(environment, learner, None, seed, evaluation=False)
    player = evaluation.Evaluator(environment, actor, 1)
    windows = [_windows(*player.watch(number), forecaster, horizon) for number in numbers]
    steps, followed, bounds, realised = (np.concatenate(values) for values in zip(*windows))
    return {constraint: compare(steps[..., i], followed[..., i], bounds[:, i], realised[..., i])
            for i, constraint in enumerate(environment.constraint_names)}

  trained = np.unique(np.linspace(0, num_trained - 1, num_episodes).astype(int)).tolist() if num_trained else []
  result = dict(
      horizon=horizon, episodes=num_episodes,
      constraints=compare_episodes(experiment.evaluation_environment, range(num_episodes)),
      trained=compare_episodes(experiment.environment, trained) if trained else {})
  drawing.save(calibration_figures.reliability(result, experiment.settings.title), folder, name)
  drawing.write_bytes(folder / f'{name}.json', (json.dumps(result, indent=2) + '\n').encode())
  return result


def _windows(observation: types.Observation, action: np.ndarray, cost: np.ndarray, forecaster: core.CostForecaster,
             horizon: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
  """Of each H steps of an episode, expected costs, those with actions told, their bound and realised costs.

  All are [T - H + 1, H, C], but for the bound, which is [T - H + 1, C].
  """
  if len(action) < horizon:
    raise NothingToCalibrateError(f'An episode of {len(action)} agent steps is shorter than the horizon, {horizon}.')
  forecast = forecaster(observation, action)
  realised = np.lib.stride_tricks.sliding_window_view(cost, horizon, axis=0).swapaxes(1, 2)  # [T - H + 1, H, C]
  return *(part[:len(realised)] for part in (forecast.steps, forecast.followed, forecast.bound)), realised


def compare(expected_steps: np.ndarray, followed_steps: np.ndarray, bounds: np.ndarray,
            realised_steps: np.ndarray) -> dict[str, Any]:
  """Compares forecasts of M moments, [M, H] step by step and bounds [M] on their sums, with what followed, [M, H].

  Returns:
    `moments`: M; `mean`, `followed`, `bound` and `realised`: their means, where `followed` is what models expect that
    are told which actions follow, so that they can be wrong about dynamics and costs, and not about the policy;
    `above`: the fraction of moments whose bound is at least the realised cost; `above_mean`: likewise for the mean over
    models; `above_where_costly`: likewise for the bound, among moments that were followed by a cost, None without any;
    `explained`: the part of the variance of realised costs that the mean over models explains, 1 if it is always right,
    0 or less if it says no more than a constant, None where costs don't vary; `steps`: how much was expected of the
    1st, 2nd, ... step ahead, without and with actions told, and came; and `bins`: of moments sorted by their bound, in
    parts of one size, mean bound and mean realised cost.
  """
  means, realised = expected_steps.sum(axis=1), realised_steps.sum(axis=1)
  costly, variance = realised > 0, realised.var()
  parts = np.array_split(np.argsort(bounds, kind='stable'), min(_BINS, len(bounds)))
  by_step = (x.mean(axis=0).tolist() for x in (expected_steps, followed_steps, realised_steps))
  return dict(
      moments=len(bounds), mean=float(means.mean()), followed=float(followed_steps.sum(axis=1).mean()),
      bound=float(bounds.mean()), realised=float(realised.mean()),
      above=float(np.mean(bounds >= realised)), above_mean=float(np.mean(means >= realised)),
      above_where_costly=float(np.mean(bounds[costly] >= realised[costly])) if costly.any() else None,
      explained=float(1.0 - np.mean((means - realised)**2) / variance) if variance > 0 else None,
      steps=[dict(expected=expected, followed=followed, realised=came) for expected, followed, came in zip(*by_step)],
      bins=[dict(bound=float(bounds[part].mean()), realised=float(realised[part].mean())) for part in parts])


def describe(result: dict[str, Any]) -> str:
  """A sentence or two for each constraint."""
  return '\n'.join(
      f'{name}: within {result["horizon"]} steps models expect {row["mean"]:.2f} ({row["followed"]:.2f} if they are told '
      f'which actions follow), their bound is {row["bound"]:.2f}, and {row["realised"]:.2f} came ({row["moments"]:,} '
      f'moments of {result["episodes"]} new episodes). The bound was not exceeded in {row["above"]:.1%} of them, the '
      f'mean in {row["above_mean"]:.1%}.'
      + ('' if row['explained'] is None else f' The mean explains {row["explained"]:.0%} of the variance.')
      + _describe_trained(result['trained'].get(name))
      for name, row in result['constraints'].items())


def _describe_trained(row: dict[str, Any] | None) -> str:
  if row is None:
    return ''
  return (f' In episodes of training, played again: {row["mean"]:.2f} expected, {row["bound"]:.2f} as a bound, '
          f'{row["realised"]:.2f} came.')
