"""SWAG against sums written out in NumPy, and against faults that implementations of it have had."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.posteriors import swag
from tests.fakes import posteriors as fakes

_K = 4
_DECAY = 0.8


def _naive_moments(snapshots, decay):
  """Mean [P] and unbiased variance [P] over `snapshots` [n, P] by their definition, in float64."""
  snapshots = np.asarray(snapshots, np.float64)
  weights = decay ** np.arange(len(snapshots) - 1, -1, -1)  # The last snapshot weighs 1.
  weights /= weights.sum()
  mean = weights @ snapshots
  if len(snapshots) == 1:
    return mean, np.zeros_like(mean)
  return mean, weights @ (snapshots - mean) ** 2 / (1 - np.sum(weights**2))


def _naive_columns(snapshots, decay, num_models):
  """Deviations of the last K snapshots from the means before them, [K, P], the oldest first.

  Of iid snapshots, they have (K - 1) / K of the covariance of one. That of the first is that of the second, if any.
  """
  columns = [np.zeros_like(snapshots[0])]
  for n in range(1, len(snapshots)):
    weights = decay ** np.arange(n - 1, -1, -1)
    weights /= weights.sum()
    deviation = snapshots[n] - weights @ np.asarray(snapshots[:n], np.float64)
    columns.append(np.sqrt((1 - 1 / num_models) / (1 + np.sum(weights**2))) * deviation)
  if len(columns) > 1:
    columns[0] = columns[1]
  return np.stack(columns[-num_models:])


_add_snapshot = jax.jit(
  lambda moments, tree, decay, scale: swag.add_snapshot(moments, tree, fakes.select, decay, scale)
)


def _moments_of(trees, decay=_DECAY, scale=1.0):
  moments = jax.tree.map(np.asarray, swag.init_moments(trees[0], fakes.NUM_SELECTED, _K))
  for tree in trees:
    moments = _add_snapshot(moments, tree, decay, scale)
  return moments


def _random_trees(count):
  """Parameters that differ between snapshots by a thousandth of their size, as trained weights do.

  A part of the difference is common to all entries, so that they are correlated, between leaves, too.
  """
  init_params = lambda seed: jax.tree.map(np.asarray, fakes.init_params(jax.random.key(seed)))
  centre, steps = init_params(100), [init_params(101 + i) for i in range(count)]
  common = np.random.default_rng(0).normal(size=count).astype(np.float32)
  return [jax.tree.map(lambda c, s, z=z: c + 1e-3 * (s + 2 * z), centre, step) for z, step in zip(common, steps)]


@functools.cache
def _noisy():
  """Snapshots after 3, 5, 7, ... updates, of which K = 3 are kept."""
  return fakes.Jitted(swag.Swag(fakes.select, learning_rate=0.1, burn_in=1, period=2, num_models=3))


@functools.cache
def _linear():
  """Snapshots after 7, 11, 15, ... updates. Adam's step on a constant gradient is its rate."""
  posterior = swag.Swag(
    fakes.select, learning_rate=0.01, cyclic_factor=3.0, burn_in=3, period=4, num_models=2, eps=1e-12
  )
  return fakes.Jitted(posterior, fakes.linear_loss(1.0))


def _run(posterior, num_updates, bad=()):
  """Takes updates u = 1, 2, ..., those in `bad` with a gradient that is not finite. Returns all states and metrics."""
  states, rows = [posterior.init(jax.random.key(0))], []
  for u, key in enumerate(jax.random.split(jax.random.key(1), num_updates), start=1):
    state, _, metrics = posterior.update(states[-1], key, factor=np.nan if u in bad else 1.0)
    states.append(state)
    rows.append(metrics)
  return states, rows


