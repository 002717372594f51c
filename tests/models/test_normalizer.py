"""Running normalisation against numpy on all data at once."""

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from lambda_kit.models import normalizer
from tests.fakes import models as fakes

SPEC = {'vector': fakes.VECTOR, 'image': fakes.IMAGE}


def _vectors(seed: int, *leading: int) -> np.ndarray:
  """With scales and offsets of their own."""
  rng = np.random.default_rng(seed)
  vectors = rng.normal(size=leading + (5,)) * [0.1, 1.0, 10.0, 3.0, 0.5] + [100.0, 0.0, -5.0, 2.0, 0.0]
  return vectors.astype(np.float32)


class NormalizerTest(parameterized.TestCase):
  @parameterized.parameters(
    {'shapes': [(1,)]},
    {'shapes': [(1,), (1,), (1,)]},
    {'shapes': [()] * 4},  # Unbatched.
    {'shapes': [(3, 7), (1,), (50,), (0,), (2, 2, 2)]},
  )
  def test_statistics_are_those_of_all_data(self, shapes):
    state = normalizer.init(SPEC)
    seen = []
    for i, shape in enumerate(shapes):
      vectors = _vectors(i, *shape)
      state = jax.jit(normalizer.update)(state, {'vector': vectors})
      seen.append(vectors.reshape(-1, 5))
      everything = np.concatenate(seen).astype(np.float64)
      self.assertEqual(state.count, len(everything))
      np.testing.assert_allclose(state.mean['vector'], everything.mean(0), rtol=1e-4, atol=1e-5)
      np.testing.assert_allclose(normalizer.variance(state)['vector'], everything.var(0), rtol=1e-3, atol=1e-5)

  def test_the_order_does_not_matter(self):
    batches = [_vectors(i, 10 * i + 1) for i in range(4)]
    states = []
    for order in (batches, batches[::-1]):
      state = normalizer.init(SPEC)
      for batch in order:
        state = normalizer.update(state, {'vector': batch})
      states.append(state)
    np.testing.assert_allclose(states[0].mean['vector'], states[1].mean['vector'], rtol=1e-4)
    np.testing.assert_allclose(states[0].m2['vector'], states[1].m2['vector'], rtol=1e-3)

  def test_normalized_data(self):
    vectors = _vectors(0, 400, 25)
    state = normalizer.update(normalizer.init(SPEC), {'vector': vectors})
    normalized = np.asarray(jax.jit(normalizer.normalize)(state, {'vector': vectors})['vector'], np.float64)
    self.assertEqual(normalized.shape, vectors.shape)
    np.testing.assert_allclose(normalized.mean((0, 1)), np.zeros(5), atol=1e-3)
    np.testing.assert_allclose(normalized.std((0, 1)), np.ones(5), atol=1e-3)

  def test_clips_at_10(self):
    # Mean 0, variance 1: 3 stays, what is beyond 10 does not.
    state = normalizer.update(normalizer.init(SPEC), {'vector': np.array([[-1.0] * 5, [1.0] * 5], np.float32)})
    vector = jnp.array([3.0, 9.9, 10.1, -500.0, 0.0])
    np.testing.assert_allclose(
      normalizer.normalize(state, {'vector': vector})['vector'], [3.0, 9.9, 10.0, -10.0, 0.0], rtol=1e-6
    )

  def test_identity_before_any_data(self):
    vector = jnp.array([1.0, -500.0, 0.0, 1e6, 3.0])
    np.testing.assert_array_equal(normalizer.normalize(normalizer.init(SPEC), {'vector': vector})['vector'], vector)

  def test_constants_are_centred_only(self):
    state = normalizer.update(normalizer.init(SPEC), {'vector': np.full((3, 5), 9.81, np.float32)})
    result = normalizer.normalize(state, {'vector': np.full(5, 9.91, np.float32)})['vector']
    np.testing.assert_allclose(result, np.full(5, 0.1), atol=1e-5)

  def test_images_stay(self):
    batch = fakes.random_batch(SPEC, 2, 3)
    state = normalizer.update(normalizer.init(SPEC), batch.observation)
    result = normalizer.normalize(state, batch.observation)
    np.testing.assert_array_equal(result['image'], batch.observation['image'])
    self.assertEqual(result['image'].dtype, np.uint8)
    # Nothing to do at all without vectors.
    state = normalizer.update(normalizer.init({'image': fakes.IMAGE}), {'image': batch.observation['image']})
    self.assertEqual(list(normalizer.normalize(state, {'image': batch.observation['image']})), ['image'])

  def test_what_varies_little_is_centred_only(self):
    values = _vectors(0, 1000)
    state = normalizer.update(normalizer.init(SPEC), {'vector': values})
    result = normalizer.normalize(state, {'vector': values}, min_scale=2.0)['vector']
    deviations = values - values.mean(axis=0)
    expected = np.clip(deviations / np.maximum(values.std(axis=0), 2.0), -normalizer.CLIP, normalizer.CLIP)
    np.testing.assert_allclose(result, expected, atol=1e-4)
    self.assertLess(np.abs(result[:, 0]).max(), 0.3)  # 0.1 / 2, times a few.

  def test_counts_beyond_single_precision(self):
    state = normalizer.init(SPEC)._replace(count=jnp.int32(2**24))
    self.assertEqual(normalizer.update(state, {'vector': _vectors(0)}).count, 2**24 + 1)

  def test_wrong_size(self):
    with self.assertRaises(AssertionError):
      normalizer.update(normalizer.init(SPEC), {'vector': np.zeros((2, 4), np.float32)})


if __name__ == '__main__':
  absltest.main()
