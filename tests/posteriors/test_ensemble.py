"""Ensembles: members against loops, and against models that were trained alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lambda_kit.models import sums
from lambda_kit.posteriors import ensemble
from lambda_kit.posteriors import point
from tests.fakes import posteriors as fakes

_M = 3
_KEY = jax.random.key(1)


def _make(**settings):
  return ensemble.Ensemble(fakes.select, **dict(num_members=_M, bootstrap=False, prior_scale=0.0) | settings)


def _init(posterior):
  return jax.jit(lambda key: posterior.init(key, fakes.init_params))(jax.random.key(0))


def _member(tree, i):
  return jax.tree.map(lambda leaf: np.asarray(leaf)[i], tree)


def _loss(params, key):
  """Not linear in anything, and with noise."""
  encoder, prior = params['encoder'], params['rssm/prior']
  x = jax.random.normal(key, (5, 4)) @ encoder['w'] @ prior['w'].T + prior['b'][None]
  prediction = jnp.tanh(x) @ params['reward']['w'].T + params['reward']['b'][None]
  return jnp.mean(jnp.square(prediction - 1)), {'prediction': prediction}


class _EpisodesLoss(fakes.EnsembleLoss):
  """Each sequence pulls with the number of its episode."""

  def of_member(self, theta, output, key):
    total = sum(map(jnp.sum, jax.tree.leaves(theta)))
    return total * jnp.asarray(self.episodes, jnp.float32)


def test_all_selected_parameters_are_each_members_own():
  state = _init(_make())
  assert set(state.members) == set(fakes.SELECTED)
  for leaf, own in zip(jax.tree.leaves(fakes.select(state.params)), jax.tree.leaves(state.members)):
    models = [np.asarray(leaf), *np.asarray(own)]
    assert len(models) == _M + 1 and all(np.all(models[i] != models[j]) for i in range(_M + 1) for j in range(i))


def test_the_reference_learns_as_a_model_alone_does():
  posterior, alone = _make(learning_rate=0.1), point.Point(fakes.select, learning_rate=0.1)
  state, other = _init(posterior), jax.jit(lambda key: alone.init(key, fakes.init_params))(jax.random.key(0))
  update = jax.jit(lambda state, key: posterior.update(state, fakes.EnsembleLoss(_loss), key))
  update_alone = jax.jit(lambda state, key: alone.update(state, _loss, key))
  for key in jax.random.split(_KEY, 3):
    (state, output, metrics), (other, aux, expected) = update(state, key), update_alone(other, key)
    np.testing.assert_allclose(output['aux']['prediction'], aux['prediction'], rtol=1e-4)
    for name in ('loss', 'gradient_norm'):
      np.testing.assert_allclose(metrics[name], expected[name], rtol=1e-4)
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4), posterior.current(state), other.params
  )


def test_gradients_are_those_of_a_loop_over_members():
  posterior = _make(clip_norm=1e9)
  state = _init(posterior)
  loss = fakes.EnsembleLoss(_loss)
  new_state, _, metrics = jax.jit(lambda state, key: posterior.update(state, loss, key))(state, _KEY)
  output = {'params': state.params}
  member_key = jax.random.fold_in(_KEY, 1)
  evaluate = jax.jit(jax.value_and_grad(lambda theta: jnp.mean(loss.of_member(theta, output, member_key))))
  losses, gradients = zip(*[evaluate(_member(state.members, i)) for i in range(_M)])
  # Adam's first moment after one update is (1 - 0.9) times the gradient.
  _, moments = optax.tree.get(new_state.opt_state, 'mu')
  jax.tree.map(
    lambda moment, *members: np.testing.assert_allclose(moment, 0.1 * np.stack(members), rtol=1e-4, atol=1e-7),
    moments,
    *gradients,
  )
  assert metrics['member_loss'] == pytest.approx(np.mean(losses), rel=1e-5)
  norms = [np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(gradient))) for gradient in gradients]
  assert metrics['member_gradient_norm'] == pytest.approx(np.mean(norms), rel=1e-4)


def test_a_bootstrap_counts_episodes_once_on_average_and_always_alike():
  count = jax.jit(functools.partial(ensemble.bootstrap_weights, 4))
  weights = np.asarray(count(jnp.arange(20_000)))
  # Of Poisson(1): mean and variance 1, so standard errors of 1 / sqrt(80,000); 0 with probability 1 / e.
  assert weights.mean() == pytest.approx(1.0, abs=5 / np.sqrt(weights.size))
  assert weights.var() == pytest.approx(1.0, abs=5 * np.sqrt(3 / weights.size))
  assert np.mean(weights == 0) == pytest.approx(np.exp(-1), abs=5 * 0.5 / np.sqrt(weights.size))
  correlations = np.corrcoef(weights)[np.triu_indices(4, 1)]
  assert np.max(np.abs(correlations)) < 5 / np.sqrt(20_000)
  # Whatever else is in the batch, and as often as the episode comes.
  again = np.asarray(count(jnp.array([7, 3, 7, 19_999])))
  np.testing.assert_array_equal(again, weights[:, [7, 3, 7, 19_999]])


def test_members_learn_from_the_episodes_that_they_have_drawn():
  episodes = (5, 5, 9, 23)
  weights = np.asarray(ensemble.bootstrap_weights(_M, jnp.asarray(episodes)))
  posterior = _make(bootstrap=True, clip_norm=1e9)
  state = _init(posterior)
  loss = _EpisodesLoss(_loss, episodes)
  new_state, _, _ = jax.jit(lambda state, key: posterior.update(state, loss, key))(state, _KEY)
  _, moments = optax.tree.get(new_state.opt_state, 'mu')
  slopes = np.mean(weights * np.asarray(episodes), axis=1)
  for i, slope in enumerate(slopes):
    jax.tree.map(lambda leaf, i=i, s=slope: np.testing.assert_allclose(leaf[i], 0.1 * s, rtol=1e-5), moments)
  assert len(set(slopes)) == _M


def test_a_member_learns_nothing_from_an_episode_that_it_has_not_drawn():
  weights = np.asarray(ensemble.bootstrap_weights(_M, jnp.arange(50)))
  member, episode = np.argwhere((weights == 0) & (weights.sum(axis=0) > 0)[None])[0]
  posterior = _make(bootstrap=True)
  state = _init(posterior)
  loss = fakes.EnsembleLoss(_loss, [episode])
  new_state, _, _ = jax.jit(lambda state, key: posterior.update(state, loss, key))(state, _KEY)
  for i in range(_M):
    changed = [
      not np.array_equal(x[i], y[i]) for x, y in zip(jax.tree.leaves(state.members), jax.tree.leaves(new_state.members))
    ]
    assert all(changed) == any(changed) == (weights[i, episode] > 0)
  assert weights[member, episode] == 0


def test_a_bootstrap_without_episodes_is_refused_with_the_binding_to_change():
  class Unnumbered(fakes.EnsembleLoss):
    episodes = None

  posterior = _make(bootstrap=True)
  with pytest.raises(ValueError, match=r'Ensemble\.bootstrap'):
    jax.eval_shape(lambda key: posterior.update(posterior.init(key, fakes.init_params), Unnumbered(_loss), key), _KEY)


def test_a_loss_that_can_not_train_members_is_refused():
  posterior = _make()
  with pytest.raises(TypeError, match='EnsembleLoss'):
    jax.eval_shape(lambda key: posterior.update(posterior.init(key, fakes.init_params), _loss, key), _KEY)


def test_samples_are_members_without_repetition():
  posterior = _make()
  state = _init(posterior)
  members = [fakes.to_vector(_member(state.members, i)) for i in range(_M)]
  sample = jax.jit(posterior.sample, static_argnums=2)
  which = lambda sample: [i for i in range(_M) if np.array_equal(sample, members[i])]
  orders = set()
  for seed in range(20):
    samples = fakes.to_vectors(sample(state, jax.random.key(seed), _M))
    order = tuple(index for sample in samples for index in which(sample))
    assert sorted(order) == list(range(_M))
    orders.add(order)
  assert len(orders) == 6  # All 3! of them.
  two = fakes.to_vectors(sample(state, jax.random.key(0), 2))
  assert len({*which(two[0]), *which(two[1])}) == 2


def test_samples_keep_the_random_functions_of_their_members():
  posterior = _make(prior_scale=0.5)
  state = _init(posterior)
  members, functions = fakes.to_vectors(state.members), fakes.to_vectors(state.fixed)
  sample = jax.jit(posterior.sample, static_argnums=2)
  for seed in range(5):
    own, fixed = sample(state, jax.random.key(seed), 2).terms
    for vector, function in zip(fakes.to_vectors(own.params), fakes.to_vectors(fixed.params)):
      (member,) = [i for i in range(_M) if np.array_equal(vector, members[i])]
      np.testing.assert_array_equal(function, functions[member])


def test_more_samples_than_members_are_refused_with_the_binding_to_change():
  posterior = _make()
  with pytest.raises(ValueError, match='Ensemble.num_members to 4'):
    jax.eval_shape(lambda key: posterior.sample(_init(posterior), key, 4), jax.random.key(0))


@pytest.mark.parametrize('prior_scale', [0.0, 0.5])
def test_a_scale_stretches_outputs_around_the_reference(prior_scale):
  """Of a sum, weights are what outputs are multiplied with: at scale s they are s times as far in variance."""
  posterior = _make(prior_scale=prior_scale)
  state = _init(posterior)
  key = jax.random.key(3)
  stretched = jax.jit(lambda scale: posterior.sample(state, key, 2, scale))(9.0)
  terms = [('own', 3.0), *([('fixed', 1.5)] if prior_scale else []), ('reference', -2.0)]
  assert len(stretched.terms) == len(terms)
  own = posterior.sample(state, key, 2)
  own_terms = own.terms if prior_scale else [sums.Term(own, jnp.ones(2))]
  for term, (name, weight) in zip(stretched.terms, terms):
    np.testing.assert_allclose(term.weight, np.full(2, weight), rtol=1e-6)
    if name == 'reference':
      reference = fakes.to_vector(posterior.current(state))
      np.testing.assert_array_equal(fakes.to_vectors(term.params), np.tile(reference, (2, 1)))
    else:  # The same members, and the random functions that they were trained with.
      same = own_terms[('own', 'fixed').index(name)]
      np.testing.assert_array_equal(fakes.to_vectors(term.params), fakes.to_vectors(same.params))
      np.testing.assert_allclose(term.weight, 3.0 * same.weight, rtol=1e-6)


def test_random_functions_are_each_members_own_and_never_trained():
  posterior = _make(prior_scale=0.5, learning_rate=0.1)
  state = _init(posterior)
  for members, fixed in zip(jax.tree.leaves(state.members), jax.tree.leaves(state.fixed)):
    models = [*np.asarray(members), *np.asarray(fixed)]
    assert len(models) == 2 * _M and all(np.all(models[i] != models[j]) for i in range(2 * _M) for j in range(i))

  class OfSums(fakes.EnsembleLoss):
    """What members lose depends on both terms."""

    def of_member(self, theta, output, key):
      own, fixed = theta.terms
      total = jax.tree.map(lambda x, y: own.weight * x + fixed.weight * y, own.params, fixed.params)
      return super().of_member(total, output, key)

  update = jax.jit(lambda state, key: posterior.update(state, OfSums(_loss), key))
  new_state = update(state, _KEY)[0]
  jax.tree.map(np.testing.assert_array_equal, new_state.fixed, state.fixed)
  assert not np.array_equal(fakes.to_vectors(new_state.members), fakes.to_vectors(state.members))
  # Members are trained with their functions: with other ones, they learn something else.
  shifted = state._replace(fixed=jax.tree.map(lambda leaf: leaf + 1.0, state.fixed))
  assert not np.array_equal(fakes.to_vectors(update(shifted, _KEY)[0].members), fakes.to_vectors(new_state.members))
