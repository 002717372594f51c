"""Heads: what a model predicts from a state besides observations, i.e. reward, costs and the end of the episode."""

from collections.abc import Sequence
import dataclasses
import math
from typing import Protocol

import chex
import haiku as hk
import jax
import jax.numpy as jnp

import gin
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.models import activations
from lambda_kit.models import distributions
from lambda_kit.models import networks


class Prediction(Protocol):
  """A distribution over a target."""

  def log_prob(self, target: types.Array) -> types.Array:
    """The term of the ELBO [...] for a target: [...], or [..., C] for costs."""

  def expectation(self) -> types.Array:
    """The expected target, with the target's shape."""


class CostPrediction(Prediction, Protocol):
  """A distribution over costs [..., C]."""

  def log_likelihood(self, target: types.Array) -> types.Array:
    """The log probability of a target, [...], without the weights that the term of the ELBO may have."""

  def draw(self, factors: types.Array, key: types.Array) -> types.Array:
    """A target, [..., C], whose expectation is multiplied by `factors` [..., C] as far as it can be."""


class HeadFactory(Protocol):
  """Makes a module that maps features [..., F] to a `Prediction` of a scalar, [...]."""

  def __call__(self, *, name: str) -> hk.Module: ...


class CostHead(hk.Module):
  """Maps features [..., F] to a `CostPrediction`."""

  def target(self, batch: types.Trajectory) -> types.Array:
    """What of the data the predictions' `log_prob` is of, [..., C]."""
    return batch.cost


class CostHeadFactory(Protocol):
  """Makes a module that maps features [..., F] to a `CostPrediction`."""

  def __call__(self, *, num_constraints: int, action_repeat: int, name: str) -> CostHead: ...


@dataclasses.dataclass(frozen=True)
class Normal:
  """A Normal with standard deviation 1."""

  mean: types.Array  # [...]

  def log_prob(self, target: types.Array) -> types.Array:
    chex.assert_equal_shape([self.mean, target])
    return distributions.normal_log_prob(target, self.mean)

  def expectation(self) -> types.Array:
    return self.mean


@dataclasses.dataclass(frozen=True)
class Bernoulli:
  """Events that are 0 or 1."""

  logits: types.Array  # [...]

  def log_prob(self, target: types.Array) -> types.Array:
    return distributions.bernoulli_log_prob(target, self.logits)

  def expectation(self) -> types.Array:
    return jax.nn.sigmoid(self.logits)


@dataclasses.dataclass(frozen=True)
class NormalCosts:
  """Independent Normals with standard deviation 1."""

  mean: types.Array  # [..., C]

  def log_prob(self, target: types.Array) -> types.Array:
    """Summed over costs, [...]."""
    chex.assert_equal_shape([self.mean, target])
    return distributions.normal_log_prob(target, self.mean).sum(axis=-1)

  log_likelihood = log_prob

  def expectation(self) -> types.Array:
    return self.mean

  def draw(self, factors: types.Array, key: types.Array) -> types.Array:
    mean = self.mean * factors
    return mean + jax.random.normal(key, mean.shape)


