"""A study: variants of one experiment, several seeds each, side by side with what is known about the task.

Each run is a process of `lambda-kit run` in a workdir of its own, so a study that was stopped goes on where it was.
What a run delivers is its best safe checkpoint, which `lambda-kit evaluate` measures on fresh episodes.
"""

from collections.abc import Callable, Sequence
import concurrent.futures
import dataclasses
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import numpy as np

from lambda_kit import resources
from lambda_kit.analysis import rows as rows_lib
from lambda_kit.config import axes
from lambda_kit.environments import grid_cmdp

_EVALUATION = ('environment_steps', 'episode_return', 'cost_return', 'cost_regret')
BASE = 'lambda'  # What the experiment is called without a variant.


class StudyError(RuntimeError):
  """A run of a study failed. The message says which, and how it ended."""


@dataclasses.dataclass(frozen=True)
class Reference:
  """What is known about a task: values of episodes."""

  random_return: float
  optimal_return: float  # Within the limits.
  cost_limit: float

  def share(self, episode_return: float) -> float:
    """How far a return is on the way from the random policy to the optimum."""
    return (episode_return - self.random_return) / (self.optimal_return - self.random_return)


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What came out of one run."""

  variant: str
  seed: int
  environment_steps: int
  minutes: float  # From the first episode's end to the last evaluation's.
  episode_return: float  # Mean over the last evaluations.
  cost_return: float  # Likewise.
  cost_regret: float  # The paper's rho_c: training costs for each environment step.
  delivered_step: int  # Of the best safe checkpoint, or of the newest if none is safe.
  delivered_return: float  # Its mean over episodes that had no part in choosing it.
  delivered_cost: float  # Likewise.
  evaluations: tuple[dict[str, Any], ...]  # Steps, returns and cost returns of all evaluations.


@dataclasses.dataclass(frozen=True)
class Study:
  """Variants of one experiment."""

  experiment: str  # Name of its gin file.
  reference: Reference
  outcomes: Sequence[Outcome]  # By variant and seed.

  @property
  def variants(self) -> list[str]:
    return list(dict.fromkeys(outcome.variant for outcome in self.outcomes))

  def of_variant(self, variant: str) -> list[Outcome]:
    return [outcome for outcome in self.outcomes if outcome.variant == variant]

  def to_json(self) -> dict[str, Any]:
    return dataclasses.asdict(self)


def grid_reference(environment: grid_cmdp.GridCmdp, cost_limit: float) -> Reference:
  """Exact values of the built-in CMDP."""
  return Reference(
    grid_cmdp.random_value(environment).value,
    grid_cmdp.constrained_optimum(environment, [cost_limit]).value,
    cost_limit,
  )


def is_proof(outcome: Outcome, reference: Reference, share: float = 0.85) -> bool:
  """Whether a run shows what the learning proof says of its variant; of others than LAMBDA and unsafe it says nothing.

  What LAMBDA delivers went `share` of the way to the optimum, within the limit. The last evaluations of unsafe exceed
  the limit; what it delivers may be a checkpoint that was safe because it had learned nothing yet.
  """
  if outcome.variant == BASE:
    return reference.share(outcome.delivered_return) >= share and outcome.delivered_cost <= reference.cost_limit
  return outcome.variant != 'unsafe' or outcome.cost_return > reference.cost_limit


def run_study(
  gin_file: str,
  variants: Sequence[str],
  seeds: Sequence[int],
  folder: pathlib.Path,
  bindings: Sequence[str] = (),
  jobs: int = 1,
  last_evaluations: int = 3,
  fresh_episodes: int = 100,
  on_outcome: Callable[[Outcome], None] = lambda outcome: None,
  program: Sequence[str] = ('-m', 'lambda_kit'),
) -> list[Outcome]:
  """Runs every variant with every seed.

  Args:
    gin_file: The experiment.
    variants: Names of agents, parts and sizes, several joined by '+'; `BASE` is the experiment as it is.
    seeds: Of the runs.
    folder: Gets a workdir for each run, and its output beside it.
    bindings: Further bindings of all runs.
    jobs: Runs at a time.
    last_evaluations: How many evaluations at the end count.
    fresh_episodes: Episodes on which the best safe checkpoint is measured.
    on_outcome: Called when a run has ended.
    program: What Python is given, before a command such as `run`.

  Returns:
    The outcomes, by variant and seed.
  """
  folder.mkdir(parents=True, exist_ok=True)
  library = axes.Library([resources.root()])

  def run(variant: str, seed: int) -> Outcome:
    workdir = folder / f'{variant}-seed{seed}'
    names = [] if variant == BASE else variant.split('+')
    layers = [gin_file, *(library.find(name, list(axes.Axis)) for name in names)]
    output = pathlib.Path(f'{workdir}.out')
    code = _call(
      output,
      *program,
      'run',
      *(f'--gin_file={layer}' for layer in layers),
      *(f'--gin_bindings={binding}' for binding in bindings),
      f'--seed={seed}',
      f'--workdir={workdir}',
    )
    if code != 0:
      raise StudyError(f'{variant} with seed {seed} ended with code {code}. The end of {output}:\n{_tail(output)}')
    if not _is_measured(workdir, fresh_episodes):
      # There may be no safe one.
      if not any(
        _call(output, *program, 'evaluate', f'--workdir={workdir}', f'--which={which}', f'--episodes={fresh_episodes}')
        == 0
        for which in ('best', 'newest')
      ):
        raise StudyError(f'{variant} with seed {seed} could not be evaluated. The end of {output}:\n{_tail(output)}')
    outcome = read_outcome(workdir, variant, seed, last_evaluations, fresh_episodes)
    on_outcome(outcome)
    return outcome

  with concurrent.futures.ThreadPoolExecutor(jobs) as executor:
    pending = [executor.submit(run, variant, seed) for variant in variants for seed in seeds]
    try:
      return [future.result() for future in pending]
    except BaseException:
      for future in pending:
        future.cancel()
      raise


def read_outcome(
  workdir: pathlib.Path, variant: str, seed: int, last_evaluations: int = 3, fresh_episodes: int = 100
) -> Outcome:
  """Reads what a finished run, and the evaluation of what it delivers, have logged."""
  evaluations = rows_lib.read_jsonl(workdir / 'evaluation.jsonl')
  episodes = rows_lib.read_jsonl(workdir / 'episode.jsonl')
  delivered = rows_lib.read_jsonl(workdir / 'evaluation' / 'evaluation.jsonl')[-1]
  last = evaluations[-last_evaluations:]
  return Outcome(
    variant,
    seed,
    evaluations[-1]['environment_steps'],
    minutes=(evaluations[-1]['time'] - episodes[0]['time']) / 60,
    episode_return=float(np.mean([row['episode_return'] for row in last])),
    cost_return=float(np.mean([np.sum(row['cost_return']) for row in last])),
    cost_regret=float(np.sum(evaluations[-1]['cost_regret'])),
    delivered_step=delivered['environment_steps'],
    delivered_return=float(np.mean(delivered['episode_returns'][-fresh_episodes:])),
    delivered_cost=float(np.mean(np.sum(delivered['cost_returns'][-fresh_episodes:], axis=-1))),
    evaluations=tuple({name: row[name] for name in _EVALUATION} for row in evaluations),
  )


def copy_configs(done: Study, folder: pathlib.Path, out: pathlib.Path) -> None:
  """Copies what configured each variant's first seed, in workdirs of `folder`, to out/<experiment>-<variant>.gin."""
  out.mkdir(parents=True, exist_ok=True)
  for variant in done.variants:
    seed = done.of_variant(variant)[0].seed
    shutil.copyfile(folder / f'{variant}-seed{seed}' / 'config.gin', out / f'{done.experiment}-{variant}.gin')


def _is_measured(workdir: pathlib.Path, fresh_episodes: int) -> bool:
  """Whether what a finished run delivers was measured on as many episodes, by a study that was stopped later."""
  measured = workdir / 'evaluation' / 'evaluation.jsonl'
  if not measured.exists() or measured.stat().st_mtime < (workdir / 'evaluation.jsonl').stat().st_mtime:
    return False
  rows = rows_lib.read_jsonl(measured)
  return bool(rows) and len(rows[-1]['episode_returns']) >= fresh_episodes


def _call(output: pathlib.Path, *arguments: str) -> int:
  """Runs Python with its output appended to a file. Returns its exit code."""
  with open(output, 'ab') as file:
    return subprocess.run([sys.executable, *arguments], stdout=file, stderr=file, check=False).returncode


def _tail(output: pathlib.Path) -> str:
  return '\n'.join(output.read_text('utf-8', errors='replace').strip().splitlines()[-3:])
