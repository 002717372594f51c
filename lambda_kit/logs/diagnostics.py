"""Watches a run for common failures of safe model-based learning, and warns when one begins."""

import collections
from collections.abc import Callable, Sequence
import copy
import math
from typing import Any

import numpy as np

from lambda_kit import core
from lambda_kit.analysis import tables
from lambda_kit.logs import symptoms as symptoms_lib

# Called with a symptom's name and a message: what was seen, what it usually means, what to change.
Report = Callable[[str, str], None]

_RECENT_EPISODES = 10  # Training episodes over which mean costs are taken.


class Diagnostics(core.Logger):
  """Watches the rows of a run, and reports each symptom once when it begins.

  A symptom that begins is also written as a row of kind 'diagnosis' with `environment_steps`, `name` and `message`. It
  is reported again only if it returns after it was absent for a whole window of the learner's rows.
  """

  def __init__(
    self,
    cost_limits: Sequence[float],
    num_actions: int,
    constraint_names: Sequence[str],
    symptoms: Sequence[symptoms_lib.Symptom] = symptoms_lib.DEFAULT_SYMPTOMS,
  ):
    """Starts without rows.

    Args:
      cost_limits: d, [C].
      num_actions: A.
      constraint_names: Names of the C costs; messages have them if there are several.
      symptoms: What to look for.
    """
    names = [symptom.name for symptom in symptoms]
    if len(set(names)) < len(names):
      raise ValueError(f'experiment.symptoms has one twice: {names}.')
    if any(symptom.window < 1 for symptom in symptoms):
      raise ValueError('The window of each symptom must be at least 1.')
    self._task = symptoms_lib.Task(cost_limits, num_actions, constraint_names)
    self._symptoms = tuple(symptoms)
    self._metrics = {metric for symptom in symptoms for metric in symptom.metrics}
    # Length and cost returns of each.
    self._episodes: collections.deque[list[float]] = collections.deque(maxlen=_RECENT_EPISODES)
    self._rows: collections.deque[symptoms_lib.Row] = collections.deque(
      maxlen=max((symptom.window for symptom in symptoms), default=1)
    )
    self._absences: dict[str, int] = {}  # By symptom that was reported and is not over: rows since it was last seen.

  def connect(self, logger: core.Logger, report: Report) -> None:
    """Attaches where diagnoses go.

    Args:
      logger: Gets rows of kind 'diagnosis'. It is left open.
      report: Tells the user.
    """
    self._logger = logger
    self._report = report

  def write(self, kind: str, row: dict[str, Any]) -> None:
    """Takes rows of any kind. Costs are those of training episodes, since evaluations are too rare."""
    if kind == 'episode':
      self._episodes.append([float(row['length']), *tables.as_floats(row['cost_return']).tolist()])
    elif kind == 'learner':
      self._take(row)
      for symptom in self._symptoms:
        self._diagnose(symptom)

  def close(self) -> None:
    """There is nothing to close."""

  def save(self) -> dict[str, Any]:
    """Returns the state as plain JSON of about ten kilobytes."""
    return copy.deepcopy(dict(episodes=list(self._episodes), rows=list(self._rows), absences=self._absences))

  def restore(self, state: dict[str, Any]) -> None:
    """Continues from what `save` returned."""
    state = copy.deepcopy(state)
    self._episodes = collections.deque(state['episodes'], self._episodes.maxlen)
    self._rows = collections.deque(state['rows'], self._rows.maxlen)
    self._absences = state['absences']

  def _take(self, row: dict[str, Any]) -> None:
    """Keeps what symptoms need of a learner's row, and the costs of recent episodes."""
    previous = self._rows[-1] if self._rows else {}
    if not self._rows:
      self._episodes.clear()  # They gathered random data, and say nothing about the policy.
    taken = {name: _finite(value) for name, value in row.items() if name.split('/')[0] in self._metrics}
    taken['environment_steps'] = int(row['environment_steps'])
    # Updates before the first step learn from an offline dataset, whose size is not known here.
    taken['offline_updates'] = (
      previous.get('offline_updates', 0.0) if taken['environment_steps'] else taken.get('updates')
    )
    for name, value in list(taken.items()):
      if name.startswith('multiplier/'):
        highest = f'highest_{name}'
        taken[highest] = max(previous.get(highest) or 0.0, value or 0.0)
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
  """Returns a scalar as JSON can hold it: None if it is not finite, or was not when it was logged."""
  return None if value is None or not math.isfinite(value) else float(value)
