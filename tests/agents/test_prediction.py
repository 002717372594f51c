"""Open-loop prediction: with a model whose answers can be written down, and with LAMBDA's own at tiny size."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.agents import random_agent
from lambda_kit.agents.lambda_ import prediction
from lambda_kit.models import decoders
from lambda_kit.models import encoders
from lambda_kit.models import normalizer
from lambda_kit.models import world_model
from tests.fakes import linear
from tests.fakes import models as fakes
from tests.fakes import specs
from tests.fakes import tiny


def _filtering(theta):
  return {'model': {'theta': jnp.asarray(theta)}, 'normalizer': normalizer.State(jnp.zeros((), jnp.int32), {}, {})}


def _episode(environment, length=10):
  rng = np.random.default_rng(0)
  timestep = environment.reset()
  observations, actions = [timestep.observation['vector']], []
  for _ in range(length):
    actions.append(rng.uniform(-1.0, 1.0, environment.action_spec().shape).astype(np.float32))
    observations.append(environment.step(actions[-1]).observation['vector'])
  return {'vector': np.stack(observations)}, np.stack(actions)


def test_the_model_follows_actions_from_what_was_seen_last():
  observation = {'vector': jnp.array([[0.0], [1.0], [3.0], [50.0], [60.0], [70.0]])}
  action = jnp.array([[9.0], [9.0], [1.0], [2.0], [4.0]])  # a_0, ..., a_4.
  result = prediction.predict(
    linear.LinearModel(), _filtering(2.0), jax.random.PRNGKey(0), observation, action, num_seen=3
  )
  # s_2 = 3 is seen. Then s' = 2 s + a with a_2, a_3, a_4: 2 * 3 + 1 = 7, 2 * 7 + 2 = 16, 2 * 16 + 4 = 36.
  np.testing.assert_allclose(result.model['vector'], [[7.0], [16.0], [36.0]])
  np.testing.assert_allclose(result.truth['vector'], [[50.0], [60.0], [70.0]])
  np.testing.assert_allclose(result.last_seen['vector'], [3.0])


def test_pictures():
  spec = {'image': fakes.IMAGE}
  model = world_model.RecurrentWorldModel(
    spec,
    fakes.ACTION_SPEC,
    num_constraints=1,
    action_repeat=1,
    stochastic_size=3,
    deterministic_size=4,
    hidden_size=4,
    encoder_factory=functools.partial(
      encoders.ObservationEncoder, image_factory=functools.partial(encoders.ImageEncoder, depth=2, kernels=(4, 4))
    ),
    decoder_factory=functools.partial(
      decoders.ObservationDecoder,
      image_factory=functools.partial(decoders.ImageDecoder, depth=2, dense_size=4, kernels=(6, 6)),
    ),
  )
  batch = fakes.random_batch(spec, batch_size=1, length=4)
  image, action = batch.observation['image'][0], batch.action[0, 1:]
  params = model.init(jax.random.PRNGKey(1), batch)
  filtering = {'model': params, 'normalizer': normalizer.init(spec)}
  key = jax.random.PRNGKey(2)
  result = prediction.make_predictor(model, filtering, key)({'image': image}, action, 2)
  # Step by step: a_{-1} = 0 leads to o_0, a_0 to o_1; then a_1 and a_2 are followed without noise.
  keys, state = jax.random.split(key, 2), model.initial_state(1)
  for i, previous in enumerate((np.zeros((1, 2), np.float32), action[:1])):
    state = model.filter(params, state, previous, {'image': image[i : i + 1]}, keys[i])
  for i, expected in enumerate(result.model['image']):
    state = model.imagine_step(params, state, action[i + 1 : i + 2], jnp.zeros((1, model.noise_size)))
    np.testing.assert_allclose(model.decode(params, model.features(state))['image'][0], expected, atol=1e-5)
  np.testing.assert_allclose(result.truth['image'], image[2:] / 255 - 0.5, atol=1e-6)
  np.testing.assert_allclose(result.last_seen['image'], image[1] / 255 - 0.5, atol=1e-6)


@pytest.fixture(scope='module', name='parts')
def _parts():
  parts = tiny.Parts()
  parts.learner.step(2)  # The normaliser has seen data.
  return parts


class TestLambda:
  def test_nothing_is_seen_that_comes_later(self, parts):
    predictor = parts.builder.make_predictor(parts.learner, seed=3)
    observation, action = _episode(parts.environment)
    first = predictor(observation, action, 4)
    chex.assert_tree_shape_prefix((first.truth, first.model), (7,))
    later = {'vector': np.concatenate([observation['vector'][:4], observation['vector'][4:] + 1.0])}
    second = predictor(later, action, 4)
    np.testing.assert_array_equal(first.model['vector'], second.model['vector'])
    assert np.abs(first.truth['vector'] - second.truth['vector']).min() > 0.1
    # But what was seen, and what was done later, count.
    earlier = {'vector': np.concatenate([observation['vector'][:4] + 1.0, observation['vector'][4:]])}
    assert not np.allclose(first.model['vector'], predictor(earlier, action, 4).model['vector'])
    assert not np.allclose(first.model['vector'][1:], predictor(observation, -action, 4).model['vector'][1:])

  def test_vectors_are_normalised(self, parts):
    observation, action = _episode(parts.environment)
    result = parts.builder.make_predictor(parts.learner, seed=3)(observation, action, 4)
    (filtering,) = parts.learner.get_variables(('belief',))
    expected = normalizer.normalize(filtering['normalizer'], observation)['vector']
    np.testing.assert_allclose(result.truth['vector'], expected[4:], rtol=1e-6)
    np.testing.assert_allclose(result.last_seen['vector'], expected[3], rtol=1e-6)

  def test_the_learner_stays_as_it_is(self, parts):
    before = jax.tree.map(np.array, parts.learner.save())
    parts.builder.make_predictor(parts.learner, seed=3)(*_episode(parts.environment), 4)
    chex.assert_trees_all_equal(before, jax.tree.map(np.array, parts.learner.save()))

  @pytest.mark.parametrize('num_seen', [0, 11])
  def test_something_has_to_be_seen_and_to_be_left(self, parts, num_seen):
    predictor = parts.builder.make_predictor(parts.learner, seed=3)
    with pytest.raises(ValueError, match='Of 11 observations'):
      predictor(*_episode(parts.environment), num_seen)


def test_agents_without_a_model_predict_nothing():
  assert random_agent.RandomAgent().build(specs.make()).make_predictor(random_agent.RandomLearner(), seed=0) is None
