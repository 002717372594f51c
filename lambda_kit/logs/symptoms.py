"""The usual deaths of a safe model-based run, each recognised by a pure function of the learner's last rows.

A symptom gets the last `window` rows of the learner, the newest last, with the metrics it asks for, and what episodes
of training had cost when the row was written:
  'cost_return/i'    their mean cost return,
  'realised_cost/i'  their mean cost of an agent step,
  'episode_length'   their mean length in agent steps,
and 'highest_multiplier/i', the largest 'multiplier/i' of the run.
A metric that is missing makes a symptom silent: agents without a model or a multiplier have fewer of them.
"""

import abc
from collections.abc import Mapping, Sequence
import dataclasses
import math
from typing import ClassVar, Protocol

import numpy as np

import gin

# None stands for a number that is not finite.
Row = Mapping[str, float | None]

_GAUSSIAN_ENTROPY = 0.5 * math.log(2.0 * math.pi * math.e)  # Of a standard deviation of 1.


@dataclasses.dataclass(frozen=True)
class Task:
  """What the rows don't tell about a run."""

  cost_limit: float | Sequence[float]  # d, one for all constraints, or one for each.
  num_actions: int  # A.
  constraint_names: Sequence[str] = ()

  def limit(self, i: int) -> float:
    return float(self.cost_limit[i] if np.ndim(self.cost_limit) else self.cost_limit)

  def of(self, i: int) -> str:
    """Names constraint i in a message, if there are several."""
    return f' of {self.constraint_names[i]!r}' if len(self.constraint_names) > 1 else ''


class Symptom(Protocol):
  """Looks for one kind of trouble."""

  name: str
  metrics: Sequence[str]  # What to keep of the learner's rows; 'multiplier' stands for all 'multiplier/i', too.
  window: int  # Rows to look at. A symptom that was absent for as many is over, and is told again if it returns.

  def __call__(self, rows: Sequence[Row], task: Task) -> dict[str, str]:
    """Messages by `name`, or `name/i` for constraint i. Empty if all is well, or if it can't be told."""


class _ConstraintSymptom(abc.ABC):
  """A symptom that each constraint has by itself."""

  name: ClassVar[str]

  def __call__(self, rows: Sequence[Row], task: Task) -> dict[str, str]:
    count = sum(metric.startswith('cost_return/') for metric in rows[-1])
    messages = {f'{self.name}/{i}': self.diagnose(rows, task, i) for i in range(count)}
    return {name: message for name, message in messages.items() if message is not None}

  @abc.abstractmethod
  def diagnose(self, rows: Sequence[Row], task: Task, i: int) -> str | None:
    """A message about constraint i, if there is one."""


@gin.register
@dataclasses.dataclass(frozen=True)
class EntropyCollapse:
  """The policy became deterministic."""

  name: ClassVar[str] = 'entropy_collapse'
  metrics: ClassVar[Sequence[str]] = ('entropy',)
  floor: float = -2.0  # Of an action dimension before squashing; -2 is a standard deviation of 0.033.
  window: int = 10  # In all of these rows the entropy is below.

  def __call__(self, rows: Sequence[Row], task: Task) -> dict[str, str]:
    entropies = _series(rows, 'entropy', self.window)
    if entropies is None or not np.all(entropies / task.num_actions < self.floor):
      return {}
    entropy = entropies[-1] / task.num_actions
    return {
      self.name: (
        f'The policy has an entropy of {entropy:.2f} in each action dimension (a standard deviation of '
        f'{math.exp(entropy - _GAUSSIAN_ENTROPY):.2g}), below {self.floor:g} for {self.window} rows. It hardly tries '
        'anything new: if returns are still low, they will stay so. Raise LambdaAgent.entropy_scale (1e-3 to begin '
        'with) or SquashedGaussianPolicy.min_std, or lower LambdaAgent.policy_learning_rate.'
      )
    }


