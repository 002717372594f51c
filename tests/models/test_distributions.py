"""Distributions against distrax."""

from absl.testing import absltest
import distrax
import jax
import jax.numpy as jnp
import numpy as np

from lambda_kit.models import distributions


def _gaussian(seed: int) -> distributions.Gaussian:
  mean, raw = jax.random.normal(jax.random.key(seed), (2, 3, 4))
  return distributions.Gaussian(mean, jnp.exp(raw))


def _reference(gaussian: distributions.Gaussian) -> distrax.Distribution:
  return distrax.MultivariateNormalDiag(gaussian.mean, gaussian.stddev)


class DistributionsTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.enter_context(jax.numpy_rank_promotion('allow'))  # For distrax.

  def test_gaussian(self):
    p, q = _gaussian(0), _gaussian(1)
    np.testing.assert_allclose(distributions.kl_divergence(p, q), _reference(p).kl_divergence(_reference(q)), rtol=1e-5)
    np.testing.assert_allclose(distributions.kl_divergence(p, p), np.zeros(3), atol=1e-6)
    np.testing.assert_allclose(p.log_prob(q.mean), _reference(p).log_prob(q.mean), rtol=1e-5)
    np.testing.assert_allclose(p.entropy(), _reference(p).entropy(), rtol=1e-5)

  def test_samples_have_the_moments(self):
    p = _gaussian(0)
    noise = jax.random.normal(jax.random.key(1), (20_000, 3, 4))
    samples = jax.vmap(p.sample)(noise)
    np.testing.assert_allclose(samples.mean(0), p.mean, atol=0.05 * p.stddev.max())
    np.testing.assert_allclose(samples.std(0), p.stddev, rtol=0.05)

  def test_stddev_is_softplus_and_a_minimum(self):
    # softplus(0) = log 2; softplus of very negative numbers is 0.
    p = distributions.gaussian(jnp.array([1.0, 2.0, 0.0, -100.0]), min_stddev=0.1)
    np.testing.assert_allclose(p.mean, [1.0, 2.0])
    np.testing.assert_allclose(p.stddev, [np.log(2.0) + 0.1, 0.1], rtol=1e-6)

  def test_normal_and_bernoulli(self):
    x = jnp.array([-200.0, -1.0, 0.0, 2.0, 200.0])
    np.testing.assert_allclose(
      distributions.normal_log_prob(x, x[::-1]), distrax.Normal(x[::-1], jnp.ones(5)).log_prob(x), rtol=1e-6
    )
    for event in (0.0, 1.0):
      events = jnp.full(5, event)
      np.testing.assert_allclose(
        distributions.bernoulli_log_prob(events, x), distrax.Bernoulli(logits=x).log_prob(events), rtol=1e-5
      )


if __name__ == '__main__':
  absltest.main()
