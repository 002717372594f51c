"""Advantages against a loop over each episode by itself."""

import jax
import numpy as np
import pytest

from lambda_kit.agents.on_policy import gae


def _by_loops(rewards, discounts, is_last, values, next_values, lambda_):
  """Each advantage as a sum of its own, from its definition."""
  result = []
  for t in range(len(rewards)):
    total, weight = 0.0, 1.0
    for i in range(t, len(rewards)):
      total += weight * (rewards[i] + discounts[i] * next_values[i] - values[i])
      weight *= discounts[i] * lambda_
      if is_last[i]:
        break
    result.append(total)
  return np.array(result)


@pytest.mark.parametrize('lambda_', [0.0, 0.97, 1.0])
def test_advantages_of_several_episodes_are_those_of_a_loop(lambda_):
  rng = np.random.default_rng(1)
  rewards, values = rng.normal(size=(2, 12))
  # A time limit after step 3, a true end after step 7, and the end of the rollout.
  is_last = np.isin(np.arange(12), [3, 7, 11])
  discounts = np.where(np.arange(12) == 7, 0.0, 0.99)
  # Within an episode the next value is that of the next observation; at its end it is another one.
  next_values = np.where(is_last, rng.normal(size=12), np.append(values[1:], 0.0))
  found = jax.jit(gae.advantages)(
    *(np.asarray(x, np.float32) for x in (rewards, discounts)),
    is_last,
    *(np.asarray(x, np.float32) for x in (values, next_values)),
    lambda_,
  )
  expected = _by_loops(rewards, discounts, is_last, values, next_values, lambda_)
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_time_limits_bootstrap_and_true_ends_do_not():
  arrays = lambda *values: np.array(values, np.float32)
  # One step each. Time limit: 1 + 0.5 * 10 - 2 = 4. True end: 1 - 2 = -1. Nothing leaks from the second into the first.
  found = gae.advantages(arrays(1, 1), arrays(0.5, 0.0), np.array([True, True]), arrays(2, 2), arrays(10, 10), 0.9)
  np.testing.assert_allclose(found, [4.0, -1.0])
