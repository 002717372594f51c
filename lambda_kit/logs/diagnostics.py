"""Names the usual deaths of a safe model-based run while they happen."""

import collections
from collections.abc import Callable, Sequence
import copy
import math
from typing import Any

import numpy as np

from lambda_kit import core
from lambda_kit.analysis import tables
from lambda_kit.logs import symptoms as symptoms_lib

# Called with the symptom's name and a message: what is seen, what it usually means, what to change.
Report = Callable[[str, str], None]


class Diagnostics(core.Logger):
  """Watches the rows of a run, and tells once when a symptom begins.

  It is one of a group of loggers, beside those that keep the rows:

    diagnostics = Diagnostics(cost_limit=25.0, num_actions=2)
    diagnostics.connect(jsonl, lambda name, message: logging.warning('%s: %s', name, message))
    logger = LoggerGroup([jsonl, view, diagnostics])

  A symptom that begins is reported, and written as a row of kind 'diagnosis' with `environment_steps`, `name` and
  `message`. It is told again only if it returns after it was absent for a whole window of the learner's rows.
  """

  def __init__(
    self,
    cost_limit: float | Sequence[float],
    num_actions: int,
    constraint_names: Sequence[str] = (),
    symptoms: Sequence[symptoms_lib.Symptom] = symptoms_lib.DEFAULT_SYMPTOMS,
    recent_episodes: int = 10,
  ):
    """Has seen nothing yet.

    Args:
      cost_limit: d, one for all constraints, or one for each.
      num_actions: A.
      constraint_names: Names of the C costs, told where there are several.
      symptoms: What to look for.
      recent_episodes: Episodes of training over whose mean costs are taken.
    """
    names = [symptom.name for symptom in symptoms]
    if len(set(names)) < len(names):
      raise ValueError(f'experiment.symptoms has one twice: {names}.')
    if recent_episodes < 1 or any(symptom.window < 1 for symptom in symptoms):
      raise ValueError('recent_episodes and the window of each symptom must be at least 1.')
    self._task = symptoms_lib.Task(cost_limit, num_actions, constraint_names)
    self._symptoms = tuple(symptoms)
    self._metrics = {metric for symptom in symptoms for metric in symptom.metrics}
    self._episodes = collections.deque(maxlen=recent_episodes)
    self._rows = collections.deque(maxlen=max((symptom.window for symptom in symptoms), default=1))
    self._absences: dict[str, int] = {}  # Of what was told and is not over: the rows since it was last seen.

  def connect(self, logger: core.Logger, report: Report) -> None:
    """Says who is told.

    Args:
      logger: Where rows of kind 'diagnosis' go. It stays open: who made it closes it.
      report: Tells a user.
    """
    self._logger = logger
    self._report = report

  def write(self, kind: str, row: dict[str, Any]) -> None:
    """Takes rows of any kind. Evaluations act by the policy's mode, and are too rare to watch: episodes are not."""
    if kind == 'episode':
      self._episodes.append([float(row['length']), *tables.as_floats(row['cost_return']).tolist()])
    elif kind == 'learner':
      self._take(row)
      for symptom in self._symptoms:
        self._diagnose(symptom)

  def close(self) -> None:
    """Holds nothing that needs closing."""

  def save(self) -> dict[str, Any]:
    """All that it remembers, as plain JSON of some ten kilobytes."""
    return copy.deepcopy(dict(episodes=list(self._episodes), rows=list(self._rows), absences=self._absences))

  def restore(self, state: dict[str, Any]) -> None:
    """Continues from what `save` returned."""
    state = copy.deepcopy(state)
    self._episodes = collections.deque(state['episodes'], self._episodes.maxlen)
    self._rows = collections.deque(state['rows'], self._rows.maxlen)
    self._absences = state['absences']

  def _take(self, row: dict[str, Any]) -> None:
    """Remembers what symptoms need of a learner's row, and what episodes cost at that time."""
    previous = self._rows[-1] if self._rows else {}
    if not self._rows:
      self._episodes.clear()  # They gathered random data, and tell nothing about the policy.
    taken = {name: _finite(value) for name, value in row.items() if name.split('/')[0] in self._metrics}
    taken['environment_steps'] = int(row['environment_steps'])
    for name, value in list(taken.items()):
      if name.startswith('multiplier/'):
        highest = f'highest_{name}'
        taken[highest] = max(previous.get(highest, 0.0), value or 0.0)
    if self._episodes:
      lengths, *costs = np.asarray(self._episodes).T
      taken['episode_length'] = _finite(lengths.mean())
      for i, cost_returns in enumerate(costs):
        taken[f'cost_return/{i}'] = _finite(cost_returns.mean())
        taken[f'realised_cost/{i}'] = _finite(cost_returns.sum() / lengths.sum())
    self._rows.append(taken)

  def _diagnose(self, symptom: symptoms_lib.Symptom) -> None:
    messages = symptom(list(self._rows)[-symptom.window :], self._task)
    for name in [name for name in self._absences if name.split('/')[0] == symptom.name and name not in messages]:
      self._absences[name] += 1
      if self._absences[name] >= symptom.window:
        del self._absences[name]
    for name, message in messages.items():
      begins = name not in self._absences
      self._absences[name] = 0
      if begins:
        self._logger.write(
          'diagnosis', dict(environment_steps=self._rows[-1]['environment_steps'], name=name, message=message)
        )
        self._report(name, message)


def _finite(value: Any) -> float | None:
  """A scalar of a row as JSON has it: None if it is not finite, or was not when it was logged."""
  return None if value is None or not math.isfinite(value) else float(value)
