"""Scores of single seeds as JSON: a documented schema with a version.

A file is one object:

  schema   'lambda_kit.scores'
  version  2; version 1 had no `mujoco` (see `physics.version_before_records`); `load_scores` refuses any other
  scores   a list with one object for each seed:
    task               e.g. 'PointGoal1'
    algorithm          e.g. 'LAMBDA'
    seed               integer
    protocol           task, environment_steps, evaluation_episodes, cost_limit [1 or C], environment (changes in the
                       simulator: parameter to gin text)
    environment_steps  step at which the score was recorded: the first evaluation at or after the protocol's steps
    episode_return     J(pi), mean over the evaluation's episodes
    cost_return        J_c(pi) [C], likewise
    cost_regret        rho_c(pi) [C], all costs of training divided by its environment steps
    wall_seconds       from the end of the first training episode to the end of the evaluation, including pauses of a
                       run that was stopped and resumed
    config_hash        of all bindings that can change the outcome, except for the seed
    workdir            folder of the run's logs, relative to the folder that was read
    mujoco             version of MuJoCo, null for tasks that it doesn't simulate
"""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import math
import os
import pathlib
from typing import Any

import numpy as np

from lambda_kit import reading
from lambda_kit.analysis.metrics import physics
from lambda_kit.analysis.metrics import protocols as protocols_lib

SCHEMA = 'lambda_kit.scores'
VERSION = 2
_READ = (1, VERSION)
_MAX_BYTES = 1 << 26


class ScoresError(ValueError):
  """A file of scores can't be used."""


class ProtocolError(ScoresError):
  """Scores were measured under another protocol."""


@dataclasses.dataclass(frozen=True)
class SeedScore:
  """The score of one seed; see the module's docstring."""

  task: str
  algorithm: str
  seed: int
  protocol: protocols_lib.Protocol
  environment_steps: int
  episode_return: float
  cost_return: tuple[float, ...]  # [C].
  cost_regret: tuple[float, ...]  # [C].
  wall_seconds: float
  config_hash: str
  workdir: str
  mujoco: str | None

  @property
  def safe(self) -> bool:
    """Whether each cost return is within its limit."""
    return bool(np.all(np.asarray(self.cost_return) <= np.asarray(self.protocol.cost_limit)))

  def to_json(self) -> dict[str, Any]:
    return {
      **dataclasses.asdict(self),
      'protocol': self.protocol.to_json(),
      'cost_return': list(self.cost_return),
      'cost_regret': list(self.cost_regret),
    }

  @classmethod
  def from_json(cls, value: Mapping[str, Any]) -> 'SeedScore':
    """Raises KeyError, TypeError, ValueError or ArithmeticError if something is missing or of the wrong kind."""
    score = cls(
      str(value['task']),
      str(value['algorithm']),
      int(value['seed']),
      protocols_lib.Protocol.from_json(value['protocol']),
      int(value['environment_steps']),
      _finite(value['episode_return']),
      tuple(map(_finite, value['cost_return'])),
      tuple(map(_finite, value['cost_regret'])),
      _finite(value['wall_seconds']),
      str(value['config_hash']),
      str(value['workdir']),
      _version(value['mujoco']),
    )
    costs, limits = len(score.cost_return), len(score.protocol.cost_limit)
    if len(score.cost_regret) != costs or limits not in (1, costs):
      raise ValueError(f'{costs} costs, {len(score.cost_regret)} regrets and {limits} limits')
    return score


def dump_scores(scores: Sequence[SeedScore]) -> str:
  """Returns the text of a file of scores, with a line for each seed."""
  head = json.dumps(dict(schema=SCHEMA, version=VERSION))
  lines = ',\n'.join(json.dumps(score.to_json(), allow_nan=False) for score in scores)
  return f'{head[:-1]}, "scores": [\n{lines}\n]}}\n'


def load_scores(path: str | os.PathLike, protocols: Sequence[protocols_lib.Protocol] | None = None) -> list[SeedScore]:
  """Reads a file of scores.

  Args:
    path: The file.
    protocols: Protocols to accept; None accepts any, as long as each task has only one.

  Raises:
    ScoresError: The file doesn't hold scores, or has another version, or a row is incomplete.
    ProtocolError: A row has another protocol, or another physics than others of its task and algorithm. Nothing is
      returned, since averages over the rest would hide it.
  """
  path = pathlib.Path(path)
  try:
    document = reading.read_json(path, _MAX_BYTES)
  except reading.RefusedError as error:
    raise ScoresError(str(error)) from error
  if not isinstance(document, dict) or document.get('schema') != SCHEMA:
    raise ScoresError(f'{path} is not a file of scores: its schema is not {SCHEMA!r}.')
  version = document.get('version')
  if version not in _READ:
    raise ScoresError(
      f'{path} has version {version!r} of the schema; this reads versions {", ".join(map(str, _READ))}.'
    )
  rows = document.get('scores', [])
  if not isinstance(rows, list):
    raise ScoresError(f'{path} has no list of scores.')
  scores = []
  for number, row in enumerate(rows, start=1):
    try:
      if version == 1:
        row = {**row, 'mujoco': physics.version_before_records(row['task'])}
      scores.append(SeedScore.from_json(row))
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
      raise ScoresError(f'{path}, score {number}: {type(error).__name__}: {error}.') from error
  _check_protocols(path, scores, protocols)
  return scores


def _check_protocols(
  path: pathlib.Path, scores: Sequence[SeedScore], protocols: Sequence[protocols_lib.Protocol] | None
) -> None:
  accepted = {protocol.task: protocol for protocol in protocols or ()}
  of_group: dict[tuple[str, str], str | None] = {}  # The physics of each algorithm on each task.
  for number, score in enumerate(scores, start=1):
    if protocols is None:
      accepted.setdefault(score.task, score.protocol)
    if score.task not in accepted:
      raise ProtocolError(f'{path}, score {number}: there is no protocol for the task {score.task!r}.')
    if score.protocol != accepted[score.task]:
      raise ProtocolError(
        f'{path}, score {number} ({score.task}, {score.algorithm}, seed {score.seed}) has another '
        f'protocol: {"; ".join(accepted[score.task].differences(score.protocol))}.'
      )
    found = physics.of_version(score.mujoco)
    expected = of_group.setdefault((score.task, score.algorithm), found)
    if found != expected:
      raise ProtocolError(
        f'{path}, score {number} ({score.task}, {score.algorithm}, seed {score.seed}) has another '
        f'physics: {physics.name(found)} instead of {physics.name(expected)}.'
      )


def _version(value: Any) -> str | None:
  if not (value is None or isinstance(value, str)):
    raise ValueError(f'{value!r} is not a version')
  return value


def _finite(value: Any) -> float:
  if isinstance(value, (str, bool)) or not math.isfinite(value):
    raise ValueError(f'{value!r} is not a finite number')
  return float(value)
