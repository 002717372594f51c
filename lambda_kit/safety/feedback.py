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
from lambda_kit import errors
from lambda_kit import ranges
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
  has_learned: types.Array  # [] bool, whether there was an update.
  episodes: types.Array  # [] int32, since the first update.


@gin.register
@ranges.checked
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
    initial: Share at first. Less than 1 lets a policy earn its budget: where it begins with a model of another policy's
      data, nothing is known of how far forecasts of its own costs are off.
    margin: m.
    episodes: Memory of the standard error.
    asleep: Episodes after the first update that change nothing. Critics start from values of 0, so at first imagined
      costs are within any budget, whatever the policy does.
    worst: Excess of an episode, in limits, that counts: one episode can't take all of the budget. Costs of episodes are
      skewed: cut at twice the limit, their mean would settle above it.
    slack: By which part of the budget imagined costs may exceed it while a share falls: they scatter around it.
    memory: Updates over which it is averaged who is at work.
    idle_multiplier: Multipliers up to this one hold nothing back.
  """

  display_name = 'feedback'

  def __init__(
    self,
    gain: ranges.Positive = 0.05,
    lowest: ranges.PositiveShare = 0.1,
    highest: ranges.AtLeastOne = 1.0,
    initial: ranges.Positive = 1.0,
    margin: ranges.NotNegative = 0.0,
    episodes: ranges.AtLeastOne = 20.0,
    asleep: ranges.Whole = 0,
    worst: ranges.Positive = 4.0,
    slack: ranges.NotNegative = 0.25,
    memory: ranges.AtLeastOne = 100.0,
    idle_multiplier: ranges.NotNegative = 1e-3,
  ):
    if not lowest <= initial <= highest:
      raise errors.SetupError(
        f'IntegralFeedback.initial = {initial} must be between IntegralFeedback.lowest = {lowest} and '
        f'IntegralFeedback.highest = {highest}.'
      )
    self._gain, self._worst, self._slack = gain, worst, slack
    self._margin, self._keep, self._asleep = margin, 1.0 - 1.0 / episodes, asleep
    self._rate, self._idle_multiplier = 1.0 / memory, idle_multiplier
    self._range = (jnp.log(lowest).item(), jnp.log(highest).item())
    self._initial = jnp.log(initial).item()

  def init(self, num_constraints: int) -> IntegralState:
    zeros = jnp.zeros([num_constraints])
    moments = Moments(jnp.zeros([]), zeros, zeros)
    return IntegralState(
      jnp.full_like(zeros, self._initial), zeros, zeros, moments, jnp.zeros([], bool), jnp.zeros([], jnp.int32)
    )

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
      has_learned=jnp.ones_like(state.has_learned),
    )

  def observe_episode(self, state: IntegralState, cost_return: types.Array, limits: types.Array) -> IntegralState:
    chex.assert_equal_shape([cost_return, limits, state.log_share])
    costs = _add(state.costs, cost_return, self._keep)
    target = limits - self._margin * _standard_error(costs, self._keep)
    # Of a limit of 0 each cost is too much.
    error = jnp.clip((target - cost_return) / jnp.maximum(limits, 1e-6), -self._worst, 1.0)
    episodes = state.episodes + state.has_learned
    awake = (episodes > self._asleep) * jnp.where(error < 0, state.may_tighten, state.may_loosen)
    step = jnp.where(jnp.isfinite(cost_return), self._gain * awake * error, 0.0)
    return state._replace(log_share=jnp.clip(state.log_share + step, *self._range), costs=costs, episodes=episodes)


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