def test_the_papers_rate_and_snapshots():
  rate = lambda u: float(swag.cyclic_learning_rate(u, base=1e-4, factor=5.0, burn_in=500, period=200))
  assert rate(0) == pytest.approx(1e-4) and rate(600) == pytest.approx(1e-4)  # Troughs.
  assert rate(50) == pytest.approx(3e-4) and rate(650) == pytest.approx(3e-4)
  for u in (700, 900, 4500):
    assert rate(u) == pytest.approx(5e-4)
    assert rate(u - 1) == pytest.approx(rate(u + 1)) == pytest.approx(5e-4 - 4e-4 / 100)
  updates = np.arange(1, 4501)
  snapshots = updates[np.asarray(swag.is_snapshot(updates, 500, 200))]
  assert snapshots.tolist() == list(range(700, 4501, 200)) and len(snapshots) == 20


@pytest.mark.parametrize('burn_in, period', [(0, 4), (3, 4), (10, 5), (2, 1)])
def test_peaks_are_at_snapshots_whatever_burn_in_and_period(burn_in, period):
  updates = np.arange(1, 60)
  rates = np.asarray(swag.cyclic_learning_rate(updates, 1.0, 3.0, burn_in, period))
  due = np.asarray(swag.is_snapshot(updates, burn_in, period))
  assert np.flatnonzero(due)[0] + 1 == burn_in + period
  np.testing.assert_allclose(rates[due], 3.0, rtol=1e-6)
  if period > 1:
    assert np.all(rates[(updates - burn_in) % period != 0] < 3.0)
  if period % 2 == 0:
    np.testing.assert_allclose(rates[(updates - burn_in) % period == period // 2], 1.0, rtol=1e-6)


def test_the_update_whose_result_is_a_snapshot_has_the_peak_rate():
  """Seen in the parameters, not in the schedule: an off-by-one between the two would not show there."""
  states, rows = _run(_linear(), 16)
  vectors = [fakes.to_vector(state.params) for state in states]
  used = np.array([np.mean(before - after) for before, after in itertools.pairwise(vectors)])
  # u           1     2     3     4     5     6     7     8   ...; snapshots at 7, 11, 15.
  expected = [0.01, 0.02, 0.03, 0.02, 0.01, 0.02, 0.03, 0.02, 0.01, 0.02, 0.03, 0.02, 0.01, 0.02, 0.03, 0.02]
  np.testing.assert_allclose(used, expected, rtol=1e-3)
  np.testing.assert_allclose([row['learning_rate'] for row in rows], expected, rtol=1e-5)
  assert [int(row['num_snapshots']) for row in rows] == [0] * 6 + [1] * 4 + [2] * 4 + [3] * 2
  np.testing.assert_array_equal(fakes.to_vector(states[7].moments.mean), vectors[7])


@pytest.mark.parametrize('decay', [0.8, 0.5, 1.0])
@pytest.mark.parametrize('count', [1, 2, _K, 2 * _K + 3])
def test_moments_and_columns_match_their_definitions(decay, count):
  trees = _random_trees(count)
  moments = _moments_of(trees, decay=decay)
  snapshots = [fakes.to_vector(tree) for tree in trees]
  mean, variance = _naive_moments(snapshots, decay)
  np.testing.assert_allclose(fakes.to_vector(moments.mean), mean, rtol=1e-6)
  np.testing.assert_allclose(moments.variance, variance, rtol=2e-3, atol=1e-13)
  assert moments.num_snapshots == count
  columns = _naive_columns(snapshots, decay, _K)
  slots = np.arange(count - len(columns), count) % _K
  np.testing.assert_allclose(np.asarray(moments.columns)[slots], columns, atol=3e-7)
  untouched = np.delete(np.asarray(moments.columns), slots, axis=0)
  np.testing.assert_array_equal(untouched, np.zeros_like(untouched))
  # The mean is of all parameters, not of the selected ones alone.
  encoders = [np.ravel(tree['encoder']['w']) for tree in trees]
  np.testing.assert_allclose(np.ravel(moments.mean['encoder']['w']), _naive_moments(encoders, decay)[0], rtol=1e-6)


def test_constant_weights_have_themselves_as_mean_and_no_variance_from_the_first_snapshot_on():
  tree = _random_trees(1)[0]
  for count in (1, 2, 3, _K, 3 * _K):
    moments = jax.tree.map(np.asarray, _moments_of([tree] * count))
    jax.tree.map(np.testing.assert_array_equal, moments.mean, tree)  # Exactly.
    assert not np.any(moments.variance) and not np.any(moments.columns) and moments.spread == 0


# The first posterior, the next, and (but for 0.99 and 1) the limit.
@pytest.mark.parametrize(
  'decay, count',
  [(0.5, 21), (0.8, 20), (1.0, 60)]
  + [
    pytest.param(*case, marks=pytest.mark.slow)
    for case in itertools.product((0.5, 0.8, 0.99, 1.0), (20, 21, 60))
    if case not in ((0.5, 21), (0.8, 20), (1.0, 60))
  ],
)
def test_samples_have_the_variance_of_iid_snapshots(decay, count):
  num_models, size, num_samples = 20, 10_000, 2_000
  add_snapshot = jax.jit(lambda moments, tree: swag.add_snapshot(moments, tree, lambda tree: tree, decay, scale=1.0))
  moments = swag.init_moments({'w': jnp.zeros(size)}, size, num_models)
  for key in jax.random.split(jax.random.key(count), count):
    moments = add_snapshot(moments, {'w': 3 + jax.random.normal(key, (size,))})
  samples = swag.draw(jnp.zeros(size), moments.variance, moments.columns, 1.0, jax.random.key(1), num_samples)
  squares = np.square(np.asarray(samples))
  # Parameters have snapshots of their own, samples have noise of their own.
  errors = [np.std(squares.mean(axis=axis)) / np.sqrt(squares.shape[1 - axis]) for axis in (0, 1)]
  assert squares.mean() == pytest.approx(1, abs=4 * np.linalg.norm(errors))
  assert np.linalg.norm(errors) < 0.01


def test_moments_of_training_are_those_of_its_snapshots():
  states, _ = _run(_noisy(), 11)
  snapshots = [fakes.to_vector(states[u].params) for u in (3, 5, 7, 9, 11)]
  mean, variance = _naive_moments(snapshots, _DECAY)
  np.testing.assert_allclose(fakes.to_vector(_noisy().mean(states[-1])), mean, rtol=1e-5)
  np.testing.assert_allclose(states[-1].moments.variance, variance, rtol=1e-4)
  columns = np.asarray(states[-1].moments.columns)  # Of snapshots 4, 5 and 3.
  np.testing.assert_allclose(columns[[2, 0, 1]], _naive_columns(snapshots, _DECAY, 3), atol=1e-5)


def test_until_all_snapshots_are_in_samples_and_mean_are_the_current_parameters():
  states, rows = _run(_noisy(), 8)
  for u, state in enumerate(states):
    samples = fakes.to_vectors(_noisy().sample(state, jax.random.key(u), 3))
    is_current = [np.array_equal(sample, fakes.to_vector(state.params)) for sample in samples]
    assert is_current == [u < 7] * 3
    mean = _noisy().mean(state)
    assert np.array_equal(fakes.to_vector(mean), fakes.to_vector(state.params)) == (u < 7)
    assert np.array_equal(mean['encoder']['w'], state.params['encoder']['w']) == (u < 7)
  assert [bool(row['posterior_spread'] > 0) for row in rows] == [False] * 6 + [True] * 2


@pytest.mark.parametrize('scale', [1.0, 0.25])
def test_the_covariance_of_samples_within_and_across_leaves(scale):
  """The empirical covariance of n draws has standard errors sqrt((S_ii S_jj + S_ij^2) / n)."""
  num_samples = 200_000
  trees = _random_trees(_K + 2)
  moments = _moments_of(trees, scale=scale)
  posterior = fakes.Jitted(swag.Swag(fakes.select, num_models=_K, scale=scale))
  state = posterior.init(jax.random.key(0))._replace(moments=moments)
  samples = fakes.to_vectors(posterior.sample(state, jax.random.key(7), num_samples))
  snapshots = [fakes.to_vector(tree) for tree in trees]
  mean, variance = _naive_moments(snapshots, _DECAY)
  columns = _naive_columns(snapshots, _DECAY, _K)
  expected = scale * (np.diag(variance) / 2 + columns.T @ columns / (2 * (_K - 1)))
  stds = np.sqrt(np.diag(expected))
  np.testing.assert_array_less(np.abs(samples.mean(axis=0, dtype=np.float64) - mean), 5 * stds / np.sqrt(num_samples))
  errors = np.cov(samples, rowvar=False) - expected
  np.testing.assert_array_less(np.abs(errors), 5 * np.sqrt((np.outer(stds, stds) ** 2 + expected**2) / num_samples))
  # The entries that faulty versions lose are far above the errors: those between leaves (1, 6, 2 and 6 entries).
  assert np.max(np.abs(expected[:7, 7:]) / np.outer(stds, stds)[:7, 7:]) > 0.5
  np.testing.assert_allclose(moments.spread, np.sqrt(np.mean(np.diag(expected))), rtol=1e-3)


def test_a_skipped_update_counts_neither_for_the_rate_nor_for_the_snapshots():
  # Update 7 results in the first snapshot; 8 and 9 are bad; so 13 is the eleventh that counts, and the second snapshot.
  states, rows = _run(_linear(), 13, bad=(8, 9))
  assert [int(row['num_snapshots']) for row in rows] == [0] * 6 + [1] * 6 + [2]
  assert [int(state.num_updates) for state in states] == [0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 8, 9, 10, 11]
  clean_states, clean_rows = _run(_linear(), 11)
  jax.tree.map(np.testing.assert_array_equal, states[-1].params, clean_states[-1].params)
  jax.tree.map(np.testing.assert_array_equal, states[-1].moments, clean_states[-1].moments)
  assert rows[-1]['learning_rate'] == clean_rows[-1]['learning_rate'] == pytest.approx(0.03)


def test_updates_do_not_copy_the_columns():
  """Alone, and beside a sample in a scan, what an update allocates on the way is far less than all columns."""
  init_params = lambda key: {'w': jax.random.normal(key, (200, 250))}
  loss = lambda params, key: (jnp.sum(jnp.square(params['w'])), ())
  posterior = swag.Swag(lambda params: params, num_models=64, burn_in=0, period=2)
  state, key = posterior.init(jax.random.key(0), init_params), jax.random.key(1)

  def update(state, key):
    return posterior.update(state, loss, key)[0]

  def scan(state, key):
    def step(state, key):
      state = update(state, key)
      return state, jnp.mean(posterior.sample(state, key, 2)['w'])

    return jax.lax.scan(step, state, jax.random.split(key, 3))

  update, scan = (jax.jit(function, donate_argnums=0).lower(state, key).compile() for function in (update, scan))
  for compiled in (update, scan):
    assert compiled.memory_analysis().temp_size_in_bytes < 0.25 * 64 * 200 * 250 * 4
  address = state.moments.columns.unsafe_buffer_pointer()
  for num_snapshots in (0, 1, 1):
    state = update(state, key)
    assert state.moments.num_snapshots == num_snapshots
    assert state.moments.columns.unsafe_buffer_pointer() == address


@pytest.mark.parametrize(
  'settings', [dict(num_models=1), dict(period=0), dict(burn_in=-1), dict(decay=0.0), dict(decay=1.1), dict(scale=-1.0)]
)
def test_settings_without_meaning_are_refused(settings):
  ((name, value),) = settings.items()
  with pytest.raises(ValueError, match=rf'Swag\.{name} = {value} should be'):
    swag.Swag(fakes.select, **settings)
