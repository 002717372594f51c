"""Common failures of a safe model-based run, each detected by a pure function of the learner's last rows.

A symptom gets the last `window` rows of the learner, the newest last, with the metrics that it asks for and these, of
the recent training episodes when the row was written:
  'cost_return/i'    mean cost return,
  'realised_cost/i'  mean cost of an agent step,
  'episode_length'   mean length in agent steps,
'highest_multiplier/i', the largest 'multiplier/i' of the run so far, and
'offline_updates', the updates before the first step.
If a metric is missing, the symptom reports nothing: agents without a model or a multiplier log fewer metrics.
"""

import abc
from collections.abc import Mapping, Sequence
import dataclasses
import math
from typing import ClassVar, Protocol

import numpy as np

import gin
from lambda_kit import ranges

# None stands for a non-finite number.
Row = Mapping[str, float | None]

_GAUSSIAN_ENTROPY = 0.5 * math.log(2.0 * math.pi * math.e)  # Of a standard deviation of 1.


@dataclasses.dataclass(frozen=True)
class Task:
  """The facts about a run that are not in its rows."""

  cost_limits: Sequence[float]  # [C], d.
  num_actions: int  # A.
  constraint_names: Sequence[str]  # [C]

  def of(self, i: int) -> str:
    """Names constraint i in a message, if there are several."""
    return f' of {self.constraint_names[i]!r}' if len(self.constraint_names) > 1 else ''


class Symptom(Protocol):
  """Looks for one kind of trouble."""

  @property
  def name(self) -> str: ...

  @property
  def metrics(self) -> Sequence[str]:
    """What to keep of the learner's rows; 'multiplier' includes every 'multiplier/i'."""

  @property
  def window(self) -> int:
    """Rows to look at. A symptom that was absent for as many is over, and is reported again if it returns."""

  def __call__(self, rows: Sequence[Row], task: Task) -> dict[str, str]:
    """Messages by `name`, or `name/i` for constraint i. Empty if all is well, or if rows don't say."""


class _ConstraintSymptom(abc.ABC):
  """A symptom that is checked for each constraint separately."""

  name: ClassVar[str]

  def __call__(self, rows: Sequence[Row], task: Task) -> dict[str, str]:
    count = sum(metric.startswith('cost_return/') for metric in rows[-1])
    messages = {f'{self.name}/{i}': self.diagnose(rows, task, i) for i in range(count)}
    return {name: message for name, message in messages.items() if message is not None}

  @abc.abstractmethod
  def diagnose(self, rows: Sequence[Row], task: Task, i: int) -> str | None:
    """Returns a message about constraint i, or None."""


@gin.register
@dataclasses.dataclass(frozen=True)
class EntropyCollapse:
  """The policy became deterministic."""

  name: ClassVar[str] = 'entropy_collapse'
  metrics: ClassVar[Sequence[str]] = ('entropy',)
  floor: float = -2.0  # Of an action dimension before squashing; -2 is a standard deviation of 0.033.
  window: ranges.Count = 10  # The entropy is below the floor in all of these rows.

  def __call__(self, rows: Sequence[Row], task: Task) -> dict[str, str]:
    entropies = _series(rows, 'entropy', self.window)
    if entropies is None or not np.all(entropies / task.num_actions < self.floor):
      return {}
    entropy = entropies[-1] / task.num_actions
    return {
      self.name: (
        f'The policy has an entropy of {entropy:.2f} in each action dimension (a standard deviation of '
        f'{math.exp(entropy - _GAUSSIAN_ENTROPY):.2g}), below {self.floor:g} for {self.window} rows. It hardly '
        'explores any more: if returns are still low, they will stay low. Raise LambdaAgent.entropy_scale (start '
        'with 1e-3) or SquashedGaussianPolicy.min_std, or lower LambdaAgent.policy_learning_rate.'
      )
    }


