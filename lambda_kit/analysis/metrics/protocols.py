"""Protocols: the conditions that a score was measured under. Scores of different protocols are never averaged.

The SG6 protocol is the paper's (section 5.1): 10 evaluation episodes of 1,000 steps, a limit of 25, recorded at 1M
environment steps for three of the tasks and at 2M for the others.
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

SG6_STEPS = {
  'PointGoal1': 1_000_000,
  'PointGoal2': 1_000_000,
  'CarGoal1': 1_000_000,
  'PointPush1': 2_000_000,
  'PointButton1': 2_000_000,
  'DoggoGoal1': 2_000_000,
}
SG6_TASKS = tuple(SG6_STEPS)
SG6_LIMIT = 25.0
SG6_EPISODES = 10
# PointPush1 with a half-transparent box. It has the same protocol, but is not one of the six tasks.
OBSERVABLE_PUSH = 'ObservablePointPush1'


@dataclasses.dataclass(frozen=True)
class Protocol:
  """How the scores of a task are measured."""

  task: str
  environment_steps: int  # At which return, cost return and cost regret are recorded.
  evaluation_episodes: int  # E.
  cost_limit: tuple[float, ...]  # d, one for all constraints, or one for each.
  # Changes in the simulator, except for what the agent sees: parameter and value as gin text, sorted.
  environment: tuple[tuple[str, str], ...] = ()

  def to_json(self) -> dict[str, Any]:
    return {**dataclasses.asdict(self), 'cost_limit': list(self.cost_limit), 'environment': dict(self.environment)}

  @classmethod
  def from_json(cls, value: Mapping[str, Any]) -> 'Protocol':
    """Raises KeyError, TypeError, ValueError or ArithmeticError if something is missing or of the wrong kind."""
    return cls(
      str(value['task']),
      int(value['environment_steps']),
      int(value['evaluation_episodes']),
      _limits(value['cost_limit']),
      tuple(sorted((str(name), str(text)) for name, text in value['environment'].items())),
    )

  def differences(self, other: 'Protocol') -> list[str]:
    """Describes how another protocol differs."""
    names = [
      field.name for field in dataclasses.fields(self) if getattr(self, field.name) != getattr(other, field.name)
    ]
    show = lambda value: dict(value) if value and isinstance(value[0], tuple) else list(value)
    return [
      f'{name} is {_words(getattr(other, name), show)} instead of {_words(getattr(self, name), show)}' for name in names
    ]


def paper_protocol(task: str) -> Protocol | None:
  """Returns the paper's protocol of a task; None for tasks that are not in the paper."""
  steps = SG6_STEPS['PointPush1'] if task == OBSERVABLE_PUSH else SG6_STEPS.get(task)
  return None if steps is None else Protocol(task, steps, SG6_EPISODES, (SG6_LIMIT,))


def _limits(values: Any) -> tuple[float, ...]:
  limits = tuple(float(limit) for limit in values)
  if not limits or not all(map(math.isfinite, limits)):
    raise ValueError(f'cost_limit is {limits}, not finite numbers')
  return limits


def _words(value: Any, show_tuple: Any) -> str:
  if isinstance(value, tuple):
    return str(show_tuple(value)) if value else 'unchanged'
  return f'{value:,}' if isinstance(value, int) else str(value)
