"""What closes the loop around a learned model: budgets that are corrected by the costs of real episodes.

A policy that is optimised on a model costs more than the model says, whatever the model is. No bound over models knows
by how much, real episodes do.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

import gin
from lambda_kit import core
from lambda_kit import types


class NoFeedbackState(NamedTuple):
  pass


@gin.register
class NoFeedback(core.Feedback[NoFeedbackState]):
  """Budgets stay as they are, as in the paper."""

  def init(self, num_constraints: int) -> NoFeedbackState:
    return NoFeedbackState()

  def shares(self, state: NoFeedbackState, num_constraints: int) -> types.Array:
    return jnp.ones([num_constraints])

  def observe_update(
    self, state: NoFeedbackState, cost_values: types.Array, budgets: types.Array, multipliers: types.Array
  ) -> NoFeedbackState:
    return state

  def observe_episode(self, state: NoFeedbackState, cost_return: types.Array, limits: types.Array) -> NoFeedbackState:
    return state


class Moments(NamedTuple):
  """Sums over episodes, which forget exponentially."""

  weight: types.Array  # []
  total: types.Array  # [C]
  squares: types.Array  # [C]


class IntegralState(NamedTuple):
  log_share: types.Array  # [C]
  may_tighten: types.Array  # [C], how often, lately, imagined costs were not far above their budget.
  may_loosen: types.Array  # [C], how often, lately, a multiplier was at work.
  costs: Moments  # Of all episodes.


@gin.register
class IntegralFeedback(core.Feedback[IntegralState]):
  """An integral controller of each budget: budget <- share * budget, and after each episode

    log share <- clip(log share + gain * awake * max((limit - cost return) / limit, -worst), log lowest, log highest).

  At rest the mean cost of episodes is the limit, whatever the model's bias, if that takes a share in this range; with
  shares up to 1 it is at most the limit. With a margin of m, the limit in this rule is lower by m standard errors of
  the mean cost of recent episodes: real costs are uncertain, too, and a policy that is at its limit on average exceeds
  it half of the time it is measured. Integration is conditional, against windup: a share falls only while imagined
  costs are not far above the budget (otherwise the solver is at work already, and early on nothing is learned yet), and
  rises only while a multiplier holds the policy back (otherwise more budget changes nothing). `awake` is how often that
  was so in the last updates; at rest it is 1 for both, or the scale would tip.

  Args:
    gain: Of log share for an episode that costs nothing, or twice its limit. With 0.05 a share halves in 14 episodes of
      twice the limit.
    lowest: Share.
    highest: Share. More than 1 gives back what pessimistic bounds withhold, at the price of costs while it learns how
      much that is.
    margin: m.
    episodes: Memory of the standard error.
    worst: Excess of an episode, in limits, that counts: one episode can't take all of the budget. Costs of episodes are
      skewed: cut at twice the limit, their mean would settle above it.
    slack: By which part of the budget imagined costs may exceed it while a share falls: they scatter around it.
    memory: Updates over which it is averaged who is at work.
    idle_multiplier: Multipliers up to this one hold nothing back.
  """

  display_name = 'feedback'

  def __init__(
    self,
    gain: float = 0.05,
    lowest: float = 0.1,
    highest: float = 1.0,
    margin: float = 0.0,
    episodes: float = 20.0,
    worst: float = 4.0,
    slack: float = 0.25,
    memory: float = 100.0,
    idle_multiplier: float = 1e-3,
  ):
    if not (
      gain > 0.0
      and 0.0 < lowest <= 1.0 <= highest
      and margin >= 0.0
      and episodes >= 1.0
      and worst > 0.0
      and slack >= 0.0
      and memory >= 1.0
      and idle_multiplier >= 0.0
    ):
      raise ValueError(
        f'IntegralFeedback: gain={gain} must be positive, lowest={lowest} in (0, 1], highest={highest} at least 1, '
        f'margin={margin} not negative, episodes={episodes} at least 1, worst={worst} positive, slack={slack} not '
        f'negative, memory={memory} at least 1 and idle_multiplier={idle_multiplier} not negative.'
      )
    self._gain, self._worst, self._slack = gain, worst, slack
    self._margin, self._keep = margin, 1.0 - 1.0 / episodes
    self._rate, self._idle_multiplier = 1.0 / memory, idle_multiplier
    self._range = (jnp.log(lowest).item(), jnp.log(highest).item())

  def init(self, num_constraints: int) -> IntegralState:
    zeros = jnp.zeros([num_constraints])
    return IntegralState(zeros, zeros, zeros, Moments(jnp.zeros([]), zeros, zeros))

  def shares(self, state: IntegralState, num_constraints: int) -> types.Array:
    chex.assert_shape(state.log_share, (num_constraints,))
    return jnp.exp(state.log_share)

  def observe_update(
    self, state: IntegralState, cost_values: types.Array, budgets: types.Array, multipliers: types.Array
  ) -> IntegralState:
    chex.assert_equal_shape([cost_values, budgets, multipliers, state.log_share])
    average = lambda old, new: old + self._rate * (new.astype(old.dtype) - old)
    return state._replace(
      may_tighten=average(state.may_tighten, cost_values <= (1.0 + self._slack) * budgets),
      may_loosen=average(state.may_loosen, multipliers > self._idle_multiplier),
    )

  def observe_episode(self, state: IntegralState, cost_return: types.Array, limits: types.Array) -> IntegralState:
    chex.assert_equal_shape([cost_return, limits, state.log_share])
    costs = _add(state.costs, cost_return, self._keep)
    target = limits - self._margin * _standard_error(costs, self._keep)
    # Of a limit of 0 each cost is too much.
    error = jnp.clip((target - cost_return) / jnp.maximum(limits, 1e-6), -self._worst, 1.0)
    awake = jnp.where(error < 0, state.may_tighten, state.may_loosen)
    step = jnp.where(jnp.isfinite(cost_return), self._gain * awake * error, 0.0)
    return state._replace(log_share=jnp.clip(state.log_share + step, *self._range), costs=costs)


def _add(moments: Moments, values: types.Array, keep: float) -> Moments:
  """Takes values [C] into the sums, unless one is not finite."""
  new = Moments(jnp.ones([]), values, jnp.square(values))
  finite = jnp.all(jnp.isfinite(values))
  return jax.tree.map(lambda old, new: jnp.where(finite, keep * old + new, old), moments, new)


def _standard_error(moments: Moments, keep: float) -> types.Array:
  """That of the weighted mean [C] of n independent values; 0 for one or none.

  With q = sum_i w_i^2 / (sum_i w_i)^2 over the weights, the mean has q times the variance of a value, of which the
  weighted variance is an estimate that is too small by 1 - q (derived at `posteriors.swag.add_snapshot`).
  """
  weight = jnp.maximum(moments.weight, 1.0)
  mean_square = (2.0 / weight - (1.0 - keep)) / (1.0 + keep)  # q
  variance = jnp.maximum(moments.squares / weight - jnp.square(moments.total / weight), 0.0)
  return jnp.sqrt(mean_square * variance / jnp.maximum(1.0 - mean_square, 1e-6))


class RatioState(NamedTuple):
  imagined: types.Array  # [C], imagined costs over the whole budget, averaged over the last updates.
  forecast: types.Array  # [C], sum over episodes, of `imagined` when they were played.
  came: types.Array  # [C], likewise of their costs over their limits.
  episodes: types.Array  # [], how many.
  has_learned: types.Array  # [] bool


@gin.register
class RatioFeedback(core.Feedback[RatioState]):
  """Budgets are multiplied by how much of the costs that came was imagined: what counts is then what comes.

  With F the imagined costs as shares of the budget, and C the costs of the episodes of that time as shares of their
  limits, both averaged over recent episodes,

    share = clip((F + m / n) / (C + m / n), lowest, highest),    m = (F + C) / 2,

  after n episodes: the first ones are trusted less. Critics lag behind a policy that has learned to drive, and
  models expect too little of it: then imagined costs have to fall until real ones are at their limit. Nothing is
  integrated, so nothing winds up, and nothing happens before the first update.

  Args:
    memory: Episodes over which costs are averaged.
    lowest: Share.
    highest: Share. 1 never gives back what pessimistic bounds withhold.
    updates: Updates over which imagined costs are averaged.
  """

  display_name = 'ratio feedback'

  def __init__(self, memory: float = 10.0, lowest: float = 0.2, highest: float = 1.0, updates: float = 50.0):
    if not (memory >= 1.0 and 0.0 < lowest <= 1.0 <= highest and updates >= 1.0):
      raise ValueError(
        f'RatioFeedback: memory={memory} and updates={updates} must be at least 1, lowest={lowest} in (0, 1] and '
        f'highest={highest} at least 1.'
      )
    self._keep, self._rate, self._range = 1.0 - 1.0 / memory, 1.0 / updates, (lowest, highest)

  def init(self, num_constraints: int) -> RatioState:
    zeros = jnp.zeros([num_constraints])
    return RatioState(zeros, zeros, zeros, jnp.zeros([]), jnp.zeros([], bool))

  def shares(self, state: RatioState, num_constraints: int) -> types.Array:
    chex.assert_shape([state.forecast, state.came], (num_constraints,))
    prior = (state.forecast + state.came) / (2.0 * jnp.maximum(state.episodes, 1.0))
    tiny = 1e-6  # Nothing imagined and nothing came: nothing to correct.
    return jnp.clip((state.forecast + prior + tiny) / (state.came + prior + tiny), *self._range)

  def observe_update(
    self, state: RatioState, cost_values: types.Array, budgets: types.Array, multipliers: types.Array
  ) -> RatioState:
    chex.assert_equal_shape([cost_values, budgets, state.imagined])
    whole = budgets / self.shares(state, budgets.shape[0])
    now = jnp.maximum(cost_values, 0.0) / jnp.maximum(whole, 1e-6)
    average = jnp.where(state.has_learned, state.imagined + self._rate * (now - state.imagined), now)
    imagined = jnp.where(jnp.isfinite(average), average, state.imagined)
    return state._replace(imagined=imagined, has_learned=jnp.ones_like(state.has_learned))

  def observe_episode(self, state: RatioState, cost_return: types.Array, limits: types.Array) -> RatioState:
    chex.assert_equal_shape([cost_return, limits, state.came])
    counts = state.has_learned & jnp.all(jnp.isfinite(cost_return))
    came = cost_return / jnp.maximum(limits, 1e-6)
    average = lambda old, new: jnp.where(counts, self._keep * old + new, old)
    return state._replace(
      forecast=average(state.forecast, state.imagined), came=average(state.came, came), episodes=state.episodes + counts
    )
