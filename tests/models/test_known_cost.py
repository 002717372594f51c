"""Costs that are known functions of the observation: the head's arithmetic, and what it is trained on."""

import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from lambda_kit import types
from lambda_kit.models import heads
from lambda_kit.models import known_cost

# Two costs at two time steps: half a standard deviation outside, one inside, at the edge, far outside.
_MEAN = np.array([[0.1, -0.3], [0.0, 30.0]], np.float32)
_STDDEV = np.array([[0.2, 0.3], [5.0, 0.1]], np.float32)
_INSIDE = stats.norm.cdf([[-0.5, 1.0], [0.0, -300.0]])


def _costs(action_repeat=4):
  return known_cost.KnownCosts(jnp.asarray(_MEAN), jnp.asarray(_STDDEV), action_repeat)


def test_expected_costs_are_those_of_being_inside():
  np.testing.assert_allclose(_costs().probability(), _INSIDE, rtol=1e-5)
  np.testing.assert_allclose(_costs().expectation(), 4.0 * _INSIDE, rtol=1e-5)


def test_margins_are_what_is_learned():
  margin = np.array([[0.3, -0.3], [2.0, 29.9]], np.float32)
  expected = stats.norm.logpdf(margin, _MEAN, _STDDEV).sum(axis=1)
  np.testing.assert_allclose(_costs().log_prob(margin), expected, rtol=1e-4)


def test_costs_are_what_is_scored():
  # Of four simulator steps one and all had a cost, then five, which count as four, and none.
  cost = np.array([[1.0, 4.0], [5.0, 0.0]], np.float32)
  yes, no = np.log(_INSIDE[0]), np.log(1.0 - _INSIDE[0])
  expected = [0.25 * yes[0] + 0.75 * no[0] + yes[1], np.log(0.5)]
  np.testing.assert_allclose(_costs().log_likelihood(cost), expected, rtol=1e-5)
  # What can't be is as likely as once in 10,000.
  np.testing.assert_allclose(
    _costs().log_likelihood(np.array([[1.0, 4.0], [5.0, 4.0]])), [expected[0], np.log(0.5) + np.log(1e-4)], rtol=1e-5
  )


@pytest.mark.parametrize('factor', [0.5, 1.0, 2.0])
def test_costs_are_drawn_with_their_probability(factor):
  keys = jax.random.split(jax.random.PRNGKey(0), 20_000)
  draws = np.asarray(jax.vmap(lambda key: _costs().draw(jnp.full((2, 2), factor), key))(keys))
  assert set(np.unique(draws)) == {0.0, 4.0}
  # Within four standard errors of at most 0.5 / sqrt(20,000).
  np.testing.assert_allclose(np.mean(draws == 4.0, axis=0), np.minimum(factor * _INSIDE, 1.0), atol=0.0142)


@pytest.mark.parametrize('costs', [known_cost.KnownCosts, heads.NormalCosts, heads.BernoulliCosts])
def test_predictions_of_costs_are_whole(costs):
  """What `heads.CostPrediction` asks for: calibration needs draws, which training doesn't."""
  asked = {name for base in heads.CostPrediction.__mro__ for name in vars(base) if not name.startswith('_')}
  assert {'log_prob', 'expectation', 'log_likelihood', 'draw'} <= asked and all(hasattr(costs, name) for name in asked)


def test_expected_costs_have_a_gradient_outside():
  expectation = lambda mean: known_cost.KnownCosts(mean, jnp.asarray(_STDDEV), 4).expectation().sum()
  # Of 4 Phi(-m / s): -4 phi(m / s) / s.
  expected = -4.0 * stats.norm.pdf(_MEAN / _STDDEV) / _STDDEV
  np.testing.assert_allclose(jax.grad(expectation)(jnp.asarray(_MEAN)), expected, rtol=1e-5, atol=1e-12)


def _functions(margin, num_constraints=1, **kwargs):
  factory = functools.partial(known_cost.KnownCost, margin=margin, hidden_sizes=(16,), **kwargs)

  def functions():
    all_heads = heads.Heads(num_constraints, 4, heads.NormalHead, factory, heads.BernoulliHead)
    return all_heads.evaluate, (all_heads.evaluate, all_heads.predict, all_heads.log_likelihood)

  return hk.without_apply_rng(hk.multi_transform(functions))


def _batch(raw, num_constraints=1):
  shape = raw.shape[:2]
  zeros = jnp.zeros(shape)
  normalized = {'vector': (raw - 3.0) / 2.0}
  return types.Trajectory(normalized, None, zeros, jnp.zeros((*shape, num_constraints)), zeros, {'vector': raw})


def test_the_margin_is_of_the_observation_as_it_came():
  raw = jax.random.uniform(jax.random.key(0), (3, 4, 2), minval=-1.0, maxval=1.0)
  batch, features = _batch(raw), jnp.ones((3, 4, 5))
  transformed = _functions(lambda observation: observation['vector'][..., :1])
  params = transformed.init(jax.random.key(1), features, batch)
  evaluate, predict, _ = transformed.apply
  log_probs, predictions = evaluate(params, features, batch)
  np.testing.assert_array_equal(predictions.cost, predict(params, features).cost)
  # Where no raw observation is given, the observation is one.
  same = evaluate(params, features, batch._replace(observation={'vector': raw}, raw=None))[0]
  np.testing.assert_array_equal(log_probs['cost'], same['cost'])
  assert not np.allclose(log_probs['cost'], evaluate(params, features, batch._replace(raw=None))[0]['cost'])


def test_it_learns_where_costs_begin_without_a_cost():
  """All features are outside, and none has a cost; where the margin ends is inside."""
  rng = np.random.default_rng(0)
  features = rng.uniform(0.2, 1.0, (1, 512, 1)).astype(np.float32)
  transformed = _functions(lambda observation: observation['vector'], min_stddev=0.02)
  batch = _batch(jnp.asarray(features))
  params = transformed.init(jax.random.key(1), features, batch)
  evaluate, predict, _ = transformed.apply
  loss = lambda params: -evaluate(params, features, batch)[0]['cost'].mean()

  @jax.jit
  def fit(params):
    step = lambda _, p: jax.tree.map(lambda x, g: x - 0.003 * jnp.clip(g, -5.0, 5.0), p, jax.grad(loss)(p))
    return jax.lax.fori_loop(0, 3_000, step, params)

  params = fit(params)
  cost = predict(params, jnp.array([[[0.6], [0.25], [-0.2]]])).cost[0, :, 0]
  assert cost[0] < 0.01 and cost[1] < 1.0 < 3.0 < cost[2]


def test_one_margin_for_each_cost():
  transformed = _functions(lambda observation: observation['vector'][..., :1], num_constraints=2)
  with pytest.raises(ValueError, match=r'KnownCost.margin returns \[3, 4, 1\], but there are 2 costs: \[3, 4, 2\]'):
    transformed.init(jax.random.key(0), jnp.ones((3, 4, 5)), _batch(jnp.ones((3, 4, 2)), num_constraints=2))


def test_deviations_are_positive():
  with pytest.raises(ValueError, match='KnownCost.min_stddev = 0.0 should be a finite number, more than 0'):
    _functions(lambda observation: observation['vector'], min_stddev=0.0).init(
      jax.random.key(0), jnp.ones((3, 4, 5)), _batch(jnp.ones((3, 4, 1)))
    )
