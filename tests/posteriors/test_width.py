"""The width of posteriors."""

import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.posteriors import width


def _observe(learned, state, likelihoods, times=1):
  for _ in range(times):
    state = learned.observe(state, {'cost': jnp.asarray(likelihoods, jnp.float32)})
  return state


def test_finds_the_variance_of_data_by_their_likelihood():
  # Data of variance 1 + 10; a posterior of variance s and noise of variance 1 predict N(0, 1 + s).
  rng, learned = np.random.default_rng(0), width.LearnedWidth(scales=(1.0, 3.0, 10.0, 30.0, 100.0), rate=0.5)
  state = learned.init()
  assert learned.scale(state) == 1.0
  for _ in range(60):
    data = rng.normal(scale=np.sqrt(11.0), size=200)
    variances = 1.0 + np.array(learned.scales)[:, None]
    state = _observe(learned, state, np.mean(-0.5 * data**2 / variances - 0.5 * np.log(variances), axis=1))
  assert learned.scale(state) == pytest.approx(10.0, rel=1e-3)


def test_moves_part_of_the_way_in_logarithms_after_each_episode():
  learned = width.LearnedWidth(scales=(1.0, 16.0), rate=0.25)
  state = _observe(learned, learned.init(), [-2.0, -1.0])
  assert learned.scale(state) == pytest.approx(2.0)  # 16^(1/4)
  assert learned.scale(_observe(learned, state, [-2.0, -1.0])) == pytest.approx(16.0 ** (1 - 0.75**2))


def test_averages_over_its_memory():
  learned = width.LearnedWidth(scales=(1.0, 2.0), memory=4.0, rate=1.0)
  state = _observe(learned, learned.init(), [0.0, 1.0], times=20)
  assert learned.scale(state) == 2.0
  # L_2 - L_1 = 0.997 falls to (3/4)^n 0.997 - (1 - (3/4)^n) of -1 each: below 0 from n = 3 on.
  assert [float(learned.scale(_observe(learned, state, [1.0, 0.0], times=n))) for n in (1, 2, 3)] == [2.0, 2.0, 1.0]


def test_stays_narrow_where_all_widths_predict_alike():
  learned = width.LearnedWidth()
  assert learned.scale(_observe(learned, learned.init(), [-0.3] * 5, times=10)) == 1.0


def test_a_likelihood_that_is_not_finite_is_forgotten():
  learned = width.LearnedWidth(scales=(1.0, 2.0), memory=2.0, rate=1.0)
  state = _observe(learned, learned.init(), [0.0, np.nan])
  assert learned.scale(state) == 1.0
  assert learned.scale(_observe(learned, state, [0.0, 1.0], times=20)) == 2.0


def test_evidence_is_summed_and_has_to_exist():
  learned = width.LearnedWidth(scales=(1.0, 4.0), rate=1.0, evidence=('cost', 'reward'))
  likelihood = {'cost': jnp.array([0.0, -1.0]), 'reward': jnp.array([0.0, 2.0])}
  assert learned.scale(learned.observe(learned.init(), likelihood)) == 4.0
  with pytest.raises(ValueError, match='reward'):
    _observe(learned, learned.init(), [0.0, 0.0])


def test_the_papers_width_is_the_posteriors_own():
  fixed = width.FixedWidth()
  assert fixed.scale(fixed.observe(fixed.init(), {})) is None


@pytest.mark.parametrize(
  'arguments', [dict(scales=()), dict(scales=(3.0, 1.0)), dict(memory=0.5), dict(rate=0.0), dict(evidence='cost')]
)
def test_refuses_what_makes_no_sense(arguments):
  with pytest.raises(ValueError, match='LearnedWidth'):
    width.LearnedWidth(**arguments)
