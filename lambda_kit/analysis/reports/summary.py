"""Scores by task and algorithm: medians over seeds, published scores, and both normalised."""

from collections.abc import Mapping, Sequence
import dataclasses

import numpy as np

from lambda_kit.analysis.metrics import normalization
from lambda_kit.analysis.metrics import protocols
from lambda_kit.analysis.metrics import records
from lambda_kit.analysis.reports import collection as collection_lib
from lambda_kit.analysis.reports import reference

NORMALIZER = 'PPO'
METRICS = ('return', 'cost return', 'cost regret')
HIGHER_IS_BETTER = (True, False, False)

Triple = tuple[float, float, float]


@dataclasses.dataclass(frozen=True)
class Summary:
  """The scores of a set of tasks."""

  name: str
  tasks: tuple[str, ...]
  algorithms: tuple[str, ...]
  metrics: Mapping[tuple[str, str], normalization.Metrics]  # By task and algorithm.
  ppo: Mapping[str, normalization.Metrics]  # By task; tasks without PPO can't be normalised.

  def values(self, normalized: bool) -> dict[tuple[str, str], Triple]:
    """Returns the three metrics by task and algorithm. If normalised, only for tasks that have PPO's."""
    if not normalized:
      return {key: metrics.values for key, metrics in self.metrics.items()}
    return {
      (task, algorithm): normalization.normalize(metrics, self.ppo[task])
      for (task, algorithm), metrics in self.metrics.items()
      if task in self.ppo
    }

  def averages(self, normalized: bool) -> dict[str, Triple]:
    """Returns means over tasks by algorithm, only for algorithms that have all tasks: others aren't comparable."""
    values = self.values(normalized)
    return {
      algorithm: tuple(np.mean([values[task, algorithm] for task in self.tasks], axis=0).tolist())
      for algorithm in self.algorithms
      if all((task, algorithm) in values for task in self.tasks)
    }


def median_metrics(scores: Sequence[records.SeedScore]) -> normalization.Metrics:
  """Returns medians over seeds, as in the paper, for each constraint by itself."""
  middle = lambda values: np.median(np.asarray(values, np.float64), axis=0)
  return normalization.make_metrics(
    middle([score.episode_return for score in scores]),
    middle([score.cost_return for score in scores]),
    middle([score.cost_regret for score in scores]),
    scores[0].protocol.cost_limit,
    len(scores),
  )


def summarize(collected: collection_lib.Collection) -> list[Summary]:
  """Returns a summary of the SG6 tasks with published rows, and one of everything else that was run.

  There is a first one if a run has the paper's protocol, or if there are no runs at all.
  """
  in_sg6 = lambda group: group.task in protocols.SG6_TASKS and group.protocol == protocols.paper_protocol(group.task)
  groups = [group for group in collected.groups if group.scored]
  paper = [group for group in groups if in_sg6(group)]
  others = [group for group in groups if not in_sg6(group)]
  summaries = []
  if paper or not groups:
    summaries.append(sg6_summary(paper))
  if others:
    metrics = {(group.task, group.algorithm): median_metrics(group.scores()) for group in others}
    ppo = {task: value for (task, algorithm), value in metrics.items() if algorithm == NORMALIZER}
    summaries.append(_make('Other tasks', metrics, ppo))
  return summaries


def sg6_summary(groups: Sequence[collection_lib.Group], published: Sequence[str] | None = None) -> Summary:
  """Summarises the SG6 tasks: measured and published metrics, normalised by the published PPO at equal steps.

  Args:
    groups: Groups of runs.
    published: Algorithms with published rows to show; None for all except PPO, the unit.
  """
  metrics, ppo = {}, {}
  for task in protocols.SG6_TASKS:
    rows = reference.at_protocol(task)
    ppo[task] = rows[NORMALIZER]
    for algorithm in published if published is not None else [name for name in rows if name != NORMALIZER]:
      metrics[task, algorithm + reference.SUFFIX] = rows[algorithm]
  for group in groups:
    metrics[group.task, group.algorithm] = median_metrics(group.scores())
  return _make('SG6', metrics, ppo)


def normalized_scores(collected: collection_lib.Collection, summary: Summary) -> dict[str, list[np.ndarray]]:
  """Returns the normalised returns of single seeds, [S_m] for each task, by algorithm with all measured tasks."""
  measured = [
    group
    for group in collected.groups
    if group.scored
    and (group.task, group.algorithm) in summary.metrics
    and group.task in summary.ppo
    and summary.ppo[group.task].episode_return > 0.0
  ]
  tasks = collection_lib.order_tasks(group.task for group in measured)
  scores = {
    (group.task, group.algorithm): np.array([score.episode_return for score in group.scores()])
    / summary.ppo[group.task].episode_return
    for group in measured
  }
  names = collection_lib.order_algorithms(algorithm for _, algorithm in scores)
  return {
    name: [scores[task, name] for task in tasks] for name in names if all((task, name) in scores for task in tasks)
  }


def _make(
  name: str, metrics: dict[tuple[str, str], normalization.Metrics], ppo: dict[str, normalization.Metrics]
) -> Summary:
  names = {algorithm for _, algorithm in metrics}
  published = {algorithm.removesuffix(reference.SUFFIX) for algorithm in names if algorithm.endswith(reference.SUFFIX)}
  own = [algorithm for algorithm in names if not algorithm.endswith(reference.SUFFIX)]
  algorithms = [
    *(algorithm + reference.SUFFIX for algorithm in collection_lib.order_algorithms(published)),
    *collection_lib.order_algorithms(own),
  ]
  return Summary(name, tuple(collection_lib.order_tasks(task for task, _ in metrics)), tuple(algorithms), metrics, ppo)
