"""The constrained cross entropy method: a gradient-free search over action sequences.

Wen and Topcu (2018), "Constrained Cross-Entropy Method for Safe Reinforcement Learning"; Liu et al. (2021),
"Constrained Model-based Reinforcement Learning with Robust Cross Entropy Method". Pure functions, written for one
problem; vmap them for more. In addition to the legend in `lambda_kit/types.py`, P is the population.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from lambda_kit import core
from lambda_kit import types

# Maps candidates [P, H, A] and a key to their returns [P] and costs [P, C].
Evaluate = Callable[[types.Array, core.Key], tuple[types.Array, types.Array]]


class CemResult(NamedTuple):
  """The best candidate evaluated, and the distribution at the end of the search."""

  actions: types.Array  # [H, A], the best candidate, in [-1, 1].
  mean: types.Array  # [H, A]
  std: types.Array  # [H, A]
  value: types.Array  # [], the return of `actions`.
  cost: types.Array  # [C], the costs of `actions`.
  feasible: types.Array  # [] bool, whether `cost` is within the limits.


class Ranking(NamedTuple):
  """Candidates in order of preference: feasible before infeasible ones, then by descending score."""

  order: types.Array  # [P], indices of candidates, best first.
  feasible: types.Array  # [P] bool.
  score: types.Array  # [P], the return of a feasible candidate, minus the excess cost of an infeasible one.


class _Search(NamedTuple):
  mean: types.Array  # [H, A]
  std: types.Array  # [H, A]
  best: types.Array  # [H, A]
  best_score: types.Array  # []
  value: types.Array  # []
  cost: types.Array  # [C]
  feasible: types.Array  # []


def rank_candidates(returns: types.Array, costs: types.Array, limits: types.Array) -> Ranking:
  """Orders candidates: feasible ones by return, then infeasible ones by how little they exceed the limits.

  A candidate is feasible if cost_i <= limit_i for every constraint i. The excess of an infeasible one is
  sum_i max(0, cost_i - limit_i), so that with one constraint the least costly comes first. A candidate with a NaN
  among its return and costs is infeasible, and comes last.

  Args:
    returns: Returns of the candidates, [P].
    costs: Their costs, [P, C].
    limits: The limits of the costs, [C].

  Returns:
    The ranking of the P candidates.
  """
  chex.assert_rank([returns, costs, limits], [1, 2, 1])
  chex.assert_equal_shape_prefix([returns, costs], 1)
  chex.assert_shape(costs, (None, limits.shape[0]))
  valid = ~(jnp.isnan(returns) | jnp.isnan(costs).any(axis=-1))
  feasible = valid & (costs <= limits[None]).all(axis=-1)
  excess = jnp.maximum(costs - limits[None], 0.0).sum(axis=-1)
  score = jnp.where(feasible, returns, jnp.where(valid, -excess, -jnp.inf))
  order = jnp.lexsort((-score, ~feasible))  # The last key is the primary one.
  return Ranking(order, feasible, score)


def elite_weights(num_feasible: types.Array, elites: int) -> types.Array:
  """Weights of the first `elites` candidates of a ranking, to which the distribution is fitted.

  If any candidate is feasible, only feasible ones count, even if they are fewer than `elites`. If none is, the least
  costly ones count.

  Args:
    num_feasible: How many candidates are feasible, [].
    elites: The maximum number of candidates that count.

  Returns:
    Equal weights for those that count and 0 for the rest, [elites], with a sum of 1.
  """
  count = jnp.where(num_feasible > 0, jnp.minimum(num_feasible, elites), elites)
  return (jnp.arange(elites) < count) / count


def constrained_cem(
  key: core.Key,
  evaluate: Evaluate,
  mean0: types.Array,
  limits: types.Array,
  *,
  iterations: int,
  population: int,
  elites: int,
  initial_std: float,
  min_std: float,
  smoothing: float,
) -> CemResult:
  """Searches for argmax_a return(a) subject to cost_i(a) <= limit_i, over action sequences a in [-1, 1]^(H x A).

  Each iteration draws candidates from N(mean, std^2), clipped to [-1, 1], evaluates and ranks them, and fits the
  distribution to the elites: x <- smoothing * x + (1 - smoothing) * x(elites), for the mean and the standard
  deviation. The mean itself is the first candidate, so that `mean0` (e.g. the plan of the previous step) is never given
  up for something worse.

  Args:
    key: Seeds all draws.
    evaluate: Maps candidates [P, H, A] and a key to returns [P] and costs [P, C]. Called once per iteration.
    mean0: The mean of the first candidates, [H, A].
    limits: The limits of the costs, [C]. C may be 0.
    iterations: How often the distribution is fitted.
    population: P, candidates per iteration.
    elites: The maximum number of candidates to which the distribution is fitted; see `elite_weights`.
    initial_std: Standard deviation of the first candidates.
    min_std: Lower bound of the standard deviation.
    smoothing: Weight of the old distribution in the new one, in [0, 1).

  Returns:
    The best candidate of all iterations, infeasible only if all candidates were.
  """
  chex.assert_rank([mean0, limits], [2, 1])
  if not 1 <= elites <= population or iterations < 1:
    raise ValueError(f'Needs 1 <= elites={elites} <= population={population} and iterations={iterations} >= 1.')
  if not (0 <= smoothing < 1 and 0 <= min_std <= initial_std):
    raise ValueError(f'Needs 0 <= smoothing={smoothing} < 1 and 0 <= min_std={min_std} <= initial_std={initial_std}.')

  def iterate(search: _Search, key: core.Key) -> tuple[_Search, None]:
    sample_key, evaluate_key = jax.random.split(key)
    noise = jax.random.normal(sample_key, (population, *mean0.shape), mean0.dtype).at[0].set(0.0)
    candidates = jnp.clip(search.mean[None] + search.std[None] * noise, -1.0, 1.0)
    returns, costs = evaluate(candidates, evaluate_key)
    chex.assert_shape(returns, (population,))
    chex.assert_shape(costs, (population, limits.shape[0]))
    ranking = rank_candidates(returns, costs, limits)

    weights = elite_weights(ranking.feasible.sum(), elites).astype(mean0.dtype)
    elite_actions = candidates[ranking.order[:elites]]
    mean = jnp.tensordot(weights, elite_actions, axes=1)
    variance = jnp.tensordot(weights, jnp.square(elite_actions - mean[None]), axes=1)
    mean = smoothing * search.mean + (1.0 - smoothing) * mean
    std = jnp.maximum(smoothing * search.std + (1.0 - smoothing) * jnp.sqrt(variance), min_std)

    first = ranking.order[0]
    feasible, score = ranking.feasible[first], ranking.score[first]
    better = jnp.where(feasible == search.feasible, score > search.best_score, feasible)
    best = jax.tree.map(
      lambda new, old: jnp.where(better, new, old),
      (candidates[first], score, returns[first], costs[first], feasible),
      search[2:],
    )
    return _Search(mean, std, *best), None

  # Before the first candidate, the best is `mean0` with the worst possible score.
  mean0 = jnp.clip(mean0, -1.0, 1.0)
  infinity = jnp.asarray(jnp.inf, mean0.dtype)
  search = _Search(
    mean0,
    jnp.full_like(mean0, initial_std),
    mean0,
    -infinity,
    -infinity,
    jnp.full(limits.shape, infinity),
    jnp.asarray(False),
  )
  search, _ = jax.lax.scan(iterate, search, jax.random.split(key, iterations))
  return CemResult(search.best, search.mean, search.std, search.value, search.cost, search.feasible)
