"""A cost head for costs that are a known function of the observation: it learns where hazards are, not that they cost.

A head that learns costs has to pay for its data, and knows little of hazards as long as few steps had a cost. Where a
user knows how far the robot is from a cost, as a function of the observation, each step says something about hazards.
"""

from collections.abc import Callable, Sequence
import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np

import gin
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.models import activations
from lambda_kit.models import heads
from lambda_kit.models import networks

# Maps observations as they come from the environment [..., D] to margins [..., C]: in which unit ever, how far each
# cost is away. A simulator step that ends in the observation costs 1 if its margin is 0 or less, else nothing.
Margin = Callable[[types.Observation], types.Array]

_LEAST_LOG_PROBABILITY = float(np.log(1e-4))
_LOG_SQRT_2PI = 0.5 * float(np.log(2.0 * np.pi))


@dataclasses.dataclass(frozen=True)
class KnownCosts:
  """Independent Normals over margins. A step is unsafe with the probability that its margin is not positive."""

  mean: types.Array  # [..., C]
  stddev: types.Array  # [..., C]
  action_repeat: int

  def log_prob(self, target: types.Array) -> types.Array:
    """Of margins [..., C], summed over costs, [...]."""
    chex.assert_equal_shape([self.mean, self.stddev, target])
    error = (target - self.mean) / self.stddev
    return (-0.5 * error**2 - jnp.log(self.stddev) - _LOG_SQRT_2PI).sum(axis=-1)

  def log_likelihood(self, target: types.Array) -> types.Array:
    """Of costs [..., C] that are summed over repeated simulator steps, summed over costs, [...].

    As with `BernoulliCost.count_repeats`. No step counts as less likely than one of 10,000: the observation after an
    agent step doesn't tell all of its simulator steps.
    """
    chex.assert_equal_shape([self.mean, self.stddev, target])
    unsafe = jnp.minimum(target / self.action_repeat, 1.0)
    log_prob_of = lambda sign: jnp.maximum(
      jax.scipy.special.log_ndtr(sign * self.mean / self.stddev), _LEAST_LOG_PROBABILITY
    )
    return (unsafe * log_prob_of(-1.0) + (1.0 - unsafe) * log_prob_of(1.0)).sum(axis=-1)

  def probability(self) -> types.Array:
    """The probability of an unsafe step, [..., C]."""
    return jax.scipy.special.ndtr(-self.mean / self.stddev)

  def expectation(self) -> types.Array:
    """[..., C]. All repeated simulator steps are taken to be as the last one."""
    return self.action_repeat * self.probability()

  def draw(self, factors: types.Array, key: types.Array) -> types.Array:
    """All repeated simulator steps are unsafe, or none."""
    unsafe = jax.random.uniform(key, self.mean.shape) < jnp.minimum(self.probability() * factors, 1.0)
    return self.action_repeat * unsafe.astype(jnp.float32)


@gin.register
@ranges.checked
class KnownCost(heads.CostHead):
  """Predicts margins, from which costs follow. One network with a mean and a standard deviation for each cost.

  The decoder could predict the observation that the function needs, but the posterior samples only what imagination
  needs, and a decoder of 60 entries is less exact about the nearest hazard than a head for it alone. What is not known
  of the margin makes expected costs smooth, so that the policy has a gradient before it is inside.
  """

  def __init__(
    self,
    num_constraints: int,
    action_repeat: int,
    margin: Margin,
    hidden_sizes: Sequence[ranges.Count] = (400, 400),
    activation: activations.Activation = activations.elu,
    min_stddev: ranges.Positive = 0.02,
    name: str | None = None,
  ):
    """Makes the network.

    Args:
      num_constraints: C.
      action_repeat: simulator steps of an agent step.
      margin: how far each cost is away, [..., C], as a function of the observation.
      hidden_sizes: of the network.
      activation: of the network.
      min_stddev: the smallest standard deviation of a margin, in its unit.
      name: of the module.
    """
    super().__init__(name=name)
    self._mlp = networks.Mlp(2 * num_constraints, hidden_sizes, activation, name='mlp')
    self._margin = margin
    self._min_stddev = min_stddev
    self._action_repeat = action_repeat

  def __call__(self, features: types.Array) -> KnownCosts:
    mean, stddev = jnp.split(self._mlp(features), 2, axis=-1)
    return KnownCosts(mean, self._min_stddev + jax.nn.softplus(stddev), self._action_repeat)

  def target(self, batch: types.Trajectory) -> types.Array:
    margins = self._margin(batch.observation if batch.raw is None else batch.raw)
    if margins.shape != batch.cost.shape:
      raise errors.SetupError(
        f'KnownCost.margin returns {list(margins.shape)}, but there are {batch.cost.shape[-1]} costs: '
        f'{list(batch.cost.shape)} are needed.'
      )
    return margins
