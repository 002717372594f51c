"""How wide a posterior is: a factor of its covariance.

Snapshots of one training run, or members that share data and parts, understate how uncertain the weights are. By how
much depends on rates, periods and sizes, and shows in one place: how well samples predict episodes that no model has
learned from.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import chex
import jax.numpy as jnp
import numpy as np

import gin
from lambda_kit import core
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit import types

_NOT_FINITE = -1e3  # What counts as the log likelihood of a step where it is not finite.


class FixedState(NamedTuple):
  pass


@gin.register
class FixedWidth(core.Width[FixedState]):
  """The posterior's own width, as in the paper."""

  scales = (1.0,)

  def init(self) -> FixedState:
    return FixedState()

  def scale(self, state: FixedState) -> None:
    return None

  def observe(self, state: FixedState, log_likelihood: Mapping[str, types.Array]) -> FixedState:
    return state


class LearnedState(NamedTuple):
  log_likelihood: types.Array  # [K], of recent episodes, up to a common factor.
  log_scale: types.Array  # []


@gin.register
@ranges.checked
class LearnedWidth(core.Width[LearnedState]):
  """The width at which the posterior predictive is best on new episodes.

  Each episode of training is scored before any model learns from it (`agents/lambda_/held_out.py`). With l_k the log
  likelihood at scale s_k, after each episode

    L_k <- L_k + (l_k - L_k) / memory,    log scale <- log scale + rate (log s_best - log scale),  best = argmax L_k.

  Where all scales predict equally well, as before there is a posterior, the smallest one is taken.

  Args:
    scales: s_1 < ... < s_K. Each costs as many imagined trajectories as the posterior has samples.
    memory: Episodes over which likelihoods are averaged.
    rate: Part of the way to the best scale that is taken after each episode.
    evidence: What counts, of 'cost', 'reward' and the parts of observations that are vectors.
  """

  display_name = 'learned width'

  def __init__(
    self,
    scales: Sequence[ranges.Positive] = (1.0, 3.0, 10.0, 30.0, 100.0),
    memory: ranges.AtLeastOne = 20.0,
    rate: ranges.PositiveShare = 0.2,
    evidence: Sequence[str] = ('cost',),
  ):
    if not scales or list(scales) != sorted(set(scales)):
      raise errors.SetupError(f'LearnedWidth.scales must be numbers that increase, got {scales}.')
    if not evidence or isinstance(evidence, str):
      raise errors.SetupError(f"LearnedWidth.evidence must be a sequence of names such as ('cost',), got {evidence!r}.")
    self.scales = tuple(map(float, scales))
    self._log_scales = np.log(self.scales).astype(np.float32)
    self._forget, self._rate, self.evidence = 1.0 / memory, rate, tuple(evidence)

  def init(self) -> LearnedState:
    return LearnedState(jnp.zeros(len(self.scales)), jnp.asarray(self._log_scales[0]))

  def scale(self, state: LearnedState) -> types.Array:
    return jnp.exp(state.log_scale)

  def observe(self, state: LearnedState, log_likelihood: Mapping[str, types.Array]) -> LearnedState:
    unknown = [name for name in self.evidence if name not in log_likelihood]
    if unknown:
      raise ValueError(f'LearnedWidth.evidence has {unknown}, and episodes are scored by {sorted(log_likelihood)}.')
    new = sum(log_likelihood[name] for name in self.evidence)
    chex.assert_equal_shape([new, state.log_likelihood])
    # Samples that are too wide may overflow: such a scale is a bad one for a while, not for ever.
    new = jnp.where(jnp.isfinite(new), new, _NOT_FINITE)
    averages = state.log_likelihood + self._forget * (new - state.log_likelihood)
    best = jnp.asarray(self._log_scales)[jnp.argmax(averages)]
    return LearnedState(averages, state.log_scale + self._rate * (best - state.log_scale))