@dataclasses.dataclass(frozen=True)
class BernoulliCosts:
  """Whether each cost is above 0, with a likelihood that weights unsafe steps more.

  The weighted loss -(w c log p + (1 - c) log(1 - p)) has its minimum at p = w q / (w q + 1 - q), where q is the true
  probability of c = 1. Solved for q: q = p / (p + w (1 - p)), which subtracts log w from the logits.

  With `count_repeats`, c is the fraction of the repeated simulator steps that have a cost, and q its expectation.
  """

  logits: types.Array  # [..., C], of p.
  unsafe_weight: float  # w.
  correct_for_weight: bool  # Whether `probability` is q rather than p.
  action_repeat: int
  count_repeats: bool = False

  def log_prob(self, target: types.Array) -> types.Array:
    """Weighted, and summed over costs, [...]. `target` [..., C] is the sum over repeated simulator steps."""
    return self._log_prob(target, self.logits, self.unsafe_weight)

  def log_likelihood(self, target: types.Array) -> types.Array:
    """That of q, in which all steps weigh the same, summed over costs, [...]."""
    return self._log_prob(target, self.logits - math.log(self.unsafe_weight), 1.0)

  def _log_prob(self, target: types.Array, logits: types.Array, unsafe_weight: float) -> types.Array:
    unsafe = jnp.minimum(target / self.action_repeat, 1.0) if self.count_repeats else (target > 0).astype(jnp.float32)
    log_prob_of = lambda event: distributions.bernoulli_log_prob(jnp.full_like(logits, event), logits)
    return (unsafe_weight * unsafe * log_prob_of(1.0) + (1.0 - unsafe) * log_prob_of(0.0)).sum(axis=-1)

  def probability(self) -> types.Array:
    """The probability of an unsafe step, [..., C]."""
    return jax.nn.sigmoid(self.logits - math.log(self.unsafe_weight) if self.correct_for_weight else self.logits)

  def expectation(self) -> types.Array:
    """[..., C]. Without `count_repeats`, if one repeated step has a cost, all do, as in the authors' code."""
    return self.probability() * self.action_repeat

  def draw(self, factors: types.Array, key: types.Array) -> types.Array:
    """All repeated steps are unsafe or none; with `count_repeats`, each by itself."""
    probability = jnp.minimum(self.probability() * factors, 1.0)
    draws, size = (self.action_repeat, 1) if self.count_repeats else (1, self.action_repeat)
    unsafe = jax.random.uniform(key, (draws, *probability.shape)) < probability[None]
    return size * jnp.sum(unsafe, axis=0).astype(jnp.float32)


@gin.register
@ranges.checked
class NormalHead(hk.Module):
  """Predicts a real number."""

  def __init__(
    self,
    hidden_sizes: Sequence[ranges.Count] = (400, 400),
    activation: activations.Activation = activations.elu,
    name: str | None = None,
  ):
    super().__init__(name=name)
    self._mlp = networks.Mlp(1, hidden_sizes, activation, name='mlp')

  def __call__(self, features: types.Array) -> Normal:
    return Normal(jnp.squeeze(self._mlp(features), axis=-1))


@gin.register
@ranges.checked
class BernoulliHead(hk.Module):
  """Predicts an event."""

  def __init__(
    self,
    hidden_sizes: Sequence[ranges.Count] = (400, 400),
    activation: activations.Activation = activations.elu,
    name: str | None = None,
  ):
    super().__init__(name=name)
    self._mlp = networks.Mlp(1, hidden_sizes, activation, name='mlp')

  def __call__(self, features: types.Array) -> Bernoulli:
    return Bernoulli(jnp.squeeze(self._mlp(features), axis=-1))


@gin.register
@ranges.checked
class BernoulliCost(CostHead):
  """Predicts whether steps are unsafe, in simulators whose steps cost 0 or 1. One network with C outputs."""

  def __init__(
    self,
    num_constraints: int,
    action_repeat: int,
    hidden_sizes: Sequence[ranges.Count] = (400, 400),
    activation: activations.Activation = activations.elu,
    unsafe_weight: ranges.Positive = 100.0,
    correct_for_weight: bool = False,
    count_repeats: bool = False,
    name: str | None = None,
  ):
    """Makes the network.

    Args:
      num_constraints: C.
      action_repeat: simulator steps of an agent step.
      hidden_sizes: of the network.
      activation: of the network.
      unsafe_weight: weight of steps with a cost in the loss. Safe steps have 1.
      correct_for_weight: whether to correct expected costs for the effect of this weight on the probability. Without
        the correction (as in the paper's experiments) they are too large: at a weight of 100, a true probability of
        0.01 reads 0.5.
      count_repeats: whether to predict how many of the repeated simulator steps have a cost. Otherwise (as in the
        paper's experiments), if one has, all are taken to, which is too much at the edge of a hazard.
      name: of the module.
    """
    super().__init__(name=name)
    self._mlp = networks.Mlp(num_constraints, hidden_sizes, activation, name='mlp')
    self._unsafe_weight = unsafe_weight
    self._correct_for_weight = correct_for_weight
    self._action_repeat = action_repeat
    self._count_repeats = count_repeats

  def __call__(self, features: types.Array) -> BernoulliCosts:
    return BernoulliCosts(
      self._mlp(features), self._unsafe_weight, self._correct_for_weight, self._action_repeat, self._count_repeats
    )


