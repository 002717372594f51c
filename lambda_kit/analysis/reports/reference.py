"""The paper's published scores, for comparison."""

import dataclasses
import functools
import importlib.resources
import json

from lambda_kit.analysis.metrics import normalization
from lambda_kit.analysis.metrics import protocols

SUFFIX = ' (paper)'  # Marks published numbers beside measured ones.


@dataclasses.dataclass(frozen=True)
class Row:
  """Published scores of an algorithm on a task after a number of steps."""

  task: str
  algorithm: str
  environment_steps: int
  metrics: normalization.Metrics


@functools.cache
def published_rows() -> tuple[Row, ...]:
  """Returns all published rows: at the SG6 protocol's steps, and for baselines also after 10M (DoggoGoal1: 100M)."""
  text = (importlib.resources.files('lambda_kit.analysis.reports') / 'data' / 'paper_scores.json').read_text('utf-8')
  return tuple(
    Row(
      row['task'],
      row['algorithm'],
      row['environment_steps'],
      normalization.make_metrics(
        row['episode_return'], [row['cost_return']], [row['cost_regret']], [protocols.SG6_LIMIT]
      ),
    )
    for row in json.loads(text)['rows']
  )


def at_protocol(task: str) -> dict[str, normalization.Metrics]:
  """Returns published metrics by algorithm, at the SG6 protocol's steps."""
  return {
    row.algorithm: row.metrics
    for row in published_rows()
    if row.task == task and row.environment_steps == protocols.SG6_STEPS.get(task)
  }


def after_long_training(task: str) -> dict[str, Row]:
  """Returns published rows of baselines by algorithm, after at least five times the protocol's steps."""
  return {
    row.algorithm: row
    for row in published_rows()
    if row.task == task and row.environment_steps > protocols.SG6_STEPS[task]
  }
