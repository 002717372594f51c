"""The constrained cross entropy method on problems whose solution is known."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.planners import cem

_search = functools.partial(
  cem.constrained_cem, iterations=10, population=150, elites=15, initial_std=1.0, min_std=0.05, smoothing=0.0
)
_ZEROS = jnp.zeros((3, 2))  # H = 3, A = 2.
_TARGET = jnp.asarray([[0.5, -0.2], [0.1, 0.8], [-0.6, 0.3]])  # Its sum is 0.9.


def _total(candidates):
  return candidates.sum(axis=(1, 2))


def _distance(candidates, target):
  return jnp.square(candidates - target[None]).sum(axis=(1, 2))


def _approach_target(candidates, key):
  """The return is the negative squared distance to the target, the cost is the sum of all actions."""
  del key
  return -_distance(candidates, _TARGET), _total(candidates)[:, None]


def _recorded(evaluate):
  """`evaluate`, and a list that its candidates, returns and costs are put into."""
  records = []

  def record(*arrays):
    records.append([np.asarray(x) for x in arrays])

  def evaluate_and_record(candidates, key):
    returns, costs = evaluate(candidates, key)
    jax.debug.callback(record, candidates, returns, costs, ordered=True)
    return returns, costs

  return evaluate_and_record, records


@functools.partial(jax.jit, static_argnums=1)
def _search_keys(keys, evaluate, limits, mean0):
  # `lax.map` compiles in half of the time of `vmap`.
  return jax.lax.map(lambda key: _search(key, evaluate, mean0, limits), keys)


def _search_many(evaluate, limits, mean0=_ZEROS):
  """Results for 16 keys, [16, ...]."""
  return _search_keys(jax.random.split(jax.random.key(1), 16), evaluate, jnp.asarray(limits), mean0)


def test_finds_an_unconstrained_optimum():
  evaluate = lambda candidates, key: (-_distance(candidates, _TARGET), jnp.zeros((candidates.shape[0], 0)))
  result = _search_many(evaluate, limits=jnp.zeros((0,)))
  np.testing.assert_allclose(result.actions, np.broadcast_to(_TARGET, (16, 3, 2)), atol=0.1)
  np.testing.assert_allclose(result.value, 0.0, atol=0.02)
  assert result.feasible.all()


def test_an_optimum_outside_of_the_box_is_found_on_its_edge():
  evaluate = lambda candidates, key: (_total(candidates), jnp.zeros((candidates.shape[0], 1)))
  result = _search_many(evaluate, limits=[0.0])
  np.testing.assert_allclose(result.actions, np.ones((16, 3, 2)), atol=0.05)
  assert (abs(result.actions) <= 1).all() and (abs(result.mean) <= 1).all()


def test_finds_a_constrained_optimum():
  # The point of the half space sum(a) <= b nearest to a target outside of it is target - (sum(target) - b) / 6, at a
  # squared distance of (sum(target) - b)^2 / 6. Here b = -0.3: target - 0.2, at 0.24.
  result = _search_many(_approach_target, limits=[-0.3])
  np.testing.assert_allclose(result.actions, np.broadcast_to(_TARGET - 0.2, (16, 3, 2)), atol=0.15)
  np.testing.assert_allclose(result.value, -0.24, atol=0.05)
  assert result.feasible.all()
  assert (result.cost <= -0.3).all()
  np.testing.assert_allclose(result.actions.sum(axis=(1, 2)), result.cost[:, 0], atol=1e-5)


def test_a_limit_that_is_not_reached_changes_nothing():
  bound, free = _search_many(_approach_target, [7.0]), _search_many(_approach_target, [jnp.inf])
  np.testing.assert_array_equal(bound.actions, free.actions)


def test_keeps_within_each_of_several_limits():
  # The largest sum of all actions with a[0, 0] <= 0.2 and a[0, 1] <= -0.3; the other four are free to be 1.
  evaluate = lambda candidates, key: (_total(candidates), candidates[:, 0])
  result = _search_many(evaluate, limits=[0.2, -0.3])
  assert result.feasible.all()
  assert (result.actions[:, 0] <= np.asarray([[0.2, -0.3]])).all()
  np.testing.assert_allclose(result.actions[:, 0], np.broadcast_to([0.2, -0.3], (16, 2)), atol=0.1)
  np.testing.assert_allclose(result.actions[:, 1:], 1.0, atol=0.05)


def test_leaves_the_infeasible_region_against_the_returns():
  # Feasible: all six actions at least 0.5, which is one candidate in 1,200 of the first. Returns point the other way.
  evaluate = lambda candidates, key: (-_total(candidates), jnp.maximum(0.5 - candidates, 0).sum(axis=(1, 2))[:, None])
  result = _search_many(evaluate, limits=[0.0])
  assert result.feasible.all()
  assert (result.actions >= 0.5).all()
  # The search may narrow before it gets there, but seldom does: the optimum is 0.5 everywhere.
  np.testing.assert_allclose(np.median(result.actions, axis=0), 0.5, atol=0.1)


def test_returns_the_best_of_all_candidates():
  # Noise in returns and costs, so that good candidates may come early.
  def noisy(candidates, key):
    return_noise, cost_noise = jax.random.normal(key, (2, candidates.shape[0]))
    return -_distance(candidates, _TARGET) + return_noise, (_total(candidates) + cost_noise)[:, None]

  evaluate, records = _recorded(noisy)
  search = jax.jit(functools.partial(_search, evaluate=evaluate, mean0=_ZEROS, population=20, elites=5, iterations=4))
  for limit in (-4.0, -1.0, 3.0):  # From few feasible candidates to many.
    records.clear()
    result = search(jax.random.key(3), limits=jnp.asarray([limit]))
    jax.effects_barrier()
    candidates, returns, costs = (np.concatenate(x) for x in zip(*records))
    assert len(candidates) == 80
    feasible = costs[:, 0] <= limit
    assert feasible.any() and not feasible.all()
    best = np.argmax(np.where(feasible, returns, -np.inf))
    assert result.feasible
    np.testing.assert_array_equal(result.actions, candidates[best])
    np.testing.assert_array_equal(result.value, returns[best])
    np.testing.assert_array_equal(result.cost, costs[best])


def test_without_feasible_candidates_the_cost_is_minimised():
  # The cost is 1 + |a - m|^2, least at m, and never within the limit of 0.5. The return, largest at 1, plays no part.
  minimiser = -0.5 * _TARGET
  evaluate = lambda candidates, key: (10 * _total(candidates), 1 + _distance(candidates, minimiser)[:, None])
  result = _search_many(evaluate, limits=[0.5])
  assert not result.feasible.any()
  np.testing.assert_allclose(result.actions, np.broadcast_to(minimiser, (16, 3, 2)), atol=0.1)
  np.testing.assert_allclose(result.cost, 1.0, atol=0.02)


def test_ranking_puts_feasible_candidates_first():
  returns = jnp.asarray([5.0, 1.0, 9.0, 2.0, 7.0, 8.0])
  costs = jnp.asarray([[0.0, 2.0], [1.0, 2.0], [4.0, 0.0], [0.0, 0.0], [3.0, 3.0], [0.0, 2.5]])
  # Limits 1 and 2 (equality is feasible): feasible are 0, 1, 3 with returns 5, 1, 2. The others exceed the limits by
  # 3 + 0 = 3 (candidate 2), 2 + 1 = 3 (candidate 4) and 0.5 (candidate 5).
  ranking = cem.rank_candidates(returns, costs, jnp.asarray([1.0, 2.0]))
  assert ranking.order.tolist() == [0, 3, 1, 5, 2, 4]
  assert ranking.feasible.tolist() == [True, True, False, True, False, False]
  assert ranking.score.tolist() == [5, 1, -3, 2, -3, -0.5]


def test_what_is_not_a_number_ranks_last():
  returns = jnp.asarray([jnp.nan, 1.0, 2.0, 3.0])
  costs = jnp.asarray([[0.0], [jnp.nan], [5.0], [0.0]])
  ranking = cem.rank_candidates(returns, costs, jnp.asarray([1.0]))
  assert ranking.order.tolist()[:2] == [3, 2]
  assert ranking.feasible.tolist() == [False, False, False, True]

  nothing = lambda candidates, key: (jnp.full((candidates.shape[0],), jnp.nan), _total(candidates)[:, None])
  result = _search(jax.random.key(0), nothing, _TARGET, jnp.asarray([9.0]), iterations=2)
  assert not result.feasible and np.isfinite(result.mean).all()
  np.testing.assert_array_equal(result.actions, _TARGET)


@pytest.mark.parametrize(
  'num_feasible, expected',
  [
    (0, [1 / 4] * 4),  # None feasible: the four least costly.
    (1, [1, 0, 0, 0]),  # One is enough to reject the others.
    (2, [1 / 2, 1 / 2, 0, 0]),
    (3, [1 / 3, 1 / 3, 1 / 3, 0]),
    (9, [1 / 4] * 4),
  ],
)
def test_elites(num_feasible, expected):
  weights = cem.elite_weights(jnp.asarray(num_feasible), elites=4)
  np.testing.assert_allclose(weights, expected, rtol=1e-6)


def test_the_distribution_is_fitted_to_the_elites():
  evaluate, records = _recorded(_approach_target)
  search = jax.jit(
    functools.partial(
      _search,
      evaluate=evaluate,
      mean0=0.1 * jnp.ones((3, 2)),
      iterations=1,
      population=40,
      elites=10,
      smoothing=0.25,
      min_std=0.3,
    )
  )
  for limit in (jnp.inf, -2.0, -100.0):
    records.clear()
    result = search(jax.random.key(0), limits=jnp.asarray([limit]))
    jax.effects_barrier()
    ((candidates, returns, costs),) = records
    feasible = costs[:, 0] <= limit
    if limit == -2.0:
      assert 2 <= feasible.sum() < 10  # Too few for all places.
    if feasible.any():
      elites = np.argsort(np.where(feasible, -returns, np.inf))[: min(10, feasible.sum())]
    else:
      elites = np.argsort(costs[:, 0])[:10]
    mean, std = candidates[elites].mean(axis=0), candidates[elites].std(axis=0)
    np.testing.assert_allclose(result.mean, 0.25 * 0.1 + 0.75 * mean, atol=1e-5)
    np.testing.assert_allclose(result.std, np.maximum(0.25 * 1.0 + 0.75 * std, 0.3), atol=1e-5)


def test_infeasible_candidates_are_no_elites_beside_two_feasible_of_ten():
  # Candidates 3 and 7 are feasible, and have the smallest returns.
  def evaluate(candidates, key):
    del key
    costs = jnp.ones((10, 1)).at[jnp.asarray([3, 7])].set(0.0)
    return costs[:, 0], costs

  evaluate, records = _recorded(evaluate)
  search = functools.partial(_search, iterations=1, population=10, elites=5, min_std=0.0)
  result = search(jax.random.key(0), evaluate, jnp.zeros((1, 1)), jnp.asarray([0.5]))
  jax.effects_barrier()
  first, second = records[0][0][[3, 7]]
  np.testing.assert_allclose(result.mean, (first + second) / 2, atol=1e-6)
  np.testing.assert_allclose(result.std, abs(first - second) / 2, atol=1e-6)


def test_candidates_follow_the_distribution():
  evaluate, records = _recorded(_approach_target)
  _search(
    jax.random.key(0),
    evaluate,
    _TARGET,
    jnp.asarray([jnp.inf]),
    iterations=1,
    population=4000,
    initial_std=0.1,
    min_std=0.0,
  )
  jax.effects_barrier()
  candidates = records[0][0]
  np.testing.assert_array_equal(candidates[0], _TARGET)  # The mean itself is one of them.
  np.testing.assert_allclose(candidates.mean(axis=0), _TARGET, atol=0.01)
  # Clipping takes a little from 0.8, two deviations away from the edge.
  np.testing.assert_allclose(candidates.std(axis=0), 0.1, atol=0.006)
  assert abs(candidates).max() <= 1


def test_a_mean_that_is_best_is_kept():
  result = _search_many(_approach_target, limits=[1.0], mean0=_TARGET)
  np.testing.assert_array_equal(result.actions, np.broadcast_to(_TARGET, (16, 3, 2)))
  assert (result.value == 0).all()


def test_iterations_see_different_noise():
  keys = []

  def evaluate(candidates, key):
    jax.debug.callback(lambda data: keys.append(tuple(data.tolist())), jax.random.key_data(key))
    return _approach_target(candidates, key)

  _search(jax.random.key(0), evaluate, _ZEROS, jnp.asarray([1.0]), iterations=5)
  jax.effects_barrier()
  assert len(set(keys)) == 5


def test_the_key_determines_the_result_with_vmap_or_without():
  keys = jax.random.split(jax.random.key(1), 16)
  search = lambda key: _search(key, _approach_target, _ZEROS, jnp.asarray([0.0]))
  mapped, looped, again = jax.vmap(search)(keys), *(_search_many(_approach_target, limits=[0.0]) for _ in range(2))
  assert len(np.unique(looped.value)) == 16
  jax.tree.map(np.testing.assert_array_equal, looped, again)
  # Numbers differ by rounding alone, which ten iterations may amplify.
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-3), looped, mapped)


@pytest.mark.parametrize(
  'settings', [{'elites': 200}, {'elites': 0}, {'iterations': 0}, {'smoothing': 1.0}, {'min_std': 2.0}]
)
def test_settings_that_make_no_sense_are_refused(settings):
  with pytest.raises(ValueError, match=next(iter(settings))):
    _search(jax.random.key(0), _approach_target, _ZEROS, jnp.zeros((1,)), **settings)
