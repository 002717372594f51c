"""Heads: expectations, likelihoods, and what the weight of unsafe steps does."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
from pytest import approx

from lambda_kit import types
from lambda_kit.models import heads

_LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)


def _fit(features: np.ndarray, cost: np.ndarray, **kwargs):
  """Trains a logistic regression, `BernoulliCost` without hidden layers. Returns features -> costs."""
  transformed = hk.without_apply_rng(
    hk.transform(lambda x: vars(heads.BernoulliCost(1, hidden_sizes=(), name='cost', **kwargs)(x))['logits'])
  )
  predict = lambda params, x: heads.BernoulliCosts(
    transformed.apply(params, x),
    kwargs['unsafe_weight'],
    kwargs['correct_for_weight'],
    kwargs['action_repeat'],
    kwargs.get('count_repeats', False),
  )
  loss = lambda params: -predict(params, features).log_prob(cost).mean()
  optimizer = optax.adam(0.1)
  params = transformed.init(jax.random.key(0), features)

  def step(carry, _):
    params, state = carry
    updates, state = optimizer.update(jax.grad(loss)(params), state)
    return (optax.apply_updates(params, updates), state), None

  (params, _), _ = jax.jit(lambda x: jax.lax.scan(step, x, None, 1_000))((params, optimizer.init(params)))
  return lambda x: predict(params, x)


class PredictionsTest(parameterized.TestCase):
  def test_normal(self):
    prediction = heads.Normal(jnp.array([1.0, -1.0]))
    np.testing.assert_allclose(prediction.expectation(), [1.0, -1.0])
    # Errors of 0 and 2.
    np.testing.assert_allclose(
      prediction.log_prob(jnp.array([1.0, 1.0])), [-_LOG_SQRT_2PI, -2.0 - _LOG_SQRT_2PI], rtol=1e-6
    )

  def test_bernoulli(self):
    # Odds of 3 : 1.
    prediction = heads.Bernoulli(jnp.log(jnp.array([3.0, 3.0])))
    np.testing.assert_allclose(prediction.expectation(), [0.75, 0.75], rtol=1e-6)
    np.testing.assert_allclose(prediction.log_prob(jnp.array([1.0, 0.0])), np.log([0.75, 0.25]), rtol=1e-6)

  def test_normal_costs(self):
    prediction = heads.NormalCosts(jnp.array([[1.0, 2.0]]))
    np.testing.assert_allclose(prediction.expectation(), [[1.0, 2.0]])
    # Errors of 1 and 2: -(1 + 4) / 2 and two constants.
    np.testing.assert_allclose(prediction.log_prob(jnp.array([[0.0, 4.0]])), [-2.5 - 2.0 * _LOG_SQRT_2PI], rtol=1e-6)

  @parameterized.parameters(
    (1.0, False, 0.75),
    (100.0, False, 0.75),
    (1.0, True, 0.75),
    (100.0, True, 0.75 / (0.75 + 100.0 * 0.25)),  # p / (p + w (1 - p))
  )
  def test_bernoulli_costs(self, weight, correct, probability):
    prediction = heads.BernoulliCosts(jnp.log(jnp.full((1, 2), 3.0)), weight, correct, action_repeat=2)
    np.testing.assert_allclose(prediction.probability(), [[probability] * 2], rtol=1e-5)
    np.testing.assert_allclose(prediction.expectation(), [[2.0 * probability] * 2], rtol=1e-5)
    # The first cost is above 0 (2, summed over repeated steps), the second is not. The correction is no part of it.
    log_prob = prediction.log_prob(jnp.array([[2.0, 0.0]]))
    np.testing.assert_allclose(log_prob, [weight * np.log(0.75) + np.log(0.25)], rtol=1e-5)

  def test_repeats_are_counted(self):
    # Odds of 3 : 1. Of 4 repeated steps 1, 4 and 0 cost something; 5 is as many as 4.
    prediction = heads.BernoulliCosts(jnp.log(jnp.full((4, 1), 3.0)), 10.0, False, action_repeat=4, count_repeats=True)
    log_prob = prediction.log_prob(jnp.array([[1.0], [4.0], [0.0], [5.0]]))
    yes, no = np.log(0.75), np.log(0.25)
    np.testing.assert_allclose(log_prob, [2.5 * yes + 0.75 * no, 10.0 * yes, no, 10.0 * yes], rtol=1e-5)
    np.testing.assert_allclose(prediction.expectation(), np.full((4, 1), 3.0), rtol=1e-6)

  @parameterized.parameters(
    # Of a probability of 3/4, 4 repeated steps: all or none, or each by itself. Then factors beyond what can be.
    (False, 0.5, {0.0: 5 / 8, 4.0: 3 / 8}),
    (True, 0.5, {k: math.comb(4, k) * 0.375**k * 0.625 ** (4 - k) for k in range(5)}),
    (False, 2.0, {4.0: 1.0}),
    (True, 2.0, {4.0: 1.0}),
  )
  def test_costs_are_drawn_as_expected(self, count_repeats, factor, shares):
    logits = jnp.log(jnp.full((20_000, 1), 3.0))
    prediction = heads.BernoulliCosts(logits, 10.0, False, action_repeat=4, count_repeats=count_repeats)
    draws = np.asarray(prediction.draw(jnp.full((20_000, 1), factor), jax.random.PRNGKey(0)))
    assert draws.shape == (20_000, 1) and set(np.unique(draws)) == set(shares)
    for cost, share in shares.items():
      assert np.mean(draws == cost) == approx(share, abs=0.014)  # Four standard errors.

  def test_costs_of_real_numbers_have_unit_noise(self):
    draws = heads.NormalCosts(jnp.full((20_000, 1), 3.0)).draw(jnp.full((20_000, 1), 2.0), jax.random.PRNGKey(0))
    assert np.mean(draws) == approx(6.0, abs=0.03) and np.std(draws) == approx(1.0, abs=0.03)

  def test_weights_are_positive(self):
    with self.assertRaisesRegex(ValueError, 'BernoulliCost.unsafe_weight'):
      jax.eval_shape(
        hk.transform(lambda x: heads.BernoulliCost(1, 1, unsafe_weight=0.0)(x).logits).init,
        jax.random.key(0),
        jnp.zeros((1, 1)),
      )


class ImbalanceTest(absltest.TestCase):
  def test_calibration(self):
    # Two kinds of steps, which are unsafe in 10 and 60 of 1,000 cases. The weighted loss has its minimum at
    # w q / (w q + 1 - q): 1 / 1.99 = 0.5025 for q = 0.01, 6 / 6.94 = 0.8646 for q = 0.06 at w = 100.
    kind = np.repeat([[0.0], [1.0]], 1_000, axis=0).astype(np.float32)
    cost = np.concatenate([np.arange(1_000) < 10, np.arange(1_000) < 60])[:, None].astype(np.float32)
    kinds = np.array([[0.0], [1.0]], np.float32)
    inflated = _fit(kind, cost, unsafe_weight=100.0, correct_for_weight=False, action_repeat=1)
    np.testing.assert_allclose(inflated(kinds).expectation(), [[0.5025], [0.8646]], atol=1e-3)
    self.assertGreater(inflated(kind).expectation().mean() / cost.mean(), 15.0)
    corrected = _fit(kind, cost, unsafe_weight=100.0, correct_for_weight=True, action_repeat=1)
    np.testing.assert_allclose(corrected(kinds).expectation(), [[0.01], [0.06]], rtol=0.01)
    np.testing.assert_allclose(corrected(kind).expectation().mean(), cost.mean(), rtol=0.01)
    # Without a weight there is nothing to correct.
    plain = _fit(kind, cost, unsafe_weight=1.0, correct_for_weight=False, action_repeat=2)
    np.testing.assert_allclose(plain(kinds).expectation(), [[0.02], [0.12]], rtol=0.01)

  def test_calibration_with_repeats(self):
    # One of ten agent steps touches a hazard with 1 of its 4 simulator steps: 0.1 an agent step. By the indicator, 0.4.
    features = np.zeros((1_000, 1), np.float32)
    cost = (np.arange(1_000) % 10 == 0)[:, None].astype(np.float32)
    settings = dict(unsafe_weight=10.0, correct_for_weight=True, action_repeat=4)
    np.testing.assert_allclose(_fit(features, cost, **settings)(features[:1]).expectation(), [[0.4]], rtol=0.01)
    np.testing.assert_allclose(
      _fit(features, cost, count_repeats=True, **settings)(features[:1]).expectation(), [[0.1]], rtol=0.01
    )

  def test_weights_raise_recall(self):
    # 1 % of steps are unsafe, with features around 2 rather than 0: where they are as likely as safe ones, at
    # 1 + log(99) / 2 = 3.3, few of them (10 %) are beyond. A weight of 100 moves this to 1.0, where 84 % are.
    rng = np.random.default_rng(0)
    cost = (np.arange(10_000) < 100)[:, None].astype(np.float32)
    features = (2.0 * cost + rng.normal(size=cost.shape)).astype(np.float32)
    recall = {}
    for weight in (1.0, 100.0):
      prediction = _fit(features, cost, unsafe_weight=weight, correct_for_weight=False, action_repeat=1)(features)
      recall[weight] = float((prediction.probability() > 0.5)[cost > 0].mean())
    self.assertLess(recall[1.0], 0.3)
    self.assertGreater(recall[100.0], 0.7)


class HeadsTest(parameterized.TestCase):
  @parameterized.parameters(heads.BernoulliCost, heads.NormalCost)
  def test_shapes(self, cost_factory):

    def functions():
      all_heads = heads.Heads(3, 2, heads.NormalHead, cost_factory, heads.BernoulliHead)
      return all_heads.evaluate, (all_heads.evaluate, all_heads.predict)

    transformed = hk.without_apply_rng(hk.multi_transform(functions))
    features = jnp.ones((4, 5, 6))
    batch = types.Trajectory({}, None, jnp.zeros((4, 5)), jnp.ones((4, 5, 3)), jnp.zeros((4, 5)))
    params = jax.eval_shape(transformed.init, jax.random.key(0), features, batch)
    self.assertEqual({name.split('/')[0] for name in params}, set(heads.Heads.NAMES))
    self.assertEqual(
      [params[f'cost/~/mlp/~/{layer}']['w'].shape for layer in ('hidden_0', 'hidden_1', 'output')],
      [(6, 400), (400, 400), (400, 3)],
    )
    evaluate, predict = transformed.apply
    log_probs, predictions = jax.eval_shape(evaluate, params, features, batch)
    self.assertEqual(
      {name: value.shape for name, value in log_probs.items()}, {'reward': (4, 5), 'cost': (4, 5), 'terminal': (4, 5)}
    )
    self.assertEqual(jax.tree.map(lambda x: x.shape, predictions), types.Predictions((4, 5), (4, 5, 3), (4, 5)))
    self.assertEqual(jax.eval_shape(predict, params, features), predictions)

  def test_metrics(self):
    predictions = types.Predictions(jnp.array([[1.0, 2.0]]), jnp.array([[[0.5], [0.1]]]), jnp.array([[1.0, 1.0]]))
    batch = types.Trajectory({}, None, jnp.array([[1.0, 4.0]]), jnp.array([[[1.0], [0.0]]]), jnp.zeros((1, 2)))
    metrics = heads.metrics(predictions, batch)
    np.testing.assert_allclose(
      [metrics['reward_mse'], metrics['cost_mean'], metrics['cost_expected']], [2.0, 0.5, 0.3], rtol=1e-6
    )


if __name__ == '__main__':
  absltest.main()
