"""Runs in order: by task and algorithm, with one protocol for a task, one configuration and physics for a group.

Each seed counts once.
"""

import collections
from collections.abc import Mapping, Sequence
import dataclasses

from lambda_kit.analysis.metrics import physics
from lambda_kit.analysis.metrics import protocols as protocols_lib
from lambda_kit.analysis.metrics import records
from lambda_kit.analysis.reports import problems as problems_lib
from lambda_kit.analysis.reports import runs as runs_lib

# The paper's order; others follow by name.
_ORDER = ('TRPO-Lagrangian', 'PPO-Lagrangian', 'CPO', 'PPO', 'LAMBDA')


@dataclasses.dataclass(frozen=True)
class Group:
  """All seeds of one algorithm on one task, under one protocol and physics and with one configuration."""

  task: str
  algorithm: str
  protocol: protocols_lib.Protocol
  runs: tuple[runs_lib.Run, ...]  # By seed.

  @property
  def scored(self) -> tuple[runs_lib.Run, ...]:
    """Those that have reached the protocol's steps: only these are averaged."""
    return tuple(run for run in self.runs if run.score is not None)

  @property
  def drawn(self) -> tuple[runs_lib.Run, ...]:
    """Whose curves are averaged: those with a score, or all while none has one."""
    return self.scored or self.runs

  def scores(self) -> list[records.SeedScore]:
    return [dataclasses.replace(run.score, algorithm=self.algorithm) for run in self.scored]


@dataclasses.dataclass(frozen=True)
class Collection:
  """What a report is about."""

  groups: tuple[Group, ...]
  refused: tuple[runs_lib.Run, ...]  # For another protocol or a duplicate seed; shown, but counted nowhere.
  problems: tuple[problems_lib.Problem, ...]

  @property
  def tasks(self) -> list[str]:
    """The paper's in its order, then others."""
    return order_tasks(group.task for group in self.groups)

  @property
  def algorithms(self) -> list[str]:
    return order_algorithms(group.algorithm for group in self.groups)

  def of_task(self, task: str) -> list[Group]:
    groups = {group.algorithm: group for group in self.groups if group.task == task}
    return [groups[algorithm] for algorithm in self.algorithms if algorithm in groups]

  def scores(self) -> list[records.SeedScore]:
    return [score for task in self.tasks for group in self.of_task(task) for score in group.scores()]


def order_tasks(tasks) -> list[str]:
  tasks = set(tasks)
  return [task for task in protocols_lib.SG6_TASKS if task in tasks] + sorted(tasks - set(protocols_lib.SG6_TASKS))


def order_algorithms(algorithms) -> list[str]:
  algorithms = set(algorithms)
  return [name for name in _ORDER if name in algorithms] + sorted(algorithms - set(_ORDER))


def collect(runs: Sequence[runs_lib.Run], problems: Sequence[problems_lib.Problem] = ()) -> Collection:
  """Sorts runs into groups. Runs that can't be compared with the others are refused, and problems say why."""
  problems, refused, groups = list(problems), [], []
  by_task: dict[str, list[runs_lib.Run]] = collections.defaultdict(list)
  for run in runs:
    by_task[run.identity.task].append(run)
  for task, task_runs in by_task.items():
    protocol = _choose_protocol(task, task_runs)
    by_algorithm: dict[str, list[runs_lib.Run]] = collections.defaultdict(list)
    for run in task_runs:
      if run.identity.protocol == protocol:
        by_algorithm[run.identity.algorithm].append(run)
      else:
        refused.append(run)
        differences = '; '.join(protocol.differences(run.identity.protocol))
        problems.append(
          problems_lib.Problem(problems_lib.OTHER_PROTOCOL, run.workdir, f'left out of {task}: {differences}')
        )
    _report_physics(task, by_algorithm, problems)
    for algorithm, algorithm_runs in by_algorithm.items():
      for label, same_runs in _split(task, algorithm, algorithm_runs, problems).items():
        unique = _drop_duplicates(same_runs, refused, problems)
        groups.append(Group(task, label, protocol, tuple(sorted(unique, key=lambda run: run.identity.seed))))
  problems += _missing_seeds(groups)
  return Collection(tuple(groups), tuple(refused), tuple(problems))


def _choose_protocol(task: str, runs: Sequence[runs_lib.Run]) -> protocols_lib.Protocol:
  """The paper's if any run has it, else that of most runs, and of those the longest."""
  paper = protocols_lib.paper_protocol(task)
  counts = collections.Counter(run.identity.protocol for run in runs)
  return paper if paper in counts else max(counts, key=lambda protocol: (counts[protocol], protocol.environment_steps))


