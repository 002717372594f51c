"""The runs of a sweep: tasks x variants x seeds, each the plain `lambda-kit run` with its flags and a workdir."""

import collections
import dataclasses
import pathlib
import sys
from typing import Iterable, Sequence

from lambda_kit.config import layers
from lambda_kit.training import study
from lambda_kit.analysis.metrics import protocols
from lambda_kit.sweeps import errors

SG6 = 'sg6'  # Stands for the paper's six tasks.
_JOINED = '+'  # 'ppo+vector' is one variant of two layers.
_VARIANTS = ('gin/variants', 'gin/baselines')
_PROGRAM = ('-m', 'lambda_kit', 'run')  # What Python is given: the command may not be on the PATH of another node.


@dataclasses.dataclass(frozen=True)
class Run:
  """One run of a sweep."""
  task: str
  variant: str
  seed: int
  gin_files: tuple[str, ...]
  bindings: tuple[str, ...]
  program: tuple[str, ...]  # What Python is given, before the flags.
  workdir: pathlib.Path
  start_folder: pathlib.Path  # From which the gin files are found.

  @property
  def configuration(self) -> tuple[str, str]:
    """What seeds of one experiment have in common."""
    return self.task, self.variant

  @property
  def name(self) -> str:
    return f'{self.task}/{self.variant}/seed{self.seed}'

  @property
  def output(self) -> pathlib.Path:
    """What all attempts print: beside the workdir, so that it survives one that never began."""
    return pathlib.Path(f'{self.workdir}.out')

  @property
  def command(self) -> list[str]:
    return [sys.executable, *self.program, *(f'--gin_file={name}' for name in self.gin_files),
            *(f'--gin_bindings={binding}' for binding in self.bindings), f'--seed={self.seed}',
            f'--workdir={self.workdir}']


def make_grid(root: pathlib.Path, tasks: Sequence[str], variants: Sequence[str], seeds: Sequence[int],
              gin_files: Sequence[str], bindings: Sequence[str], folder: pathlib.Path,
              program: Sequence[str] = _PROGRAM) -> list[Run]:
  """Lists the runs, the seeds of an experiment one after the other.

  Layers are in this order: the task, `gin_files`, the variant, `bindings`. So a profile such as gin/variants/quick.gin
  changes the experiment, and a variant changes what the profile made of it.

  Args:
    root: The folder that holds `gin/`.
    tasks: 'sg6', names of files in gin/ ('pointgoal1' is short for 'sg6_pointgoal1'), or gin files. Without any, the
      first of `gin_files` is the task.
    variants: Names of files in gin/variants and gin/baselines, several joined by '+', or gin files; `study.BASE` is the
      experiment as it is.
    seeds: Of the runs.
    gin_files: Further layers of all runs.
    bindings: Of all runs.
    folder: Gets a workdir for each run.
    program: What Python is given, before the flags of a run.

  Raises:
    SweepError: There is no such task or variant, two have the same name, or there is no run at all.
  """
  if not tasks and not gin_files:
    raise errors.SweepError('No experiment was named: give --tasks=sg6, --tasks=pointgoal1,cargoal1 or '
                            '--gin_file=gin/tiny_grid.gin.')
  task_files = [file for name in tasks for file in _task_files(root, name)] or [gin_files[0]]
  layers = gin_files if tasks else gin_files[1:]
  variant_files = [(name, _variant_files(root, name)) for name in dict.fromkeys(variants)]
  for what, found in (('task', task_files), ('variant', variant_files), ('seed', seeds)):
    if not found:
      raise errors.SweepError(f'The grid has no runs: it has no {what}. Name at least one with --{what}s.')
  runs = [
      Run(pathlib.Path(task_file).stem, _variant_name(variant), seed, (task_file, *layers, *files), tuple(bindings),
          tuple(program), folder / pathlib.Path(task_file).stem / _variant_name(variant) / f'seed{seed}',
          pathlib.Path.cwd())
      for task_file in dict.fromkeys(task_files) for variant, files in variant_files for seed in dict.fromkeys(seeds)]
  _check_unique(runs)
  return runs


def parse_seeds(text: str) -> list[int]:
  """'5' is five seeds from 0, '0,3,7' is these three, '7,' is the seed 7."""
  try:
    seeds = [int(word) for word in text.split(',') if word.strip()]
    if any(seed < 0 for seed in seeds):
      raise ValueError
  except ValueError:
    raise errors.SweepError(f'--seeds={text} is neither how many seeds, such as 5, nor a list of them, such as '
                            '0,1,7.') from None
  return seeds if ',' in text or not seeds else list(range(seeds[0]))


def _task_files(root: pathlib.Path, name: str) -> list[str]:
  if name == SG6:
    return [f'gin/{SG6}_{task.lower()}.gin' for task in protocols.SG6_TASKS]
  if name.endswith('.gin'):
    return [name]
  known = sorted(path.stem for path in (root / 'gin').glob('*.gin'))
  for stem in (name.lower(), f'{SG6}_{name.lower()}'):
    if stem in known:
      return [f'gin/{stem}.gin']
  short = [stem.removeprefix(f'{SG6}_') for stem in known]
  raise errors.SweepError(f'There is no task {name!r}.{layers.did_you_mean(name, short)} Known are {SG6} (six '
                          f'tasks), {", ".join(short)}, and any gin file by its path.')


def _variant_files(root: pathlib.Path, name: str) -> tuple[str, ...]:
  """The layers of a variant."""
  if name == study.BASE:
    return ()
  known = {path.stem: str(path.relative_to(root)) for folder in _VARIANTS for path in (root / folder).glob('*.gin')}
  files = []
  for part in name.split(_JOINED):
    if not part.endswith('.gin') and part not in known:
      raise errors.SweepError(f'There is no variant {part!r}.{layers.did_you_mean(part, known)} Known are '
                              f'{study.BASE} (the experiment as it is), {", ".join(sorted(known))}, and any gin file '
                              'by its path.')
    files.append(part if part.endswith('.gin') else known[part])
  return tuple(files)


def _variant_name(variant: str) -> str:
  return _JOINED.join(pathlib.Path(part).stem if part.endswith('.gin') else part for part in variant.split(_JOINED))


def _check_unique(runs: Iterable[Run]) -> None:
  by_workdir = collections.defaultdict(list)
  for run in runs:
    by_workdir[run.workdir].append(run)
  for workdir, same in by_workdir.items():
    if len(same) > 1:
      files = ' and '.join(', '.join(run.gin_files) for run in same)
      raise errors.SweepError(f'Two runs would share the workdir {workdir}: those of {files}. Rename one of the gin '
                              'files.')
