"""The runs of a sweep: tasks x variants x seeds, each a plain `lambda-kit run` with its own flags and workdir."""

import collections
from collections.abc import Iterable, Sequence
import dataclasses
import pathlib
import sys

from lambda_kit.analysis.metrics import protocols
from lambda_kit.config import axes
from lambda_kit.sweeps import errors

BASE = 'lambda'  # Name of the experiment without a variant.
SG6 = axes.SG6  # Stands for the paper's six tasks.
_JOINED = '+'  # 'ppo+observe_vector' is one variant of two files.
_PROGRAM = ('-m', 'lambda_kit', 'run')  # Arguments of Python: the command may not be on the PATH of another node.


@dataclasses.dataclass(frozen=True)
class Run:
  """One run of a sweep."""

  task: str
  variant: str
  seed: int
  gin_files: tuple[str, ...]  # The task's file comes first.
  bindings: tuple[str, ...]
  program: tuple[str, ...]  # Arguments of Python before the flags.
  workdir: pathlib.Path
  start_folder: pathlib.Path  # Paths of gin files are relative to it.

  @property
  def configuration(self) -> tuple[str, str]:
    """What all seeds of an experiment have in common."""
    return self.task, self.variant

  @property
  def name(self) -> str:
    return f'{self.task}/{self.variant}/seed{self.seed}'

  @property
  def output(self) -> pathlib.Path:
    """File of what all attempts print. It is beside the workdir, which an attempt may fail to create."""
    return pathlib.Path(f'{self.workdir}.out')

  @property
  def command(self) -> list[str]:
    task, *files = self.gin_files
    return [
      sys.executable,
      *self.program,
      f'--task={task}',
      *(f'--gin_file={name}' for name in files),
      *(f'--gin_bindings={binding}' for binding in self.bindings),
      f'--seed={self.seed}',
      f'--workdir={self.workdir}',
    ]


def make_grid(
  root: pathlib.Path,
  tasks: Sequence[str],
  variants: Sequence[str],
  seeds: Sequence[int],
  gin_files: Sequence[str],
  bindings: Sequence[str],
  folder: pathlib.Path,
  program: Sequence[str] = _PROGRAM,
) -> list[Run]:
  """Lists the runs, with the seeds of an experiment next to each other.

  Args:
    root: The folder that holds `gin/`.
    tasks: 'sg6', names of tasks, or gin files. If empty, the first of `gin_files` is the task.
    variants: Names of agents, parts, ways to run and sizes, several of them joined by '+', or gin files; `BASE` is the
      experiment without changes.
    seeds: Seeds of each experiment.
    gin_files: Further gin files of all runs.
    bindings: Bindings of all runs.
    folder: Folder of the workdirs.
    program: Arguments of Python before the flags of a run.

  Raises:
    ConfigurationError: There is no such task or variant.
    SweepError: Two runs would share a workdir, or there is no run at all.
  """
  if not tasks and not gin_files:
    raise errors.SweepError(
      'No experiment was named: give --tasks=sg6, --tasks=pointgoal1,cargoal1 or --gin_file=gin/tasks/grid.gin.'
    )
  library = axes.Library([root])
  task_files = [file for name in tasks for file in _task_files(library, name)] or [gin_files[0]]
  further = gin_files if tasks else gin_files[1:]
  variant_files = [(name, _variant_files(library, name)) for name in dict.fromkeys(variants)]
  for what, found in (('task', task_files), ('variant', variant_files), ('seed', seeds)):
    if not found:
      raise errors.SweepError(f'The grid has no runs: it has no {what}. Name at least one with --{what}s.')
  runs = [
    Run(
      pathlib.Path(task_file).stem,
      _variant_name(variant),
      seed,
      (task_file, *further, *files),
      tuple(bindings),
      tuple(program),
      folder / pathlib.Path(task_file).stem / _variant_name(variant) / f'seed{seed}',
      pathlib.Path.cwd(),
    )
    for task_file in dict.fromkeys(task_files)
    for variant, files in variant_files
    for seed in dict.fromkeys(seeds)
  ]
  _check_unique(runs)
  return runs


def parse_seeds(text: str) -> list[int]:
  """Parses seeds: '5' means five seeds from 0, '0,3,7' these three, '7,' the seed 7."""
  try:
    seeds = [int(word) for word in text.split(',') if word.strip()]
    if any(seed < 0 for seed in seeds):
      raise ValueError
  except ValueError:
    raise errors.SweepError(
      f'--seeds={text} is neither a number of seeds, such as 5, nor a list of seeds, such as 0,1,7.'
    ) from None
  return seeds if ',' in text or not seeds else list(range(seeds[0]))


def _task_files(library: axes.Library, name: str) -> list[str]:
  if name == SG6:
    return [f'gin/{SG6}_{task.lower()}.gin' for task in protocols.SG6_TASKS]
  return [library.find(name, [axes.Axis.TASK])]


def _variant_files(library: axes.Library, name: str) -> tuple[str, ...]:
  if name == BASE:
    return ()
  kinds = [axes.Axis.AGENT, axes.Axis.PART, axes.Axis.RUN, axes.Axis.SIZE]
  return tuple(library.find(part, kinds) for part in name.split(_JOINED))


def _variant_name(variant: str) -> str:
  return _JOINED.join(pathlib.Path(part).stem if part.endswith('.gin') else part for part in variant.split(_JOINED))


def _check_unique(runs: Iterable[Run]) -> None:
  by_workdir = collections.defaultdict(list)
  for run in runs:
    by_workdir[run.workdir].append(run)
  for workdir, same in by_workdir.items():
    if len(same) > 1:
      files = ' and '.join(', '.join(run.gin_files) for run in same)
      raise errors.SweepError(
        f'Two runs would share the workdir {workdir}: those of {files}. Rename one of the gin files.'
      )
