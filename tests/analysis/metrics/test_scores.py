"""The paper's metrics on episodes made by hand."""

import numpy as np
import pytest

from lambda_kit.analysis.metrics import scores


def _episodes():
  # Returns 1 + 2 + 3 = 6 and -1 + 0 = -1; costs (0 + 1 + 1, 0) = (2, 0) and (0 + 4, 5 + 5) = (4, 10).
  return [
    scores.summarize_episode([1, 2, 3], [[0, 0], [1, 0], [1, 0]], environment_steps=6),
    scores.summarize_episode([-1, 0], [[0, 5], [4, 5]], environment_steps=4),
  ]


def test_an_episode_is_summed_without_discount():
  first, second = _episodes()
  assert (first.episode_return, second.episode_return) == (6, -1)
  assert first.cost_return.tolist() == [2, 0] and second.cost_return.tolist() == [4, 10]
  assert (first.length, first.environment_steps) == (3, 6)


def test_averages_are_over_episodes_not_steps():
  assert scores.average_return(_episodes()) == 2.5  # (6 - 1) / 2.
  assert scores.average_cost_return(_episodes()).tolist() == [3, 5]  # (2 + 4) / 2 and (0 + 10) / 2.


def test_cost_regret_is_per_environment_step():
  # 6 and 10 in all, over 10 simulator steps (not the 5 agent steps).
  total = sum(episode.cost_return for episode in _episodes())
  assert scores.cost_regret(total, 10).tolist() == [0.6, 1.0]
  assert scores.cost_regret(np.zeros(2), 0).tolist() == [0, 0]


def test_shapes_that_do_not_fit_are_refused():
  with pytest.raises(ValueError, match=r'\[T, C\]'):
    scores.summarize_episode([1, 2], [1, 2], 2)
  with pytest.raises(ValueError, match=r'\[T, C\]'):
    scores.summarize_episode([1, 2], [[1]], 2)
