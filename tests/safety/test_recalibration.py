"""Factors of expected costs, against episodes whose costs are arithmetic."""

import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.safety import recalibration

_BIAS = np.array([[0.9, 1.0], [0.5, 2.5], [0.25, 1.0]], np.float32)  # Expected over real costs, [H, C].
_CAME = np.array([[0.1, 2.0], [0.2, 2.0], [0.4, 2.0]], np.float32)


def _after(component, episodes, forecast=_BIAS * _CAME, came=_CAME):
  state = component.init(3, 2)
  for _ in range(episodes):
    state = component.observe(state, jnp.asarray(forecast), jnp.asarray(came))
  return state, np.asarray(component.factors(state, 3, 2))


def test_without_it_costs_are_what_models_expect():
  _, factors = _after(recalibration.NoRecalibration(), 5)
  np.testing.assert_array_equal(factors, np.ones((3, 2)))


def test_factors_are_the_ratio_of_each_step_ahead():
  _, factors = _after(recalibration.HeldOutRatio(prior=0.0, lowest=0.1), 3)
  np.testing.assert_allclose(factors, 1.0 / _BIAS, rtol=1e-4)


def test_the_prior_trusts_first_episodes_less():
  # One episode: m = (1 + 2) / 2 for costs of 1 expected and 2 that came, (2 + 1.5) / (1 + 1.5).
  component = recalibration.HeldOutRatio(memory=2.0, prior=1.0)
  episode = dict(forecast=np.ones((3, 2), np.float32), came=np.full((3, 2), 2.0, np.float32))
  np.testing.assert_allclose(_after(component, 0)[1], 1.0)
  np.testing.assert_allclose(_after(component, 1, **episode)[1], 3.5 / 2.5, rtol=1e-5)
  # Two episodes have averages of 1 and 2 again, and the prior half the weight; a thousand, none, whatever the memory.
  np.testing.assert_allclose(_after(component, 2, **episode)[1], 2.75 / 1.75, rtol=1e-5)
  np.testing.assert_allclose(_after(component, 1000, **episode)[1], 2.0, rtol=1e-3)


def test_it_forgets():
  component = recalibration.HeldOutRatio(memory=2.0, prior=0.0)
  state, _ = _after(component, 50)
  for _ in range(30):
    state = component.observe(state, jnp.ones((3, 2)), jnp.full((3, 2), 1.5))
  np.testing.assert_allclose(component.factors(state, 3, 2), 1.5, rtol=1e-4)


def test_factors_stay_within_their_range():
  _, factors = _after(recalibration.HeldOutRatio(prior=0.0, lowest=0.5, highest=3.0), 3)
  np.testing.assert_allclose(factors, np.clip(1.0 / _BIAS, 0.5, 3.0), rtol=1e-4)


def test_nothing_expected_and_nothing_came_corrects_nothing():
  zeros = np.zeros((3, 2), np.float32)
  np.testing.assert_array_equal(_after(recalibration.HeldOutRatio(), 4, forecast=zeros, came=zeros)[1], 1.0)


def test_an_episode_that_is_not_finite_changes_nothing_but_the_memory():
  component = recalibration.HeldOutRatio(prior=0.0, lowest=0.1)
  state, before = _after(component, 3)
  for bad in (np.nan, np.inf):
    state = component.observe(state, jnp.full((3, 2), bad), jnp.asarray(_CAME))
  np.testing.assert_allclose(component.factors(state, 3, 2), before, rtol=1e-5)


@pytest.mark.parametrize('name, value', [('memory', 0.5), ('prior', -1.0), ('lowest', 0.0), ('highest', 0.9)])
def test_settings_out_of_range_are_refused(name, value):
  with pytest.raises(ValueError, match=rf'HeldOutRatio\.{name} = {value} should be'):
    recalibration.HeldOutRatio(**{name: value})
