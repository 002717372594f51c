"""What makes expected costs honest: factors by which they are multiplied, learned from episodes that were new.

A policy that is optimised on a model finds where the model expects too little, the more so the further ahead. New
episodes of training show by how much, before any model has learned from them (`agents/lambda_/held_out.py`).
"""

from typing import NamedTuple

import chex
import jax.numpy as jnp

import gin
from lambda_kit import core
from lambda_kit import ranges
from lambda_kit import types


class NoRecalibrationState(NamedTuple):
  pass


@gin.register
class NoRecalibration(core.Recalibration[NoRecalibrationState]):
  """Costs are what models expect, as in the paper."""

  def init(self, horizon: int, num_constraints: int) -> NoRecalibrationState:
    return NoRecalibrationState()

  def factors(self, state: NoRecalibrationState, horizon: int, num_constraints: int) -> types.Array:
    return jnp.ones([horizon, num_constraints])

  def observe(self, state: NoRecalibrationState, forecast: types.Array, came: types.Array) -> NoRecalibrationState:
    return state


class HeldOutRatioState(NamedTuple):
  forecast: types.Array  # [H, C], weighted sums over episodes of the mean cost of a step, as models expect it.
  came: types.Array  # [H, C]
  episodes: types.Array  # [], how many.


@gin.register
@ranges.checked
class HeldOutRatio(core.Recalibration[HeldOutRatioState]):
  """Costs that came, relative to those that models expected, on new episodes, for each step ahead.

  With f_h and c_h the mean cost at h steps ahead that was expected and that came, averaged over recent episodes, and
  m_h = (f_h + c_h) / 2, the factor is

    clip((c_h + m_h prior / n) / (f_h + m_h prior / n), lowest, highest),

  after n episodes: the first ones are trusted less.

  Args:
    memory: Episodes over which costs are averaged.
    prior: Episodes of equal expected and real costs that count from the beginning.
    lowest: Factor. 1 never takes anything off what models expect.
    highest: Factor.
  """

  display_name = 'recalibrated'

  def __init__(
    self,
    memory: ranges.AtLeastOne = 20.0,
    prior: ranges.NotNegative = 1.0,
    lowest: ranges.PositiveShare = 0.5,
    highest: ranges.AtLeastOne = 4.0,
  ):
    self._keep, self._prior, self._range = 1.0 - 1.0 / memory, prior, (lowest, highest)

  def init(self, horizon: int, num_constraints: int) -> HeldOutRatioState:
    zeros = jnp.zeros([horizon, num_constraints])
    return HeldOutRatioState(zeros, zeros, jnp.zeros([]))

  def factors(self, state: HeldOutRatioState, horizon: int, num_constraints: int) -> types.Array:
    chex.assert_shape([state.forecast, state.came], (horizon, num_constraints))
    prior = self._prior * (state.forecast + state.came) / (2.0 * jnp.maximum(state.episodes, 1.0))
    tiny = 1e-6  # Nothing expected and nothing came: nothing to correct.
    return jnp.clip((state.came + prior + tiny) / (state.forecast + prior + tiny), *self._range)

  def observe(self, state: HeldOutRatioState, forecast: types.Array, came: types.Array) -> HeldOutRatioState:
    chex.assert_equal_shape([forecast, came, state.forecast, state.came])
    finite = jnp.all(jnp.isfinite(forecast)) & jnp.all(jnp.isfinite(came))
    average = lambda old, new: self._keep * old + jnp.where(finite, new, 0.0)
    return HeldOutRatioState(average(state.forecast, forecast), average(state.came, came), state.episodes + finite)
