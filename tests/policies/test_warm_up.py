import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from lambda_kit.policies import warm_up


def _play(policy, steps, count=2_000):
  """Actions [T, k] of k environments."""
  action, actions = jnp.zeros((count, 1)), []
  for t in range(steps):
    action = policy(jax.random.PRNGKey(t), action, jnp.full((count,), t == 0))
    actions.append(action[:, 0])
  return np.stack(actions)


@pytest.mark.parametrize('correlation', [0.0, 0.6, 0.95])
def test_actions_are_uniform_at_every_step_and_correlated_as_bound(correlation):
  actions = _play(warm_up.CorrelatedActions(correlation), steps=20)
  assert np.all(np.abs(actions) < 1.0)
  for at_step in (actions[0], actions[1], actions[-1]):
    assert stats.kstest(at_step, 'uniform', args=(-1, 2)).pvalue > 1e-3
  gaussian = stats.norm.ppf((actions + 1) / 2)  # u_t.
  for t in (1, 10):
    # Of 2,000 pairs, within four standard errors.
    assert np.corrcoef(gaussian[t], gaussian[t - 1])[0, 1] == pytest.approx(correlation, abs=0.09)


def test_episodes_begin_independently():
  policy, is_first = warm_up.CorrelatedActions(0.99), jnp.arange(2_000) % 2 == 0
  actions = policy(jax.random.PRNGKey(0), jnp.full((2_000, 1), 0.9), is_first)[:, 0]
  assert stats.kstest(actions[is_first], 'uniform', args=(-1, 2)).pvalue > 1e-3
  assert np.all(actions[~is_first] > 0.5)


def test_independent_actions_are_uniform():
  actions = _play(warm_up.uniform_actions, steps=2)
  assert stats.kstest(actions[1], 'uniform', args=(-1, 2)).pvalue > 1e-3
  assert abs(np.corrcoef(actions)[0, 1]) < 0.09


def test_saturated_actions_do_not_stay_for_ever():
  policy, action = warm_up.CorrelatedActions(0.5), jnp.ones((1, 1))
  for t in range(20):
    action = policy(jax.random.PRNGKey(t), action, jnp.array([False]))
  assert np.isfinite(action) and action < 0.999


@pytest.mark.parametrize('correlation', [1.0, -0.1])
def test_a_correlation_out_of_range_is_refused(correlation):
  with pytest.raises(ValueError, match=rf'correlation = {correlation} should be a number, at least 0 and less than 1'):
    warm_up.CorrelatedActions(correlation)
