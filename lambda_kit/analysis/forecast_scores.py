"""How good forecasts of costs were: ratios, coverage, reliability, sharpness and proper scores, as pure functions.

Letters beside the common legend: E episodes, S start states of an episode, M costs drawn by the models for each.
"""

from collections.abc import Callable, Sequence
import math
from typing import Any, NamedTuple

import chex
import numpy as np

from lambda_kit.analysis.metrics import ratios
from lambda_kit.analysis.metrics import statistics

LEVELS = (0.5, 0.8, 0.9, 0.95)  # Of intervals whose coverage is measured.

_BINS = 10
_DIGITS = 4  # Significant ones, in JSON.


class Episode(NamedTuple):
  """Forecasts from S start states of an episode, and what came. One constraint."""

  raw_forecast: np.ndarray  # [S, H], cost that models expect of each step ahead.
  forecast: np.ndarray  # [S, H], the same, corrected as the agent corrects it.
  disagreement: np.ndarray  # [S], standard deviation over samples of what they expect of H steps.
  bound: np.ndarray  # [S, H], of each step; summed over steps the bound on the cost of H steps.
  draws: np.ndarray  # [S, M], costs of H steps drawn from the models.
  observed: np.ndarray  # [S, H], the cost that came.


def score(episodes: Sequence[Episode], bound_level: float | None, seed: int = 0) -> dict[str, Any]:
  """Scores forecasts of one cost. Every figure is a ratio of sums over episodes, so that all intervals are alike.

  Args:
    episodes: E of them.
    bound_level: What the bound promises, see `types.CostForecaster`.
    seed: Of the bootstrap.

  Returns:
    [value, low, high] with a 90% interval where nothing else is said; null is unknown or without limit.
    `observed`: Mean cost of H steps.
    `raw_forecast_over_observed`, `forecast_over_observed`, `bound_over_observed`: Ratios of mean costs of H steps.
    `bound`: `covered`, the share of start states where the cost that came was at most the bound; `promised`, a number,
      the share of costs drawn by the models that are; `level`, k / (N + 1) if the bound selects the k-th smallest of N
      samples; `covered_at_level`, the share of costs that are at most this quantile of the draws.
    `upper`, `central`: By `level` of an interval of the models' draws, the share `covered` of costs that came.
    `ranks`: Shares of costs in tenths of the models' draws (a histogram of the PIT): all 0.1 if calibrated.
    `bins`: Reliability. For start states sorted by forecast, in up to ten parts: their `share` of all, the mean
      `forecast`, and `observed`.
    `steps`: For the 1st, 2nd, ... step ahead, means of `observed`, `raw_forecast`, `forecast`, `bound` (numbers), and
      the two ratios.
    `sharpness`: `spread`, mean standard deviation of the draws from one start state; `disagreement`, that of samples'
      expectations; `deviation`, standard deviation of forecasts over start states. Numbers.
    `event`: Whether there is any cost in H steps. The mean `forecast` of its probability, how often it was `observed`,
      `brier` and `log_loss`, and what both are if the frequency is always forecast (`uninformed_*`, numbers).
  """
  for episode in episodes:
    chex.assert_equal_shape([episode.raw_forecast, episode.forecast, episode.bound, episode.observed])
    chex.assert_equal_shape_prefix([*episode], 1)
  over_episodes = lambda function: np.stack([function(episode) for episode in episodes])  # [E, ...]
  starts = over_episodes(lambda episode: len(episode.observed))

  def mean(function: Callable[[Episode], np.ndarray]) -> statistics.Estimate:
    """Over start states, of what has the shape [S, ...]."""
    sums = over_episodes(lambda episode: np.sum(function(episode), axis=0, dtype=np.float64))
    return ratios.ratio_of_sums(sums, starts.reshape(-1, *[1] * (sums.ndim - 1)), seed)

  total = lambda x: x.sum(axis=1, dtype=np.float64)  # Of H steps, [S].
  sums = {
    name: over_episodes(lambda episode, name=name: getattr(episode, name).sum(axis=0, dtype=np.float64))
    for name in ('observed', 'raw_forecast', 'forecast', 'bound')
  }  # [E, H]
  relative = lambda name: ratios.ratio_of_sums(sums[name].sum(axis=1), sums['observed'].sum(axis=1), seed)
  relative_steps = lambda name: ratios.ratio_of_sums(sums[name], sums['observed'], seed)
  ranks = lambda episode, edges: np.diff(below(total(episode.observed), episode.draws, np.asarray(edges)))
  inside = lambda low, high: mean(lambda episode: ranks(episode, [low, high])[:, 0])
  tenths = mean(lambda episode: ranks(episode, np.linspace(0.0, 1.0, _BINS + 1)))
  steps_ahead = {name: values.sum(axis=0) / starts.sum() for name, values in sums.items()}
  forecast_steps, bound_steps = relative_steps('forecast'), relative_steps('bound')
  return dict(
    observed=to_json(mean(lambda episode: total(episode.observed))),
    raw_forecast_over_observed=to_json(relative('raw_forecast')),
    forecast_over_observed=to_json(relative('forecast')),
    bound_over_observed=to_json(relative('bound')),
    bound=dict(
      covered=to_json(mean(lambda episode: total(episode.bound) >= total(episode.observed))),
      promised=_number(mean(lambda episode: np.mean(episode.draws <= total(episode.bound)[:, None], axis=1)).value),
      level=None if bound_level is None else _number(bound_level),
      covered_at_level=None if bound_level is None else to_json(inside(0.0, bound_level)),
    ),
    upper=[dict(level=level, covered=to_json(inside(0.0, level))) for level in LEVELS],
    central=[dict(level=level, covered=to_json(inside((1.0 - level) / 2, (1.0 + level) / 2))) for level in LEVELS],
    ranks=_each_to_json(tenths),
    bins=_reliability(episodes, seed),
    steps=[
      dict(
        {name: _number(values[h]) for name, values in steps_ahead.items()},
        forecast_over_observed=ahead,
        bound_over_observed=bound_ahead,
      )
      for h, (ahead, bound_ahead) in enumerate(zip(_each_to_json(forecast_steps), _each_to_json(bound_steps)))
    ],
    sharpness=dict(
      spread=_number(mean(lambda episode: np.std(episode.draws, axis=1, ddof=1)).value),
      disagreement=_number(mean(lambda episode: episode.disagreement).value),
      deviation=_number(np.std(np.concatenate([total(episode.forecast) for episode in episodes]))),
    ),
    event=_event_scores(episodes, mean),
  )