@gin.register
@dataclasses.dataclass(frozen=True)
class MultiplierSaturation(_ConstraintSymptom):
  """A multiplier keeps rising, and the cost doesn't fall."""

  name: ClassVar[str] = 'multiplier_saturation'
  metrics: ClassVar[Sequence[str]] = ('multiplier',)
  factor: float = 10.0  # Growth within the window that is too much for a multiplier that ends above `floor`.
  floor: float = 1.0  # Below it a multiplier may grow by any factor: the paper's starts at 1e-6.
  bound: float = 100.0  # Above it a multiplier is too large, whatever it was before.
  tolerance: float = 0.9  # A cost that ends above this fraction of its initial value has not fallen.
  window: ranges.Count = 50  # The multiplier rises in all of these rows.

  def diagnose(self, rows: Sequence[Row], task: Task, i: int) -> str | None:
    multipliers = _series(rows, f'multiplier/{i}', self.window)
    costs = _series(rows, f'cost_return/{i}', self.window)
    if multipliers is None or costs is None or not np.all(np.diff(multipliers) > 0.0):
      return None
    first, last = multipliers[0], multipliers[-1]
    grown = last >= max(self.factor * first, self.floor) or last >= self.bound
    if not grown or costs[-1] <= task.cost_limits[i] or costs[-1] < self.tolerance * costs[0]:
      return None
    return (
      f'The multiplier{task.of(i)} rose in each of {self.window} rows, from {first:.3g} to {last:.3g}, while the '
      f'cost return went from {costs[0]:.3g} to {costs[-1]:.3g} at a limit of {task.cost_limits[i]:g}. Either no '
      'policy within reach meets the limit, or the policy learns more slowly than the multiplier grows. In the end '
      'the penalty drowns out the reward, and the agent stands still. Lower '
      'AugmentedLagrangian.initial_penalty_factor or AugmentedLagrangian.growth (PrimalDual.learning_rate, '
      'PidLagrangian.ki), raise LambdaAgent.policy_learning_rate, or check whether COST_LIMIT can be met at all.'
    )


@gin.register
@dataclasses.dataclass(frozen=True)
class IdleMultiplier(_ConstraintSymptom):
  """A multiplier stays at 0 while costs are over the limit.

  A multiplier that was 0 in every row of the run is assumed to be that of `Unconstrained`, which ignores costs on
  purpose.
  """

  name: ClassVar[str] = 'idle_multiplier'
  metrics: ClassVar[Sequence[str]] = ('multiplier', 'cost_value')
  ceiling: float = 1e-4  # A multiplier below it has no weight.
  growth: float = 1.5  # A multiplier that grows by more than this factor within the window is small, but on its way.
  margin: float = 1.2  # The mean cost return exceeds this multiple of the limit.
  window: ranges.Count = 10  # The multiplier is below the ceiling in all of these rows.

  def diagnose(self, rows: Sequence[Row], task: Task, i: int) -> str | None:
    multipliers = _series(rows, f'multiplier/{i}', self.window)
    costs = _series(rows, f'cost_return/{i}', self.window)
    highest = _series(rows, f'highest_multiplier/{i}', 1)
    if multipliers is None or costs is None or highest is None or highest[0] == 0.0:
      return None
    idle = np.all(multipliers < self.ceiling) and multipliers[-1] <= self.growth * multipliers[0]
    if not idle or min(np.mean(costs), costs[-1]) <= self.margin * task.cost_limits[i]:
      return None
    value = _series(rows, f'cost_value/{i}', 1)
    imagined = '' if value is None else f', and the learner imagines a cost value of {value[0]:.3g}'
    return (
      f'The multiplier{task.of(i)} is {multipliers[-1]:.2g}, below {self.ceiling:g} for {self.window} rows, '
      f'while episodes cost {costs[-1]:.3g} at a limit of {task.cost_limits[i]:g}{imagined}. The constraint has no '
      'weight. This happens when cost values stay below the budget: use LambdaAgent.budget = @EpisodicBudget(), '
      'which is exact, raise LambdaAgent.cost_critic_learning_rate, or start with a larger '
      'AugmentedLagrangian.initial_multiplier or AugmentedLagrangian.initial_penalty_factor.'
    )


@gin.register
@dataclasses.dataclass(frozen=True)
class SilentCostHead(_ConstraintSymptom):
  """Costs occur, and the model imagines none."""

  name: ClassVar[str] = 'silent_cost_head'
  metrics: ClassVar[Sequence[str]] = ('imagined_cost', 'cost_mean', 'cost_expected')
  fraction: float = 0.05  # Imagined costs below this fraction of the realised ones count as none.
  min_cost: float = 0.005  # Realised costs of an agent step below this are ignored.
  window: ranges.Count = 20  # Both hold in all of these rows.

  def diagnose(self, rows: Sequence[Row], task: Task, i: int) -> str | None:
    imagined = _series(rows, f'imagined_cost/{i}', self.window)
    realised = _series(rows, f'realised_cost/{i}', self.window)
    if imagined is None or realised is None:
      return None
    if not (np.all(imagined < self.fraction * realised) and np.all(realised >= self.min_cost)):
      return None
    return (
      f'{_both_costs(rows, task, i)}, for {self.window} rows.{_on_replayed_data(rows)} The head predicts that '
      "nothing costs, so the policy can't learn to avoid costs. Raise BernoulliCost.unsafe_weight, or for costs "
      'other than 0 and 1 use RecurrentWorldModel.cost_factory = @NormalCost.'
    )


