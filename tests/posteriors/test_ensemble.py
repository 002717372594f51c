"""Ensembles against a loop over their members."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lambda_kit.posteriors import ensemble
from tests.fakes import posteriors as fakes

_M = 3


def _make(**settings):
  return ensemble.Ensemble(fakes.select, **dict(num_members=_M, member_modules=('prior', 'reward')) | settings)


def _init(posterior):
  return jax.jit(lambda key: posterior.init(key, fakes.init_params))(jax.random.key(0))


def _member(params, i):
  """The complete parameters of member i, written out."""
  own = {name: jax.tree.map(lambda leaf: np.asarray(leaf)[i], params[name]) for name in ('rssm/prior', 'reward')}
  return {'encoder': params['encoder'], **own}


def _loss(params, key):
  """Not linear in anything, and with noise."""
  encoder, prior = params['encoder'], params['rssm/prior']
  x = jax.random.normal(key, (5, 4)) @ encoder['w'] @ prior['w'].T + prior['b'][None]
  prediction = jnp.tanh(x) @ params['reward']['w'].T + params['reward']['b'][None]
  return jnp.mean(jnp.square(prediction - 1)), {'prediction': prediction}


def test_members_differ_in_their_own_modules_alone():
  posterior = _make()
  state = _init(posterior)
  for name in ('rssm/prior', 'reward'):
    for leaf in map(np.asarray, jax.tree.leaves(state.params[name])):
      assert leaf.shape[0] == _M and all(np.all(leaf[i] != leaf[j]) for i in range(_M) for j in range(i))
  assert state.params['encoder']['w'].shape == (4, 3)
  # Each member is as `init_params` would make it from a key of its own.
  members = jax.jit(jax.vmap(fakes.init_params))(jax.random.split(jax.random.key(0), _M))
  first = jax.tree.map(lambda leaf: leaf[0], members)
  jax.tree.map(np.testing.assert_array_equal, jax.jit(posterior.mean)(state), first)


def test_a_module_that_is_not_sampled_is_shared_whatever_its_name():
  posterior = _make(member_modules=('prior', 'reward', 'r'))
  assert jax.eval_shape(lambda: _init(posterior)).params['encoder']['w'].shape == (4, 3)  # It has an r.


@pytest.mark.parametrize('own_noise', [False, True])
def test_gradients_are_those_of_a_loop_over_members(own_noise):
  posterior = _make(own_noise=own_noise, clip_norm=1e9)
  state = _init(posterior)
  key = jax.random.key(1)
  keys = jax.random.split(key, _M) if own_noise else [key] * _M
  new_state, aux, metrics = jax.jit(lambda state, key: posterior.update(state, _loss, key))(state, key)
  evaluate = jax.jit(jax.value_and_grad(_loss, has_aux=True))
  results = [evaluate(_member(state.params, i), keys[i]) for i in range(_M)]
  losses, gradients = [value for (value, _), _ in results], [gradient for _, gradient in results]
  expected = jax.tree.map(lambda *leaves: np.stack(leaves), *gradients)
  expected['encoder'] = jax.tree.map(lambda leaf: leaf.mean(axis=0), expected['encoder'])
  # Adam's first moment after one update is (1 - 0.9) times the gradient.
  jax.tree.map(
    lambda moment, gradient: np.testing.assert_allclose(moment, 0.1 * gradient, rtol=1e-4, atol=1e-7),
    optax.tree.get(new_state.opt_state, 'mu'),
    expected,
  )
  assert metrics['loss'] == pytest.approx(np.mean(losses), rel=1e-5)
  norm = np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(expected)))
  assert metrics['gradient_norm'] == pytest.approx(norm, rel=1e-4)
  np.testing.assert_allclose(aux['prediction'], results[0][0][1]['prediction'], rtol=1e-4)  # Of the first member.


def test_samples_are_members_without_repetition():
  posterior = _make()
  state = _init(posterior)
  members = [fakes.to_vector(_member(state.params, i)) for i in range(_M)]
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


def test_selected_parameters_that_are_shared_are_the_same_in_all_samples():
  posterior = fakes.Jitted(_make(member_modules=('reward',)), _loss)
  state, metrics = posterior.train(1)
  samples = jax.tree.map(np.asarray, posterior.sample(state, jax.random.key(0), 2))
  np.testing.assert_array_equal(samples['rssm/prior']['w'][0], samples['rssm/prior']['w'][1])
  assert not np.any(samples['reward']['w'][0] == samples['reward']['w'][1])
  variances = [np.var(np.asarray(leaf), axis=0).sum() for leaf in jax.tree.leaves(state.params['reward'])]
  assert metrics['posterior_spread'] == pytest.approx(np.sqrt(sum(variances) / fakes.NUM_SELECTED), rel=1e-4)


def test_more_samples_than_members_are_refused_with_the_binding_to_change():
  posterior = _make()
  with pytest.raises(ValueError, match='Ensemble.num_members to 4'):
    jax.eval_shape(lambda key: posterior.sample(_init(posterior), key, 4), jax.random.key(0))


def test_a_name_that_matches_nothing_is_refused_with_the_names_that_there_are():
  with pytest.raises(ValueError, match=r"\['rewrad'\].*\['reward', 'rssm/prior'\]"):
    jax.eval_shape(lambda: _init(_make(member_modules=('prior', 'rewrad'))))
  with pytest.raises(ValueError, match='rssm/prior'):
    jax.eval_shape(lambda: _init(_make(member_modules=())))
  with pytest.raises(ValueError, match='a sequence of strings'):
    _make(member_modules='prior')


def test_what_members_share_is_computed_once():
  width = 64
  init_params = lambda key: {'encoder': {'w': jnp.ones((width, width))}, 'reward': {'w': jnp.ones((width, 1))}}

  def loss(params, key):
    x = jax.random.normal(key, (8, width))
    for _ in range(4):
      x = jnp.tanh(x @ params['encoder']['w'])
    return jnp.sum(x @ params['reward']['w']), ()

  def flops(**settings):
    posterior = ensemble.Ensemble(lambda params: params, member_modules=('reward',), **settings)
    state = jax.eval_shape(lambda key: posterior.init(key, init_params), jax.random.key(0))
    update = jax.jit(lambda state, key: posterior.update(state, loss, key)[0])
    return update.lower(state, jax.random.key(0)).cost_analysis()['flops']

  single = flops(num_members=1)
  assert flops(num_members=8) < 1.5 * single
  assert flops(num_members=8, own_noise=True) > 4 * single