def below(observed: np.ndarray, draws: np.ndarray, levels: np.ndarray) -> np.ndarray:
  """How much of each observed cost [S] is below quantiles of draws [S, M] at levels [Q]: [S, Q] in [0, 1].

  With l draws below and e equal to the observed cost, its rank is anywhere between l / (M + 1) and
  (l + e + 1) / (M + 1). If it is exchangeable with the draws, the mean is the level for every M, also where most costs
  are 0: the probability integral transform for discrete outcomes, with its randomisation averaged (Czado et al. 2009).
  """
  first = (draws < observed[:, None]).sum(axis=1)[:, None]
  equal = (draws == observed[:, None]).sum(axis=1)[:, None]
  return np.clip((levels * (draws.shape[1] + 1) - first) / (equal + 1), 0.0, 1.0)


def _reliability(episodes: Sequence[Episode], seed: int) -> list[dict[str, Any]]:
  forecasts = [episode.forecast.sum(axis=1, dtype=np.float64) for episode in episodes]
  edges = np.unique(np.quantile(np.concatenate(forecasts), np.linspace(0.0, 1.0, _BINS + 1)[1:-1]))
  members = [np.eye(len(edges) + 1)[np.searchsorted(edges, forecast, 'right')] for forecast in forecasts]  # [S, G]
  in_bins = lambda values: np.stack([part.T @ value for part, value in zip(members, values)])  # [E, G]
  counts = in_bins([np.ones(len(forecast)) for forecast in forecasts])
  observed = ratios.ratio_of_sums(in_bins([episode.observed.sum(axis=1) for episode in episodes]), counts, seed)
  sizes = counts.sum(axis=0)
  means = in_bins(forecasts).sum(axis=0) / np.maximum(sizes, 1.0)
  return [
    dict(share=_number(size / sizes.sum()), forecast=_number(forecast), observed=came)
    for size, forecast, came in zip(sizes, means, _each_to_json(observed))
    if size
  ]


def _event_scores(
  episodes: Sequence[Episode], mean: Callable[[Callable[[Episode], np.ndarray]], statistics.Estimate]
) -> dict[str, Any]:
  happened = lambda episode: episode.observed.sum(axis=1) > 0
  share = lambda episode: np.mean(episode.draws > 0, axis=1)
  num_draws = episodes[0].draws.shape[1]

  def brier(episode):
    probability = share(episode)  # Itself an estimate: its variance would else be held against the forecast.
    return (probability - happened(episode)) ** 2 - probability * (1.0 - probability) / (num_draws - 1)

  def log_loss(episode):
    probability = (num_draws * share(episode) + 0.5) / (num_draws + 1.0)  # Never 0 or 1.
    return -np.log(np.where(happened(episode), probability, 1.0 - probability))

  observed = mean(happened)
  frequency = float(observed.value)
  certain = frequency in (0.0, 1.0)
  return dict(
    forecast=_number(mean(share).value),
    observed=to_json(observed),
    brier=to_json(mean(brier)),
    log_loss=to_json(mean(log_loss)),
    uninformed_brier=_number(frequency * (1.0 - frequency)),
    uninformed_log_loss=0.0
    if certain
    else _number(-frequency * math.log(frequency) - (1.0 - frequency) * math.log(1.0 - frequency)),
  )


def to_json(estimate: statistics.Estimate) -> list[float | None]:
  """[value, low, high] of a scalar."""
  return [_number(x) for x in estimate]


def _each_to_json(estimate: statistics.Estimate) -> list[list[float | None]]:
  return [to_json(statistics.Estimate(*each)) for each in zip(*estimate)]


def _number(value: Any) -> float | None:
  return float(f'{float(value):.{_DIGITS}g}') if math.isfinite(value) else None
