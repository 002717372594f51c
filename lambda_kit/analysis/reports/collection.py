"""Runs grouped by task and algorithm: one protocol for a task, one configuration and physics for a group.

Each seed counts once.
"""

import collections
from collections.abc import Iterable, Mapping, Sequence
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
    """Runs that have reached the protocol's steps: only these are averaged."""
    return tuple(run for run in self.runs if run.score is not None)

  @property
  def drawn(self) -> tuple[runs_lib.Run, ...]:
    """Runs to draw: those with a score, or all while none has one."""
    return self.scored or self.runs

  def scores(self) -> list[records.SeedScore]:
    return [dataclasses.replace(run.score, algorithm=self.algorithm) for run in self.runs if run.score is not None]


@dataclasses.dataclass(frozen=True)
class Collection:
  """The runs of a report."""

  groups: tuple[Group, ...]
  refused: tuple[runs_lib.Run, ...]  # For another protocol or a duplicate seed; shown, but not counted.
  problems: tuple[problems_lib.Problem, ...]

  @property
  def tasks(self) -> list[str]:
    """The paper's tasks in its order, then others."""
    return order_tasks(group.task for group in self.groups)

  @property
  def algorithms(self) -> list[str]:
    return order_algorithms(group.algorithm for group in self.groups)

  def of_task(self, task: str) -> list[Group]:
    groups = {group.algorithm: group for group in self.groups if group.task == task}
    return [groups[algorithm] for algorithm in self.algorithms if algorithm in groups]

  def scores(self) -> list[records.SeedScore]:
    return [score for task in self.tasks for group in self.of_task(task) for score in group.scores()]


def order_tasks(tasks: Iterable[str]) -> list[str]:
  return _order(tasks, protocols_lib.SG6_TASKS)


def order_algorithms(algorithms: Iterable[str]) -> list[str]:
  return _order(algorithms, _ORDER)


def _order(names: Iterable[str], first: Sequence[str]) -> list[str]:
  """Sorts different names, with some of them first."""
  found = set(names)
  return [name for name in first if name in found] + sorted(found - set(first))


def collect(runs: Sequence[runs_lib.Run], problems: Sequence[problems_lib.Problem] = ()) -> Collection:
  """Sorts runs into groups. Runs that can't be compared with the others are refused, and problems say why."""
  problems = list(problems)
  refused: list[runs_lib.Run] = []
  groups: list[Group] = []
  by_task: dict[str, list[runs_lib.Run]] = collections.defaultdict(list)
  for run in runs:
    by_task[run.identity.task].append(run)
  for task, task_runs in by_task.items():
    protocol = _choose_protocol(task, task_runs)
    num_costs = _choose_num_costs([run for run in task_runs if run.identity.protocol == protocol])
    by_algorithm: dict[str, list[runs_lib.Run]] = collections.defaultdict(list)
    for run in task_runs:
      differences = protocol.differences(run.identity.protocol)
      if run.score is not None and len(run.score.cost_return) != num_costs:
        differences.append(f'it has {len(run.score.cost_return)} costs instead of {num_costs}')
      if not differences:
        by_algorithm[run.identity.algorithm].append(run)
      else:
        refused.append(run)
        problems.append(
          problems_lib.Problem(
            problems_lib.OTHER_PROTOCOL, run.workdir, f'left out of {task}: {"; ".join(differences)}'
          )
        )
    _report_physics(task, by_algorithm, problems)
    for algorithm, algorithm_runs in by_algorithm.items():
      for label, same_runs in _split(task, algorithm, algorithm_runs, problems).items():
        unique = _drop_duplicates(same_runs, refused, problems)
        groups.append(Group(task, label, protocol, tuple(sorted(unique, key=lambda run: run.identity.seed))))
  problems += _missing_seeds(groups)
  return Collection(tuple(groups), tuple(refused), tuple(problems))


def _choose_protocol(task: str, runs: Sequence[runs_lib.Run]) -> protocols_lib.Protocol:
  """Returns the paper's protocol if any run has it, else that of most runs, and of those the longest.

  Runs with a score choose, if there are any: others may have crashed on their first steps.
  """
  paper = protocols_lib.paper_protocol(task)
  voters = [run for run in runs if run.score is not None] or runs
  counts = collections.Counter(run.identity.protocol for run in voters)
  return max(counts, key=lambda protocol: (protocol == paper, counts[protocol], protocol.environment_steps))


def _choose_num_costs(runs: Sequence[runs_lib.Run]) -> int | None:
  """Returns C of most runs with a score; None if no run has one."""
  counts = collections.Counter(len(run.score.cost_return) for run in runs if run.score is not None)
  return max(counts, key=lambda num_costs: counts[num_costs], default=None)


def _report_physics(
  task: str, by_algorithm: Mapping[str, Sequence[runs_lib.Run]], problems: list[problems_lib.Problem]
) -> None:
  """Reports a task whose runs, even of different algorithms, can't be compared because their physics differ."""
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
  """Returns runs by label: the algorithm's name, plus configuration and physics if there are several."""
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
  """Returns a name for each configuration by hash, empty if there is only one."""
  by_hash: dict[str, runs_lib.Run] = {}  # One run of each.
  for run in runs:
    by_hash.setdefault(run.identity.config_hash, run)
  if len(by_hash) == 1:
    return dict.fromkeys(by_hash, '')
  lines = {key: set(run.identity.configuration) for key, run in by_hash.items()}
  common = set.intersection(*lines.values())
  own = {key: sorted(lines[key] - common) for key in by_hash}
  short = all(len(values) <= 1 and len(''.join(values)) <= 60 for values in own.values())
  # 'Swag.decay = 0.5' says more than a hash, if it is the only difference.
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
  """Returns one run for each seed: the first with a score, else the one that got furthest."""
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
  """Reports seeds that a group has no score for and another one has: on any of the paper's tasks, or on its own."""
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