@gin.register
@dataclasses.dataclass(frozen=True)
class MultiplierSaturation(_ConstraintSymptom):
  """A multiplier keeps rising, and the cost doesn't fall."""

  name: ClassVar[str] = 'multiplier_saturation'
  metrics: ClassVar[Sequence[str]] = ('multiplier',)
  factor: float = 10.0  # Rise within the window that is too much, for a multiplier that ends above `floor`.
  floor: float = 1.0  # Below it a multiplier may grow by any factor: the paper's begins at 1e-6.
  bound: float = 100.0  # Above it a multiplier is too large, whatever it was before.
  tolerance: float = 0.9  # A cost that ends above this part of what it was has not fallen.
  window: int = 50  # In all of these rows the multiplier rises.

  def diagnose(self, rows: Sequence[Row], task: Task, i: int) -> str | None:
    multipliers = _series(rows, f'multiplier/{i}', self.window)
    costs = _series(rows, f'cost_return/{i}', self.window)
    if multipliers is None or costs is None or not np.all(np.diff(multipliers) > 0.0):
      return None
    first, last = multipliers[0], multipliers[-1]
    grown = last >= max(self.factor * first, self.floor) or last >= self.bound
    if not grown or costs[-1] <= task.limit(i) or costs[-1] < self.tolerance * costs[0]:
      return None
    return (
      f'The multiplier{task.of(i)} rose in each of {self.window} rows, from {first:.3g} to {last:.3g}, while the '
      f'cost return went from {costs[0]:.3g} to {costs[-1]:.3g} at a limit of {task.limit(i):g}. Either no '
      "policy in reach is so safe, or the policy can't follow; in the end the penalty drowns the reward, and "
      'the agent stands still. Lower AugmentedLagrangian.initial_penalty_factor or '
      'AugmentedLagrangian.growth (PrimalDual.learning_rate, PidLagrangian.ki), raise '
      'LambdaAgent.policy_learning_rate, or see whether COST_LIMIT can be met at all.'
    )


@gin.register
@dataclasses.dataclass(frozen=True)
class IdleMultiplier(_ConstraintSymptom):
  """A multiplier stays at 0 while costs are over the limit.

  One that was 0 in every row of the run is taken for that of `Unconstrained`, which ignores costs on purpose.
  """

  name: ClassVar[str] = 'idle_multiplier'
  metrics: ClassVar[Sequence[str]] = ('multiplier', 'cost_value')
  ceiling: float = 1e-4  # A multiplier below it has no weight.
  growth: float = 1.5  # One that grows by more than this factor within the window is small, but on its way.
  margin: float = 1.2  # How many times the limit the mean cost return has to be.
  window: int = 10  # In all of these rows the multiplier is below.

  def diagnose(self, rows: Sequence[Row], task: Task, i: int) -> str | None:
    multipliers = _series(rows, f'multiplier/{i}', self.window)
    costs = _series(rows, f'cost_return/{i}', self.window)
    highest = _series(rows, f'highest_multiplier/{i}', 1)
    if multipliers is None or costs is None or highest is None or highest[0] == 0.0:
      return None
    idle = np.all(multipliers < self.ceiling) and multipliers[-1] <= self.growth * multipliers[0]
    if not idle or min(np.mean(costs), costs[-1]) <= self.margin * task.limit(i):
      return None
    value = _series(rows, f'cost_value/{i}', 1)
    imagined = '' if value is None else f', and the learner imagines a cost value of {value[0]:.3g}'
    return (
      f'The multiplier{task.of(i)} is {multipliers[-1]:.2g}, below {self.ceiling:g} for {self.window} rows, '
      f'while episodes cost {costs[-1]:.3g} at a limit of {task.limit(i):g}{imagined}. The constraint has no '
      'weight. Cost values that stay below the budget do this: take LambdaAgent.budget = @EpisodicBudget(), '
      'which is exact, raise LambdaAgent.cost_critic_learning_rate, or begin with a larger '
      'AugmentedLagrangian.initial_multiplier or AugmentedLagrangian.initial_penalty_factor.'
    )


