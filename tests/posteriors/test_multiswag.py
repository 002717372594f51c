"""MultiSWAG against SWAG of each member."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gin
from lambda_kit.posteriors import ensemble
from lambda_kit.posteriors import multiswag
from lambda_kit.posteriors import swag
from tests.fakes import posteriors as fakes

_M, _K = 3, 4


def _make(**settings):
  return multiswag.MultiSwag(
    fakes.select,
    functools.partial(ensemble.Ensemble, num_members=_M, bootstrap=False, prior_scale=0.0),
    functools.partial(
      swag.Swag, **dict(learning_rate=0.1, cyclic_factor=3.0, burn_in=1, period=2, num_models=_K) | settings
    ),
  )


@functools.cache
def _jitted():
  return fakes.Jitted(_make())


@functools.cache
def _run(num_updates):
  """All states and metrics: snapshots are the results of updates 3, 5, 7, ..."""
  states, rows = [_jitted().init(jax.random.key(0))], []
  for key in jax.random.split(jax.random.key(1), num_updates):
    state, _, metrics = _jitted().update(states[-1], key)
    states.append(state)
    rows.append(metrics)
  return states, rows


def _member(tree, i):
  return jax.tree.map(lambda leaf: leaf[i], tree)


def _member_moments(moments, i):
  own = {name: getattr(moments, name)[i] for name in ('variance', 'columns', 'square_norms', 'spread')}
  return moments._replace(mean=_member(moments.mean, i), **own)


def test_moments_are_those_of_swag_for_each_member():
  states, rows = _run(11)
  add_snapshot = jax.jit(lambda moments, tree: swag.add_snapshot(moments, tree, lambda tree: tree, 0.8, 1.0))
  for i in range(_M):
    expected = swag.init_moments(_member(states[0].ensemble.members, i), fakes.NUM_SELECTED, _K)
    for u in (3, 5, 7, 9, 11):
      expected = add_snapshot(expected, _member(states[u].ensemble.members, i))
    found = _member_moments(states[-1].moments, i)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), found, expected)
  assert [int(row['num_snapshots']) for row in rows] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
  assert 'encoder' not in states[-1].moments.mean  # What members share is not sampled.


def test_members_learn_at_swags_rate():
  _, rows = _run(11)
  np.testing.assert_allclose([row['learning_rate'] for row in rows], [0.3, 0.1] * 5 + [0.3], rtol=1e-5)
  posterior = fakes.Jitted(_make(), fakes.linear_loss(1.0))  # Adam's step on a constant gradient is its rate.
  states = [posterior.init(jax.random.key(0))]
  for _ in range(3):
    states.append(posterior.update(states[-1], jax.random.key(1))[0])
  weights = [np.asarray(state.ensemble.members['reward']['w']) for state in states]
  steps = [np.mean(old - new) for old, new in itertools.pairwise(weights)]
  np.testing.assert_allclose(steps, [0.3, 0.1, 0.3], rtol=1e-3)


def test_until_all_snapshots_are_in_samples_are_members():
  states, _ = _run(11)
  for u, ready in ((8, False), (9, True)):
    samples = fakes.to_vectors(_jitted().sample(states[u], jax.random.key(u), _M))
    members = [fakes.to_vector(_member(states[u].ensemble.members, i)) for i in range(_M)]
    found = sorted(i for sample in samples for i in range(_M) if np.array_equal(sample, members[i]))
    assert found == ([] if ready else list(range(_M)))
    jax.tree.map(np.testing.assert_array_equal, _jitted().mean(states[u]), states[u].ensemble.params)


def test_samples_come_from_all_members_in_turn_with_the_moments_of_each():
  """Standard errors of a covariance are sqrt((S_ii S_jj + S_ij^2) / n)."""
  states, _ = _run(11)
  turns = 40_000
  # Members made as far apart as can be, so that each sample tells its own.
  far = jax.tree.map(
    lambda leaf: leaf + 1e3 * jnp.arange(_M).reshape((_M,) + (1,) * (leaf.ndim - 1)), states[-1].moments.mean
  )
  state = states[-1]._replace(moments=states[-1].moments._replace(mean=far))
  samples = fakes.to_vectors(_jitted().sample(state, jax.random.key(2), turns * _M))
  origin = np.rint(samples.mean(axis=1) / 1e3).astype(int)
  assert sorted(origin[:_M]) == list(range(_M))
  np.testing.assert_array_equal(origin, np.tile(origin[:_M], turns))
  for i in range(_M):
    moments = _member_moments(state.moments, i)
    columns = np.asarray(moments.columns, np.float64)
    expected = np.diag(moments.variance) / 2 + columns.T @ columns / (2 * (_K - 1))
    stds = np.sqrt(np.diag(expected))
    found = samples[origin == i].astype(np.float64)
    np.testing.assert_array_less(np.abs(found.mean(axis=0) - fakes.to_vector(moments.mean)), 5 * stds / np.sqrt(turns))
    errors = np.cov(found, rowvar=False) - expected
    np.testing.assert_array_less(np.abs(errors), 5 * np.sqrt((np.outer(stds, stds) ** 2 + expected**2) / turns))
  # Samples of one turn are independent, whatever their members have in common.
  first, second = (samples[origin == i] - samples[origin == i].mean(axis=0) for i in range(2))
  correlations = np.corrcoef(first, second, rowvar=False)[: fakes.NUM_SELECTED, fakes.NUM_SELECTED :]
  assert np.max(np.abs(correlations)) < 5 / np.sqrt(turns)


def test_a_scale_stretches_draws_around_the_reference():
  states, _ = _run(11)
  key = jax.random.key(4)
  own = jax.jit(_make().sample, static_argnums=2)(states[-1], key, 2 * _M)
  stretched = jax.jit(lambda scale: _make().sample(states[-1], key, 2 * _M, scale))(4.0)
  draws, reference = stretched.terms
  np.testing.assert_array_equal(fakes.to_vectors(draws.params), fakes.to_vectors(own))
  np.testing.assert_array_equal(
    fakes.to_vectors(reference.params), np.tile(fakes.to_vector(states[-1].ensemble.params), (2 * _M, 1))
  )
  np.testing.assert_allclose(draws.weight, np.full(2 * _M, 2.0))
  np.testing.assert_allclose(reference.weight, np.full(2 * _M, -1.0))


def test_draws_keep_the_random_functions_of_their_members():
  posterior = multiswag.MultiSwag(
    fakes.select,
    functools.partial(ensemble.Ensemble, num_members=_M, bootstrap=False, prior_scale=0.5),
    functools.partial(swag.Swag, num_models=_K),
  )
  state = jax.jit(lambda key: posterior.init(key, fakes.init_params))(jax.random.key(0))
  members, functions = fakes.to_vectors(state.ensemble.members), fakes.to_vectors(state.ensemble.fixed)
  sample = jax.jit(lambda key: posterior.sample(state, key, 2 * _M))
  for seed in range(5):
    draws, fixed = sample(jax.random.key(seed)).terms
    for draw, function in zip(fakes.to_vectors(draws.params), fakes.to_vectors(fixed.params)):
      (member,) = [i for i in range(_M) if np.array_equal(draw, members[i])]
      np.testing.assert_array_equal(function, functions[member])


def test_the_spread_is_between_and_within_members():
  states, rows = _run(11)
  members = fakes.to_vectors(states[-1].ensemble.members)
  within = np.square(np.asarray(states[-1].moments.spread))
  assert np.all(within > 0)
  expected = np.sqrt(np.mean(np.var(members, axis=0)) + np.mean(within))
  assert rows[-1]['posterior_spread'] == pytest.approx(expected, rel=1e-4)


def test_updates_do_not_copy_the_columns():
  init_params = lambda key: {'w': {'w': jax.random.normal(key, (100, 125))}}
  loss = fakes.EnsembleLoss(lambda params, key: (jnp.sum(jnp.square(params['w']['w'])), ()))
  posterior = multiswag.MultiSwag(
    lambda params: params,
    functools.partial(ensemble.Ensemble, num_members=4, bootstrap=False, prior_scale=0.0),
    functools.partial(swag.Swag, num_models=64, burn_in=0, period=2),
  )
  state, key = posterior.init(jax.random.key(0), init_params), jax.random.key(1)
  update = jax.jit(lambda state, key: posterior.update(state, loss, key)[0], donate_argnums=0)
  sample = jax.jit(lambda state, key: posterior.sample(state, key, 2))
  for function in (update, sample):
    temporary = function.lower(state, key).compile().memory_analysis().temp_size_in_bytes
    assert temporary < 0.25 * state.moments.columns.nbytes


def test_gin_binds_the_ensemble_and_swag():
  factories = 'MultiSwag.ensemble_factory = @Ensemble\nMultiSwag.swag_factory = @Swag\n'
  for binding, message in (
    ('Ensemble.clip_norm = -3.0', 'Ensemble.clip_norm = -3.0 should be'),
    ('Swag.period = 0', 'Swag.period = 0 should be'),
  ):
    try:
      gin.parse_config(factories + binding)
      with pytest.raises(ValueError, match=message):
        gin.get_configurable(multiswag.MultiSwag)(fakes.select)
    finally:
      gin.clear_config()
