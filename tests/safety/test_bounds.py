"""Bounds against arithmetic, against each other and against finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gin
from lambda_kit.safety import bounds

ALL = {
  'upper': bounds.UpperBound(),
  'lower': bounds.LowerBound(),
  'mean': bounds.MeanBound(),
  'quantile': bounds.QuantileBound(0.8),
  'mean_plus_std': bounds.MeanPlusStdBound(1.5),
  'mean_minus_std': bounds.MeanPlusStdBound(-1.5),
}


def _value(bound, estimates):
  estimates = np.asarray(estimates, np.float32)
  return float(np.sum(bound(jnp.asarray(estimates)) * estimates))


@pytest.fixture
def random_estimates():
  return np.random.default_rng(0).normal(size=(20, 7)).astype(np.float32)


class TestBounds:
  def test_selections_are_one_hot(self):
    estimates = jnp.array([2.0, -1.0, 5.0, 3.0])
    assert bounds.UpperBound()(estimates).tolist() == [0, 0, 1, 0]
    assert bounds.LowerBound()(estimates).tolist() == [0, 1, 0, 0]
    assert bounds.MeanBound()(estimates).tolist() == [0.25] * 4

  @pytest.mark.parametrize(
    'q, expected',
    [
      (0.0, -1.0),  # The smallest.
      (0.25, -1.0),  # One of four, -1, is as large as a quarter of them.
      (0.26, 2.0),  # ceil(1.04) = 2nd smallest.
      (0.5, 2.0),
      (0.75, 3.0),
      (0.8, 5.0),
      (1.0, 5.0),
    ],
  )
  def test_a_quantile_is_an_order_statistic(self, q, expected):
    weights = bounds.QuantileBound(q)(jnp.array([2.0, -1.0, 5.0, 3.0]))
    assert sorted(weights.tolist()) == [0, 0, 0, 1]
    assert _value(bounds.QuantileBound(q), [2.0, -1.0, 5.0, 3.0]) == expected

  @pytest.mark.parametrize('size', [1, 2, 5, 10])
  def test_quantiles_are_those_of_numpy(self, size):
    estimates = np.random.default_rng(size).permutation(size).astype(np.float32)
    for q in (0.0, 0.1, 0.3, 0.5, 0.6, 0.75, 0.9, 1.0):
      assert _value(bounds.QuantileBound(q), estimates) == np.quantile(estimates, q, method='inverted_cdf')

  def test_the_rounding_of_q_does_not_move_the_rank(self):
    assert 0.28 * 25 > 7  # Which would be rounded up to the 8th.
    assert _value(bounds.QuantileBound(0.28), range(1, 26)) == 7

  def test_mean_plus_std_by_hand(self):
    # Estimates 1, 1, 4: mean 2, deviations -1, -1, 2, std^2 = (1 + 1 + 4) / 3 = 2.
    # With beta = sqrt(2): weights (1 + deviation) / 3 = 0, 0, 1. The bound is 2 + sqrt(2) sqrt(2) = 4.
    bound = bounds.MeanPlusStdBound(beta=2**0.5)
    np.testing.assert_allclose(bound(jnp.array([1.0, 1.0, 4.0])), [0, 0, 1], atol=1e-6)
    assert _value(bound, [1.0, 1.0, 4.0]) == pytest.approx(4)

  @pytest.mark.parametrize('beta', [-2.0, 0.0, 0.5, 3.0])
  def test_mean_plus_std_is_what_it_says(self, beta, random_estimates):
    for x in random_estimates:
      assert _value(bounds.MeanPlusStdBound(beta), x) == pytest.approx(x.mean() + beta * x.std(), abs=1e-5)

  def test_order(self, random_estimates):
    for x in random_estimates:
      value = {name: _value(bound, x) for name, bound in ALL.items()}
      assert value['upper'] == x.max() and value['lower'] == x.min()
      assert value['upper'] >= value['quantile'] >= value['lower']
      assert value['upper'] > value['mean'] > value['lower']
      assert value['mean_plus_std'] > value['mean'] > value['mean_minus_std']

  @pytest.mark.parametrize('name', ALL)
  def test_weights_sum_to_one(self, name, random_estimates):
    for x in random_estimates:
      assert float(ALL[name](jnp.asarray(x)).sum()) == pytest.approx(1, abs=1e-5)

  @pytest.mark.parametrize('name', ALL)
  def test_one_sample_is_its_own_bound(self, name):
    assert ALL[name](jnp.array([0.3])).tolist() == [1]

  @pytest.mark.parametrize('name', ALL)
  @pytest.mark.parametrize('value', [0.0, 0.1, -1234.567])
  def test_ties(self, name, value):
    # 0.1 has no exact mean in binary: rounding must not look like a deviation.
    estimates = jnp.full([3], value)
    weights = ALL[name](estimates)
    assert float(weights.sum()) == pytest.approx(1)
    assert _value(ALL[name], estimates) == pytest.approx(value, rel=1e-6)
    if 'mean' in name:
      np.testing.assert_allclose(weights, 1 / 3, rtol=1e-6)
    else:
      assert sorted(weights.tolist()) == [0, 0, 1]

  @pytest.mark.parametrize('name', ALL)
  def test_gradients_match_finite_differences(self, name, random_estimates):
    """The gradient with weights held fixed is that of the bound itself, its weights moving."""
    x = random_estimates[0]
    gradient = np.asarray(jax.jit(jax.grad(lambda y: jnp.sum(ALL[name](y) * y)))(x))
    step = 1e-2
    for i, direction in enumerate(step * np.eye(len(x), dtype=np.float32)):
      difference = (_value(ALL[name], x + direction) - _value(ALL[name], x - direction)) / (2 * step)
      assert gradient[i] == pytest.approx(difference, abs=1e-3)

  @pytest.mark.parametrize('name', ALL)
  def test_weights_have_no_gradient(self, name, random_estimates):
    jacobian = jax.jit(jax.jacobian(ALL[name]))(jnp.asarray(random_estimates[0]))
    assert not np.any(jacobian)

  @pytest.mark.parametrize('q', [-0.1, 1.1, float('nan')])
  def test_a_quantile_outside_of_the_unit_interval_is_refused(self, q):
    with pytest.raises(ValueError, match='between 0 and 1'):
      bounds.QuantileBound(q)


class TestApplyBound:
  def _values(self):
    # Two samples (N), three start states (S), two steps (H). Means over the horizon:
    #   sample 0: 1, 5, 3;  sample 1: 2, 4, 3. The largest: sample 1, sample 0, a tie.
    return jnp.array([[[0.0, 2.0], [9.0, 1.0], [3.0, 3.0]], [[3.0, 1.0], [4.0, 4.0], [6.0, 0.0]]])

  def test_each_start_state_selects_its_own_sample(self):
    bounded, weights = bounds.apply_bound(bounds.UpperBound(), self._values())
    assert weights.tolist() == [[0, 1, 1], [1, 0, 0]]
    # All of the sample's horizon, though the other one is larger at single steps.
    assert bounded.tolist() == [[3, 1], [9, 1], [3, 3]]

  def test_lower_bound(self):
    bounded, weights = bounds.apply_bound(bounds.LowerBound(), self._values())
    assert weights.tolist() == [[1, 0, 1], [0, 1, 0]]
    assert bounded.tolist() == [[0, 2], [4, 4], [3, 3]]

  def test_greedy(self):
    bounded, weights = bounds.apply_bound(bounds.MeanBound(), self._values())
    assert weights.tolist() == [[0.5] * 3] * 2
    assert bounded.tolist() == [[1.5, 1.5], [6.5, 2.5], [4.5, 1.5]]

  @pytest.mark.parametrize('name', ALL)
  def test_one_sample_is_left_as_it_is(self, name):
    values = self._values()[:1]
    bounded, weights = jax.jit(lambda v: bounds.apply_bound(ALL[name], v))(values)
    assert bounded.tolist() == values[0].tolist() and weights.tolist() == [[1, 1, 1]]

  def test_gradients_go_to_the_selected_samples(self):
    gradient = jax.grad(lambda v: jnp.sum(bounds.apply_bound(bounds.UpperBound(), v)[0]))(self._values())
    assert gradient.tolist() == [[[0, 0], [1, 1], [1, 1]], [[1, 1], [0, 0], [0, 0]]]

  @pytest.mark.parametrize('name', ALL)
  def test_the_gradient_of_the_mean_bound_matches_finite_differences(self, name):
    values = np.random.default_rng(3).normal(size=(4, 2, 3)).astype(np.float32)
    mean = jax.jit(lambda v: jnp.mean(bounds.apply_bound(ALL[name], v)[0]))
    gradient = np.asarray(jax.jit(jax.grad(mean))(values))
    step = 1e-2
    for index in np.ndindex(*values.shape):
      plus, minus = values.copy(), values.copy()
      plus[index] += step
      minus[index] -= step
      difference = (mean(plus) - mean(minus)) / (2 * step)
      assert gradient[index] == pytest.approx(float(difference), abs=1e-3)

  def test_weights_are_constants_even_if_a_bound_forgets(self):
    softmax = jax.nn.softmax
    gradient = jax.jit(jax.grad(lambda v: jnp.sum(bounds.apply_bound(softmax, v)[1] * v[:, :, 0])))(self._values())
    np.testing.assert_allclose(gradient[:, :, 0], softmax(self._values().mean(axis=2), axis=0), rtol=1e-5)
    assert not np.any(gradient[:, :, 1])


class TestCriticWeights:
  def test_selections_stay_as_they_are(self):
    weights = jnp.array([[0.0, 1.0], [1.0, 0.0]])
    assert bounds.critic_weights(weights).tolist() == weights.tolist()

  def test_negative_weights_are_dropped(self):
    # First state: (1.5, -1, 0.5) -> (1.5, 0, 0.5) / 2.
    weights = jnp.array([[1.5, 0.2], [-1.0, 0.2], [0.5, 0.6]])
    np.testing.assert_allclose(bounds.critic_weights(weights), [[0.75, 0.2], [0, 0.2], [0.25, 0.6]], rtol=1e-6)

  def test_weights_without_a_positive_one_become_equal(self):
    assert bounds.critic_weights(jnp.array([[0.0], [-1.0]])).tolist() == [[0.5], [0.5]]


@pytest.fixture
def clean_gin():
  gin.clear_config()
  yield
  gin.clear_config()


@pytest.mark.usefixtures('clean_gin')
@pytest.mark.parametrize(
  'bound,num_samples,level',
  [
    (bounds.UpperBound(), 4, 4 / 5),
    (bounds.UpperBound(), 1, 1 / 2),
    (bounds.LowerBound(), 4, 1 / 5),
    (bounds.QuantileBound(0.5), 4, 2 / 5),
    (bounds.MeanBound(), 4, None),
    (bounds.MeanPlusStdBound(), 4, None),
  ],
)
def test_levels_are_those_of_order_statistics(bound, num_samples, level):
  assert bounds.level(bound, num_samples) == level
  if level is not None:
    *estimates, last = np.random.default_rng(0).normal(size=(num_samples + 1, 20_000)).astype(np.float32)
    weights = jax.vmap(bound, 1, 1)(jnp.stack(estimates))
    assert np.mean(last <= np.sum(weights * np.stack(estimates), axis=0)) == pytest.approx(
      level, abs=0.014
    )  # Four errors.


def test_bounds_are_known_to_gin():
  gin.parse_config('QuantileBound.q = 1.0\nMeanPlusStdBound.beta = 2.0')
  for name in ('UpperBound', 'QuantileBound'):
    assert gin.get_configurable(name)()(jnp.array([1.0, 3.0, 2.0])).tolist() == [0, 1, 0]
  # Estimates -1 and 1 have mean 0 and standard deviation 1.
  assert _value(gin.get_configurable('MeanPlusStdBound')(), [-1.0, 1.0]) == 2
  for name in ('LowerBound', 'MeanBound'):
    gin.get_configurable(name)()