@gin.register
@dataclasses.dataclass(frozen=True)
class SilentCostHead(_ConstraintSymptom):
  """Costs occur, and the model imagines none."""

  name: ClassVar[str] = 'silent_cost_head'
  metrics: ClassVar[Sequence[str]] = ('imagined_cost', 'cost_mean', 'cost_expected')
  fraction: float = 0.05  # Imagined costs below this part of the realised ones are none.
  min_cost: float = 0.005  # Realised cost of an agent step from which on it matters.
  window: int = 20  # In all of these rows this is so.

  def diagnose(self, rows: Sequence[Row], task: Task, i: int) -> str | None:
    imagined = _series(rows, f'imagined_cost/{i}', self.window)
    realised = _series(rows, f'realised_cost/{i}', self.window)
    if imagined is None or realised is None:
      return None
    if not (np.all(imagined < self.fraction * realised) and np.all(realised >= self.min_cost)):
      return None
    return (
      f'{_both_costs(rows, task, i)}, for {self.window} rows.{_on_replayed_data(rows)} The head predicts that '
      "nothing costs, so the policy can't learn to avoid it. Raise BernoulliCost.unsafe_weight, or for costs "
      'that are not 0 or 1 take RecurrentWorldModel.cost_factory = @NormalCost.'
    )


@gin.register
@dataclasses.dataclass(frozen=True)
class CostMismatch(_ConstraintSymptom):
  """Imagined costs are several times the realised ones, or the other way round."""

  name: ClassVar[str] = 'cost_mismatch'
  metrics: ClassVar[Sequence[str]] = ('imagined_cost', 'cost_mean', 'cost_expected')
  max_ratio: float = 3.0  # Between the two, in either direction.
  relevance: float = 0.5  # Over an episode, the difference has to add up to this part of the limit.
  silent: float = 0.05  # Below this ratio it is the business of `SilentCostHead`.
  window: int = 20  # In all of these rows this is so.

  def diagnose(self, rows: Sequence[Row], task: Task, i: int) -> str | None:
    imagined = _series(rows, f'imagined_cost/{i}', self.window)
    realised = _series(rows, f'realised_cost/{i}', self.window)
    lengths = _series(rows, 'episode_length', self.window)
    if imagined is None or realised is None or lengths is None:
      return None
    over = np.all(imagined > self.max_ratio * realised)
    under = np.all(self.max_ratio * imagined < realised) and not np.all(imagined < self.silent * realised)
    difference = np.mean(np.abs(imagined - realised) * lengths)
    if not (over or under) or difference < self.relevance * task.limit(i):
      return None
    seen = (
      f'{_both_costs(rows, task, i)}, more than a factor of {self.max_ratio:g} apart for {self.window} rows.'
      f'{_on_replayed_data(rows)}'
    )
    if over:
      return (
        f'{seen} The policy pays for costs that do not occur, and tends to stand still. If the head is wrong on '
        'replayed data too, set BernoulliCost.correct_for_weight = True or lower BernoulliCost.unsafe_weight '
        "(the paper's weight of 100 does this on purpose); if not, imagination drifts: lower "
        'LambdaAgent.horizon.'
      )
    return (
      f'{seen} The policy sees little of what it costs, and will exceed the limit. Raise '
      'BernoulliCost.unsafe_weight or PeriodicUpdates.updates, or for costs that are not 0 or 1 take '
      'RecurrentWorldModel.cost_factory = @NormalCost.'
    )


@gin.register
@dataclasses.dataclass(frozen=True)
class ExplodingKl:
  """The KL between the model's posterior and prior states grows suddenly."""

  name: ClassVar[str] = 'exploding_kl'
  metrics: ClassVar[Sequence[str]] = ('kl',)
  factor: float = 10.0  # Of the newest KL over the median of the rows before it.
  floor: float = 10.0  # A KL below it is small, whatever it was before.
  window: int = 10  # Rows, the newest included.

  def __call__(self, rows: Sequence[Row], task: Task) -> dict[str, str]:
    kls = _series(rows, 'kl', self.window)
    if kls is None or kls[-1] < max(self.factor * np.median(kls[:-1]), self.floor):
      return {}
    return {
      self.name: (
        f'The KL of the world model jumped to {kls[-1]:.3g}, from a median of {np.median(kls[:-1]):.3g} in the '
        f'{self.window - 1} rows before. The prior does not follow the posterior any more, and what is imagined is '
        'worth little until it does. Lower the learning rate or the clip of the posterior (Swag.learning_rate, '
        'Swag.clip_norm), or raise RecurrentWorldModel.min_stddev; look for observations of a new magnitude, too.'
      )
    }


