"""Sums of networks against the same networks, evaluated one by one."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.models import networks
from lambda_kit.models import sums
from tests.fakes import models as fakes


def _network():
  """A linear layer, which no sum reaches, and an `Mlp` after it."""

  def apply(x):
    return networks.Mlp(2, (5,), name='head')(hk.Linear(4, name='layer')(x))

  transformed = hk.without_apply_rng(hk.transform(apply))
  x = jax.random.normal(jax.random.key(9), (3, 6))
  draw = lambda seed: jax.jit(transformed.init)(jax.random.key(seed), x)
  return transformed.apply, draw, x


def test_outputs_of_mlps_are_summed_by_weight_behind_the_first_terms_layers():
  apply, draw, x = _network()
  first, second, third = (draw(seed) for seed in range(3))
  combined = sums.Sum((sums.Term(first, 0.5), sums.Term(second, -2.0), sums.Term(third, 3.0)))
  behind_first = lambda params: apply({**params, 'layer': first['layer']}, x)
  expected = 0.5 * apply(first, x) - 2.0 * behind_first(second) + 3.0 * behind_first(third)
  np.testing.assert_allclose(jax.jit(sums.over_sums(apply))(combined, x), expected, rtol=1e-5, atol=1e-6)


def test_plain_parameters_are_used_as_they_are():
  apply, draw, x = _network()
  np.testing.assert_array_equal(sums.over_sums(apply)(draw(0), x), apply(draw(0), x))


def test_an_mlp_that_a_term_lacks_is_the_first_terms_alone():
  apply, draw, x = _network()
  other = {'layer': draw(1)['layer']}
  combined = sums.Sum((sums.Term(draw(0), 5.0), sums.Term(other, 1.0)))
  np.testing.assert_array_equal(sums.over_sums(apply)(combined, x), apply(draw(0), x))


@pytest.mark.parametrize('function', ['predict', 'imagine_step', 'log_likelihood'])
def test_world_models_take_sums(function):
  """Adding a network once more with weight -1 leaves none of it: logits of 0, and means of 0."""
  model = fakes.make_model({'vector': fakes.VECTOR}, num_constraints=2)
  batch = fakes.random_batch({'vector': fakes.VECTOR}, 4, 1, num_constraints=2)
  params = model.init(jax.random.key(0), batch)
  nothing = sums.Sum((sums.Term(params, 1.0), sums.Term(model.imagination_params(params), -1.0)))
  state = jax.tree.map(lambda x: x + 0.3, model.initial_state(4))
  features = model.features(state)
  if function == 'predict':
    prediction = model.predict(nothing, features)
    np.testing.assert_allclose(prediction.reward, np.zeros(4), atol=1e-6)
    np.testing.assert_allclose(prediction.continuation, np.full(4, 0.5), atol=1e-6)
    assert np.all(np.abs(model.predict(params, features).reward) > 1e-3)
  elif function == 'imagine_step':
    noise = jnp.ones((4, 3))
    imagined = model.imagine_step(nothing, state, batch.action[:, 0], noise)
    # The recurrence is that of the first term; z has the mean 0 and the standard deviation softplus(0) + 0.1.
    plain = model.imagine_step(params, state, batch.action[:, 0], noise)
    np.testing.assert_array_equal(imagined.deterministic, plain.deterministic)
    np.testing.assert_allclose(imagined.stochastic, np.full((4, 3), np.log(2.0) + 0.1), rtol=1e-5)
  else:
    came = jax.tree.map(lambda x: x[:, 0], batch)
    found = model.log_likelihood(nothing, features, came)
    np.testing.assert_allclose(found['reward'], -0.5 * came.reward**2 - 0.5 * np.log(2 * np.pi), rtol=1e-5)
    # The decoder, which the second term lacks, is the model's own.
    np.testing.assert_array_equal(found['vector'], model.log_likelihood(params, features, came)['vector'])