@gin.register
@ranges.checked
class NormalCost(CostHead):
  """Predicts real-valued costs. One network with C outputs."""

  def __init__(
    self,
    num_constraints: int,
    action_repeat: int,
    hidden_sizes: Sequence[ranges.Count] = (400, 400),
    activation: activations.Activation = activations.elu,
    name: str | None = None,
  ):
    super().__init__(name=name)
    del action_repeat  # Targets are already summed over repeated steps.
    self._mlp = networks.Mlp(num_constraints, hidden_sizes, activation, name='mlp')

  def __call__(self, features: types.Array) -> NormalCosts:
    return NormalCosts(self._mlp(features))


class Heads:
  """The three heads of a model. Not a module: names of the heads' parameters begin with those in `NAMES`."""

  NAMES = ('reward', 'cost', 'terminal')

  def __init__(
    self,
    num_constraints: int,
    action_repeat: int,
    reward_factory: HeadFactory,
    cost_factory: CostHeadFactory,
    terminal_factory: HeadFactory,
  ):
    self._reward = reward_factory(name='reward')
    self._cost = cost_factory(num_constraints=num_constraints, action_repeat=action_repeat, name='cost')
    self._terminal = terminal_factory(name='terminal')

  def predict(self, features: types.Array) -> types.Predictions:
    """Expectations, [...] and [..., C], from features [..., F]."""
    return types.Predictions(
      reward=self._reward(features).expectation(),
      cost=self._cost(features).expectation(),
      continuation=1.0 - self._terminal(features).expectation(),
    )

  def log_likelihood(self, features: types.Array, came: types.Trajectory) -> dict[str, types.Array]:
    """Of rewards and costs, [...] each."""
    return {
      'reward': self._reward(features).log_prob(came.reward),
      'cost': self._cost(features).log_likelihood(came.cost),
    }

  def draw_costs(self, features: types.Array, factors: types.Array, key: types.Array) -> types.Array:
    """[..., C]"""
    return self._cost(features).draw(factors, key)

  def evaluate(
    self, features: types.Array, batch: types.Trajectory
  ) -> tuple[dict[str, types.Array], types.Predictions]:
    """The heads' log likelihoods of `batch`, each [B, L], and their predictions, from features [B, L, F]."""
    chex.assert_equal_shape_prefix([features, batch.reward, batch.cost, batch.terminal], 2)
    reward, cost, terminal = self._reward(features), self._cost(features), self._terminal(features)
    log_probs = {
      'reward': reward.log_prob(batch.reward),
      'cost': cost.log_prob(self._cost.target(batch)),
      'terminal': terminal.log_prob(batch.terminal),
    }
    return log_probs, types.Predictions(reward.expectation(), cost.expectation(), 1.0 - terminal.expectation())


def metrics(predictions: types.Predictions, batch: types.Trajectory) -> dict[str, types.Array]:
  """Compares predictions with the data, all []. If costs are calibrated, `cost_mean` equals `cost_expected`."""
  return {
    'reward_mse': jnp.mean((predictions.reward - batch.reward) ** 2),
    'cost_mean': jnp.mean(batch.cost),
    'cost_expected': jnp.mean(predictions.cost),
  }