@gin.register
@dataclasses.dataclass(frozen=True)
class CostMismatch(_ConstraintSymptom):
  """Imagined costs are several times the realised ones, or vice versa."""

  name: ClassVar[str] = 'cost_mismatch'
  metrics: ClassVar[Sequence[str]] = ('imagined_cost', 'cost_mean', 'cost_expected')
  max_ratio: float = 3.0  # Between the two, in either direction.
  relevance: float = 0.5  # Over an episode, the difference adds up to at least this fraction of the limit.
  silent: float = 0.05  # `SilentCostHead` covers ratios below this.
  window: ranges.Count = 20  # The ratio is exceeded in all of these rows.

  def diagnose(self, rows: Sequence[Row], task: Task, i: int) -> str | None:
    imagined = _series(rows, f'imagined_cost/{i}', self.window)
    realised = _series(rows, f'realised_cost/{i}', self.window)
    lengths = _series(rows, 'episode_length', self.window)
    if imagined is None or realised is None or lengths is None:
      return None
    over = np.all(imagined > self.max_ratio * realised)
    under = np.all(self.max_ratio * imagined < realised) and not np.all(imagined < self.silent * realised)
    difference = np.mean(np.abs(imagined - realised) * lengths)
    if not (over or under) or difference < self.relevance * task.cost_limits[i]:
      return None
    seen = (
      f'{_both_costs(rows, task, i)}, more than a factor of {self.max_ratio:g} apart for {self.window} rows.'
      f'{_on_replayed_data(rows)}'
    )
    if over:
      return (
        f'{seen} The policy is penalised for costs that do not occur, and tends to stand still. If the head is wrong '
        'on replayed data too, set BernoulliCost.correct_for_weight = True or lower BernoulliCost.unsafe_weight '
        "(the paper's weight of 100 does this on purpose). If not, imagination drifts: lower LambdaAgent.horizon."
      )
    return (
      f'{seen} The policy sees only a fraction of its costs, and will exceed the limit. Raise '
      'BernoulliCost.unsafe_weight or PeriodicUpdates.updates, or for costs other than 0 and 1 use '
      'RecurrentWorldModel.cost_factory = @NormalCost.'
    )


@gin.register
@dataclasses.dataclass(frozen=True)
class HeldOutMismatch(_ConstraintSymptom):
  """Models are wrong about the costs of episodes that they have not learned from."""

  name: ClassVar[str] = 'held_out_mismatch'
  metrics: ClassVar[Sequence[str]] = ('held_out_forecast', 'held_out_cost')
  max_ratio: float = 1.5  # Between forecast and what came, in either direction.
  relevance: float = 0.5  # Episodes cost, or would cost by the forecast, at least this fraction of the limit.
  window: ranges.Count = 20  # The ratio is exceeded in all of these rows.

  def diagnose(self, rows: Sequence[Row], task: Task, i: int) -> str | None:
    forecast = _series(rows, f'held_out_forecast/{i}', self.window)
    came = _series(rows, f'held_out_cost/{i}', self.window)
    costs = _series(rows, f'cost_return/{i}', self.window)
    if forecast is None or came is None or costs is None:
      return None
    over, under = np.all(forecast > self.max_ratio * came), np.all(self.max_ratio * forecast < came)
    if not (over or under) or np.mean(costs) * (self.max_ratio if over else 1.0) < self.relevance * task.cost_limits[i]:
      return None
    seen = (
      f'In new episodes the models predicted a cost{task.of(i)} of {forecast[-1]:.2g} over the horizon, and '
      f'{came[-1]:.2g} came (means over recent episodes), more than a factor of {self.max_ratio:g} apart for '
      f'{self.window} rows.'
    )
    if over:
      return (
        f'{seen} The constraint is stricter than its limit. Set BernoulliCost.correct_for_weight = True, or lower '
        'LambdaAgent.horizon if only steps far ahead are wrong (held_out_forecast_ahead).'
      )
    return (
      f'{seen} The limit will be exceeded. Use LambdaAgent.feedback = @IntegralFeedback(), take more updates '
      '(PeriodicUpdates.updates), or set RecurrentWorldModel.overshooting_steps if only steps far ahead are wrong '
      '(held_out_forecast_ahead).'
    )


@gin.register
@dataclasses.dataclass(frozen=True)
class ExplodingKl:
  """The KL between the model's posterior and prior states grows suddenly."""

  name: ClassVar[str] = 'exploding_kl'
  metrics: ClassVar[Sequence[str]] = ('kl',)
  factor: float = 10.0  # Of the newest KL over the median of the rows before it.
  floor: float = 10.0  # A KL below it is small, whatever it was before.
  window: ranges.Count = 10  # Rows, the newest included.

  def __call__(self, rows: Sequence[Row], task: Task) -> dict[str, str]:
    kls = _series(rows, 'kl', self.window)
    if kls is None or kls[-1] < max(self.factor * np.median(kls[:-1]), self.floor):
      return {}
    return {
      self.name: (
        f'The KL of the world model jumped to {kls[-1]:.3g}, from a median of {np.median(kls[:-1]):.3g} in the '
        f'{self.window - 1} rows before. The prior no longer follows the posterior, and imagination is worth little '
        'until it does. Lower the learning rate or the gradient clip of the posterior (Swag.learning_rate, '
        'Swag.clip_norm), or raise RecurrentWorldModel.min_stddev. Check for observations of a new magnitude, too.'
      )
    }