@gin.register
@dataclasses.dataclass(frozen=True)
class ReplayStarvation:
  """There are too many updates for the data."""

  name: ClassVar[str] = 'replay_starvation'
  metrics: ClassVar[Sequence[str]] = ('updates',)
  # For each environment step so far. The paper has 0.1; with its batches of 32 x 50 and its action repeat of 2, 1
  # samples each step 3,200 times.
  max_updates: float = 1.0
  window: int = 20

  def __call__(self, rows: Sequence[Row], task: Task) -> dict[str, str]:
    updates = rows[-1].get('updates')
    steps = rows[-1]['environment_steps']
    if updates is None or updates <= self.max_updates * steps:
      return {}
    return {
      self.name: (
        f'{updates:.0f} updates were taken on {steps:.0f} environment steps, where {self.max_updates:g} for each '
        'step is much. Model and critics learn the few episodes by heart, and the policy exploits what they get wrong '
        'elsewhere. Lower PeriodicUpdates.updates or PeriodicUpdates.initial_updates, or raise '
        'PeriodicUpdates.first or PeriodicUpdates.every.'
      )
    }


@gin.register
@dataclasses.dataclass(frozen=True)
class NonFiniteGradients:
  """Updates were skipped, because a gradient had a NaN or an infinity.

  Rows count the skips of the model. Those of the policy and the critics show in norms that are not finite.
  """

  name: ClassVar[str] = 'non_finite_gradients'
  metrics: ClassVar[Sequence[str]] = (
    'skipped_updates',
    'gradient_norm',
    'policy_gradient_norm',
    'critic_gradient_norm',
    'cost_critic_gradient_norm',
  )
  min_skips: float = 1.0  # Skipped updates of the model within the window that are worth a word.
  window: int = 20

  def __call__(self, rows: Sequence[Row], task: Task) -> dict[str, str]:
    skips = _series(rows, 'skipped_updates', len(rows))
    # A window that is not full yet begins with the run, at 0.
    rise = 0.0 if skips is None else skips[-1] - (skips[0] if len(rows) == self.window else 0.0)
    seen = [f'{rise:.3g} updates of the model were skipped in {len(rows)} rows'] if rise >= self.min_skips else []
    seen += [f'{name} was not finite' for name in self.metrics[1:] if rows[-1].get(name, 0.0) is None]
    if not seen:
      return {}
    return {
      self.name: (
        f'Non-finite gradients: {", ".join(seen)}. They change nothing, but after LambdaAgent.max_skips in a row the '
        'run stops. A loss is about to blow up: lower the learning rate or the clip of its part (Swag.learning_rate, '
        'Swag.clip_norm, LambdaAgent.policy_learning_rate, LambdaAgent.policy_clip, LambdaAgent.critic_clip, '
        'LambdaAgent.cost_critic_clip), or AugmentedLagrangian.initial_penalty_factor.'
      )
    }


DEFAULT_SYMPTOMS = (
  EntropyCollapse(),
  MultiplierSaturation(),
  IdleMultiplier(),
  SilentCostHead(),
  CostMismatch(),
  ExplodingKl(),
  ReplayStarvation(),
  NonFiniteGradients(),
)


def _series(rows: Sequence[Row], name: str, count: int) -> np.ndarray | None:
  """The last `count` values of a metric, [count]; None if there are fewer, or one is missing or not finite."""
  values = [row.get(name) for row in rows[-count:]]
  return None if len(values) < count or None in values else np.asarray(values, np.float64)


def _both_costs(rows: Sequence[Row], task: Task, i: int) -> str:
  imagined, realised = rows[-1][f'imagined_cost/{i}'], rows[-1][f'realised_cost/{i}']
  return f'The cost{task.of(i)} of an agent step is {imagined:.2g} in imagination and {realised:.2g} in episodes'


def _on_replayed_data(rows: Sequence[Row]) -> str:
  """How the cost head does on data: tells a wrong head from a wrong imagination."""
  expected, mean = _series(rows, 'cost_expected', 1), _series(rows, 'cost_mean', 1)
  if expected is None or mean is None:
    return ''
  return f' On replayed data the head expects {expected[0]:.2g} where {mean[0]:.2g} is true (mean over constraints).'
