"""Variational inference where the answer is known."""

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.posteriors import variational
from tests.fakes import posteriors as fakes


def test_the_divergence_is_distraxs():
  mean = jax.random.normal(jax.random.key(0), (3, 2))
  std = jnp.exp(jax.random.normal(jax.random.key(1), (3, 2)))
  expected = distrax.Normal(mean, std).kl_divergence(distrax.Normal(0.0, 0.7))
  assert variational.gaussian_kl(mean, std, 0.7) == pytest.approx(float(jnp.sum(expected)), rel=1e-5)


def test_linear_regression_finds_the_best_factorised_gaussian():
  """y = X w + N(0, s^2) with prior N(0, p^2) has the posterior N(m, L^-1), with L = X^T X / s^2 + I / p^2 and
  m = L^-1 X^T y / s^2. The factorised Gaussian nearest in KL(q || .) has the mean m and variances 1 / L_ii."""
  noise_std, prior_std = 0.5, 1.5
  rng = np.random.default_rng(0)
  x = rng.normal(size=(40, 3)) @ np.array([[1.0, 0.6, 0.0], [0.0, 0.8, 0.0], [0.0, 0.0, 0.3]])  # Correlated.
  y = x @ [1.0, -0.5, 2.0] + noise_std * rng.normal(size=40)
  precision = x.T @ x / noise_std**2 + np.eye(3) / prior_std**2
  mean = np.linalg.solve(precision, x.T @ y / noise_std**2)
  stds = 1 / np.sqrt(np.diag(precision))
  assert abs(stds[0] - np.sqrt(np.linalg.inv(precision)[0, 0])) > 0.1 * stds[0]  # Not the marginal ones.

  def loss(params, key):
    prediction = x[:, :2] @ params['a']['w'][:, 0] + x[:, 2] * params['b'] + params['other']
    return jnp.sum(jnp.square(prediction - y - params['other'])) / (2 * noise_std**2) + (params['other'] - 3) ** 2, ()

  posterior = variational.Variational(
    lambda params: {'a': params['a'], 'b': params['b']},
    initial_std=0.5,
    prior_std=prior_std,
    kl_scale=1.0,
    std_rate_factor=1.0,
    learning_rate=0.01,
    clip_norm=1e4,
  )
  zeros = lambda key: {'a': {'w': jnp.zeros((2, 1))}, 'b': jnp.zeros(()), 'other': jnp.zeros(())}

  @jax.jit
  def train(key):
    def step(state, key):
      state, _, _ = posterior.update(state, loss, key)
      return state, (state.params, jax.tree.map(jax.nn.softplus, state.rho))

    return jax.lax.scan(step, posterior.init(key, zeros), jax.random.split(key, 6000))

  state, history = train(jax.random.key(1))
  # Single draws leave noise on the way; the average over the second half is what they hover about.
  found_mean, found_std = jax.tree.map(lambda leaf: np.asarray(leaf)[3000:].mean(axis=0), history)
  np.testing.assert_allclose([*found_mean['a']['w'][:, 0], found_mean['b']], mean, atol=0.15 * stds.min())
  np.testing.assert_allclose([*found_std['a']['w'][:, 0], found_std['b']], stds, rtol=0.05)
  assert found_mean['other'] == pytest.approx(3.0, abs=0.02)  # A point estimate.
  assert set(state.rho) == {'a', 'b'}


def test_samples_have_the_mean_and_the_standard_deviations():
  posterior = fakes.Jitted(variational.Variational(fakes.select, initial_std=0.3))
  state = posterior.init(jax.random.key(0))
  samples = fakes.to_vectors(posterior.sample(state, jax.random.key(1), 20_000))
  mean = fakes.to_vector(state.params)
  np.testing.assert_allclose(samples.mean(axis=0), mean, atol=5 * 0.3 / np.sqrt(20_000))
  np.testing.assert_allclose(samples.std(axis=0), np.full_like(mean, 0.3), rtol=5 / np.sqrt(2 * 20_000))
  correlations = np.corrcoef(samples, rowvar=False) - np.eye(mean.size)
  assert np.max(np.abs(correlations)) < 5 / np.sqrt(20_000)


def test_standard_deviations_have_a_rate_of_their_own():
  # Adam's first step is its rate. The loss has the slope 1 in theta = mu + std z: nothing but the KL pulls std up.
  posterior = fakes.Jitted(
    variational.Variational(
      fakes.select, initial_std=0.01, learning_rate=1e-3, std_rate_factor=7.0, kl_scale=1e6, clip_norm=1e12
    ),
    fakes.linear_loss(1.0),
  )
  state = posterior.init(jax.random.key(0))
  after, _, metrics = posterior.update(state, jax.random.key(1))
  step = jax.tree.map(lambda new, old: np.asarray(new) - np.asarray(old), after.rho, state.rho)
  for leaf in jax.tree.leaves(step):
    np.testing.assert_allclose(leaf, np.full_like(leaf, 7e-3), rtol=1e-3)
  assert metrics['posterior_spread'] == pytest.approx(0.01, rel=1e-4)


@pytest.mark.parametrize('settings', [dict(initial_std=0.0), dict(prior_std=-1.0), dict(kl_scale=-1.0)])
def test_settings_without_meaning_are_refused(settings):
  ((name, value),) = settings.items()
  with pytest.raises(ValueError, match=rf'Variational\.{name} = {value} should be'):
    variational.Variational(fakes.select, **settings)