def _report_physics(
  task: str, by_algorithm: Mapping[str, Sequence[runs_lib.Run]], problems: list[problems_lib.Problem]
) -> None:
  """Tells if runs of a task, also of different algorithms, can't be compared because their physics differ."""
  algorithms: dict[str, set[str]] = collections.defaultdict(set)
  for algorithm, runs in by_algorithm.items():
    for run in runs:
      algorithms[physics.name(physics.of_version(run.mujoco))].add(algorithm)
  if len(algorithms) > 1:
    words = [f'{name} ({", ".join(order_algorithms(algorithms[name]))})' for name in sorted(algorithms)]
    problems.append(
      problems_lib.Problem(
        problems_lib.SEVERAL_PHYSICS,
        task,
        f'its runs have different physics, and those of one algorithm are kept apart: {" and ".join(words)}',
      )
    )


def _split(
  task: str, algorithm: str, runs: Sequence[runs_lib.Run], problems: list[problems_lib.Problem]
) -> dict[str, list[runs_lib.Run]]:
  """Runs by label: the algorithm's name, with what tells configurations and physics apart if there are several."""
  configurations = _name_configurations(task, algorithm, runs, problems)
  names = {run.mujoco: physics.name(physics.of_version(run.mujoco)) for run in runs}
  several = len(set(names.values())) > 1
  groups: dict[str, list[runs_lib.Run]] = collections.defaultdict(list)
  for run in runs:
    suffixes = [configurations[run.identity.config_hash], names[run.mujoco] if several else '']
    suffix = ', '.join(filter(None, suffixes))
    groups[f'{algorithm} [{suffix}]' if suffix else algorithm].append(run)
  return groups


def _name_configurations(
  task: str, algorithm: str, runs: Sequence[runs_lib.Run], problems: list[problems_lib.Problem]
) -> dict[str, str]:
  """What tells configurations apart, by hash. Nothing does if there is one."""
  by_hash: dict[str, runs_lib.Run] = {}  # One run of each.
  for run in runs:
    by_hash.setdefault(run.identity.config_hash, run)
  if len(by_hash) == 1:
    return dict.fromkeys(by_hash, '')
  lines = {key: set(run.identity.configuration) for key, run in by_hash.items()}
  common = set.intersection(*lines.values())
  own = {key: sorted(lines[key] - common) for key in by_hash}
  short = all(len(values) <= 1 and len(''.join(values)) <= 60 for values in own.values())
  # 'Swag.decay = 0.5' tells more than a hash, where it is all that differs.
  names = {
    key: (own[key][0].partition('.')[2].replace(' ', '') if own[key] else 'default') if short else f'#{key[:6]}'
    for key in by_hash
  }
  labels = [f'{algorithm} [{name}]' for name in names.values()]
  problems.append(
    problems_lib.Problem(
      problems_lib.SEVERAL_CONFIGURATIONS,
      f'{task}, {algorithm}',
      f'its runs have {len(by_hash)} configurations and are kept apart: {", ".join(labels)}',
    )
  )
  return names


def _drop_duplicates(
  runs: Sequence[runs_lib.Run], refused: list[runs_lib.Run], problems: list[problems_lib.Problem]
) -> list[runs_lib.Run]:
  """One run for each seed: the first that has a score, else the one that got furthest."""
  by_seed: dict[int, list[runs_lib.Run]] = collections.defaultdict(list)
  for run in runs:
    by_seed[run.identity.seed].append(run)
  for seed, same in by_seed.items():
    same.sort(key=lambda run: (run.score is None, -run.last_step if run.score is None else 0))
    for run in same[1:]:
      refused.append(run)
      problems.append(
        problems_lib.Problem(
          problems_lib.DUPLICATE_SEED, run.workdir, f'seed {seed} is counted once, from {same[0].workdir}'
        )
      )
  return [same[0] for same in by_seed.values()]


def _missing_seeds(groups: Sequence[Group]) -> list[problems_lib.Problem]:
  """A seed is missing where a group lacks a score for it that another has: on any of the paper's tasks, or its own."""
  benchmark = lambda group: 'paper' if group.protocol == protocols_lib.paper_protocol(group.task) else group.task
  all_wanted: dict[str, set[int]] = collections.defaultdict(set)
  for group in groups:
    all_wanted[benchmark(group)] |= {run.identity.seed for run in group.scored}
  problems = []
  for group in groups:
    wanted = all_wanted[benchmark(group)]
    missing = wanted - {run.identity.seed for run in group.scored}
    if missing:
      names = ', '.join(map(str, sorted(missing)[:20])) + (', ...' if len(missing) > 20 else '')
      problems.append(
        problems_lib.Problem(
          problems_lib.MISSING_SEED,
          f'{group.task}, {group.algorithm}',
          f'no score for seed {names}: its numbers are over {len(group.scored)} of {len(wanted)} seeds',
        )
      )
  return problems