@gin.register
@dataclasses.dataclass(frozen=True)
class ReplayStarvation:
  """There are too many updates for the amount of data."""

  name: ClassVar[str] = 'replay_starvation'
  metrics: ClassVar[Sequence[str]] = ('updates',)
  # Per environment step so far. The paper has 0.1. With its batches of 32 x 50 and its action repeat of 2, a ratio of 1
  # samples each step 3,200 times.
  max_updates: float = 1.0
  window: ranges.Count = 20

  def __call__(self, rows: Sequence[Row], task: Task) -> dict[str, str]:
    updates, steps = rows[-1].get('updates'), rows[-1].get('environment_steps')
    if updates is None or steps is None:
      return {}
    updates -= rows[-1].get('offline_updates') or 0.0
    if updates <= self.max_updates * steps:
      return {}
    return {
      self.name: (
        f'{updates:.0f} updates were taken on {steps:.0f} environment steps, more than {self.max_updates:g} per step. '
        'The model and the critics memorise the few episodes, and the policy exploits their errors elsewhere. Lower '
        'PeriodicUpdates.updates or PeriodicUpdates.initial_updates, or raise PeriodicUpdates.first or '
        'PeriodicUpdates.every.'
      )
    }


@gin.register
@dataclasses.dataclass(frozen=True)
class NonFiniteGradients:
  """Updates were skipped because a gradient was not finite.

  Rows count skipped updates of the model. Those of the policy and the critics show as non-finite gradient norms.
  """

  name: ClassVar[str] = 'non_finite_gradients'
  metrics: ClassVar[Sequence[str]] = (
    'skipped_updates',
    'gradient_norm',
    'policy_gradient_norm',
    'critic_gradient_norm',
    'cost_critic_gradient_norm',
  )
  min_skips: float = 1.0  # Skipped updates of the model within the window that are worth reporting.
  window: ranges.Count = 20

  def __call__(self, rows: Sequence[Row], task: Task) -> dict[str, str]:
    skips = _series(rows, 'skipped_updates', len(rows))
    # A window that is not full yet starts with the run, at 0.
    rise = 0.0 if skips is None else skips[-1] - (skips[0] if len(rows) == self.window else 0.0)
    seen = [f'{rise:.3g} updates of the model were skipped in {len(rows)} rows'] if rise >= self.min_skips else []
    seen += [f'{name} was not finite' for name in self.metrics[1:] if rows[-1].get(name, 0.0) is None]
    if not seen:
      return {}
    return {
      self.name: (
        f'Non-finite gradients: {", ".join(seen)}. They change no parameters, but after LambdaAgent.max_skips in a row '
        'the run stops. A loss is about to diverge: lower the learning rate or the gradient clip of its part '
        '(Swag.learning_rate, Swag.clip_norm, LambdaAgent.policy_learning_rate, LambdaAgent.policy_clip, '
        'LambdaAgent.critic_clip, LambdaAgent.cost_critic_clip), or AugmentedLagrangian.initial_penalty_factor.'
      )
    }


DEFAULT_SYMPTOMS: tuple[Symptom, ...] = (
  EntropyCollapse(),
  MultiplierSaturation(),
  IdleMultiplier(),
  SilentCostHead(),
  CostMismatch(),
  HeldOutMismatch(),
  ExplodingKl(),
  ReplayStarvation(),
  NonFiniteGradients(),
)


def _series(rows: Sequence[Row], name: str, count: int) -> np.ndarray | None:
  """Returns the last `count` values of a metric; None if there are fewer, or if one is missing or not finite."""
  values = [row.get(name) for row in rows[-count:]]
  return None if len(values) < count or None in values else np.asarray(values, np.float64)


def _both_costs(rows: Sequence[Row], task: Task, i: int) -> str:
  imagined, realised = rows[-1][f'imagined_cost/{i}'], rows[-1][f'realised_cost/{i}']
  return f'The cost{task.of(i)} of an agent step is {imagined:.2g} in imagination and {realised:.2g} in episodes'


def _on_replayed_data(rows: Sequence[Row]) -> str:
  """Describes the cost head's error on data, which tells a wrong head from drifting imagination."""
  expected, mean = _series(rows, 'cost_expected', 1), _series(rows, 'cost_mean', 1)
  if expected is None or mean is None:
    return ''
  return f' On replayed data the head expects {expected[0]:.2g}; the true mean over constraints is {mean[0]:.2g}.'
