"""Runs a grid of experiments, tasks x variants x seeds, and writes a report about them.

  lambda-kit sweep --tasks=sg6 --variants=lambda,greedy,unsafe,ppo_lagrangian+observe_vector --seeds=5 --folder=results
  lambda-kit sweep --tasks=grid --variants=lambda,greedy,posterior_ensemble --seeds=3 --cores=2 --memory=8
  lambda-kit sweep --tasks=pointgoal1 --size=quick --seeds=0,3,7 --dry_run
  lambda-kit sweep --tasks=sg6 --seeds=5 --executor=slurm --slurm=partition=gpu --run_gpus=1
  sbatch --array=0-29 --wrap='lambda-kit sweep --tasks=sg6 --seeds=5 --index=$SLURM_ARRAY_TASK_ID'

Each run is a `lambda-kit run` in its own workdir. After an interruption of any kind, the same command completes what
is missing and repeats nothing. Names are those of `lambda-kit list`.
"""

import pathlib
import shlex
import sys

from absl import flags

from lambda_kit import resources
from lambda_kit.analysis.reports import problems
from lambda_kit.analysis.reports import report
from lambda_kit.commands import launching
from lambda_kit.config import axes
from lambda_kit.sweeps import errors
from lambda_kit.sweeps import executors
from lambda_kit.sweeps import grid
from lambda_kit.sweeps import interfaces
from lambda_kit.sweeps import memory
from lambda_kit.sweeps import status as status_lib
from lambda_kit.sweeps import supervision
from lambda_kit.sweeps import workdirs
from lambda_kit.training.checkpoints import lock

_ROOT = resources.root()

flags.adopt_module_key_flags(launching)

_TASKS = flags.DEFINE_list('tasks', [], 'sg6 (six tasks), names of tasks, or gin files. Default: the first --gin_file.')
_SIZE = flags.DEFINE_string('size', None, "The size of all runs: a name, such as quick. Default: the task's size.")
_VARIANTS = flags.DEFINE_list(
  'variants',
  [grid.BASE],
  'Names of agents, parts and sizes, joined by + in a variant, or gin files; lambda is the experiment unchanged.',
)
_SEEDS = flags.DEFINE_string('seeds', '1', 'The number of seeds, from 0, or a list of seeds: 0,3,7.')
_FOLDER = flags.DEFINE_string('folder', 'runs/sweep', 'Folder for workdirs, outputs and the report.')
_EXECUTOR = flags.DEFINE_enum('executor', 'local', executors.NAMES, 'Where runs execute.')
_RUN_CORES = flags.DEFINE_integer('run_cores', 1, 'Cores of one run.', lower_bound=1)
_RUN_MEMORY = flags.DEFINE_float(
  'run_memory',
  None,
  f'Gigabytes of memory of one run; 0 for no limit. Default: {memory.BASE:g}, plus those of the '
  'largest replay of images.',
  lower_bound=0.0,
)
_RUN_GPUS = flags.DEFINE_integer('run_gpus', 0, 'GPUs of one run.', lower_bound=0)
_CORES = flags.DEFINE_integer('cores', None, 'Local: cores for all runs together. Default: all.', lower_bound=1)
_MEMORY = flags.DEFINE_float('memory', None, 'Local: gigabytes for all runs together. Default: the free memory.')
_GPUS = flags.DEFINE_list('gpus', [], 'Local: ids of the GPUs for all runs together.')
_SLURM = flags.DEFINE_multi_string('slurm', [], 'SLURM: an option of sbatch, such as partition=gpu')
_RAY_ADDRESS = flags.DEFINE_string('ray_address', 'auto', "Ray: host:port of the cluster. Default: this machine's.")
_MAX_RETRIES = flags.DEFINE_integer('max_retries', 2, 'How often to retry a failed run.', lower_bound=0)
_KEEP_GOING = flags.DEFINE_bool('keep_going', False, 'Continue when an experiment fails at once with every seed.')
_INDEX = flags.DEFINE_integer('index', None, 'Do only this run of the grid, from 0, on this machine: for job arrays.')
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'Print the shell commands of all runs, and exit.')


def _make_grid() -> list[grid.Run]:
  size = [axes.Library([_ROOT]).find(_SIZE.value, [axes.Axis.SIZE])] if _SIZE.value else []
  runs = grid.make_grid(
    _ROOT,
    _TASKS.value,
    _VARIANTS.value,
    grid.parse_seeds(_SEEDS.value),
    [*launching.GIN_FILE.value, *size],
    launching.GIN_BINDINGS.value,
    pathlib.Path(_FOLDER.value).resolve(),
  )
  if _INDEX.value is None:
    return runs
  if not 0 <= _INDEX.value < len(runs):
    raise errors.SweepError(
      f'--index={_INDEX.value}, but the grid has {len(runs)} runs: indices are 0 to '
      f'{len(runs) - 1}, as in sbatch --array=0-{len(runs) - 1}.'
    )
  return [runs[_INDEX.value]]


def _make_executor(folder: pathlib.Path, run_memory: float) -> interfaces.Executor:
  slurm = {}
  for option in _SLURM.value:
    name, equals, value = option.partition('=')
    if not equals:
      raise errors.SweepError(f'--slurm={option} has no value. Write --slurm=partition=gpu.')
    slurm[name.replace('-', '_')] = int(value) if value.isdecimal() else value
  return executors.make_executor(
    'local' if _INDEX.value is not None else _EXECUTOR.value,
    folder,
    executors.Options(
      interfaces.Needs(_RUN_CORES.value, run_memory, _RUN_GPUS.value),
      _CORES.value,
      _MEMORY.value,
      _GPUS.value,
      slurm,
      _RAY_ADDRESS.value,
    ),
  )


def _prepare_folder(folder: pathlib.Path) -> None:
  try:
    folder.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise errors.SweepError(f'Cannot write to {folder}: {error.strerror}. Choose another with --folder.') from error


def _print_commands(runs: list[grid.Run]) -> None:
  for run in runs:
    print(f'{"# finished: " if workdirs.is_finished(run.workdir) else ""}{shlex.join(run.command)}')


def _run(runs: list[grid.Run], folder: pathlib.Path, run_memory: float) -> list[supervision.RunStatus]:
  executor = _make_executor(folder, run_memory)
  try:
    supervisor = supervision.Supervisor(runs, executor, _MAX_RETRIES.value, _KEEP_GOING.value)
    with status_lib.StatusView(supervisor.statuses) as view:
      return supervisor.run(on_change=view.tell)
  finally:
    executor.close()


def _write_report(folder: pathlib.Path) -> None:
  collected = report.write_report(folder, folder / 'report', _ROOT)
  print(report.overview(collected))
  print(problems.summarize(collected.problems))
  print(f'The report: {folder}/report/index.html')


def _sweep() -> None:
  runs, folder = _make_grid(), pathlib.Path(_FOLDER.value).resolve()
  configurations = workdirs.check_configurations(runs, _ROOT)
  run_memory = memory.needed_gigabytes(configurations) if _RUN_MEMORY.value is None else _RUN_MEMORY.value
  if _DRY_RUN.value:
    _print_commands(runs)
    return
  _prepare_folder(folder)
  if _INDEX.value is not None:
    statuses = _run(runs, folder, run_memory)
    print(f'The report, when all runs are done: lambda-kit report --runs={folder} --out={folder}/report')
  else:
    try:
      with lock.WorkdirLock(folder):
        statuses = _run(runs, folder, run_memory)
        _write_report(folder)
    except lock.WorkdirLockedError as error:  # Of this folder: runs are other processes.
      raise errors.SweepError(
        f'Another sweep is running in {folder}. Wait for it to end, or choose another --folder.'
      ) from error
  failed = sum(status.state is interfaces.State.FAILED for status in statuses)
  if failed:
    raise errors.SweepError(f'{failed} of {len(runs)} runs failed; the table says why. The same command resumes them.')


def main(argv: list[str]) -> None:
  launching.begin(argv)
  left = ' Jobs stay in the queue of SLURM: scancel ends them.' if _EXECUTOR.value == 'slurm' else ''
  with launching.explained(f'Interrupted. The same command continues with what is missing.{left}'):
    try:
      _sweep()
    except errors.SweepError as error:
      if launching.TRACEBACK.value:
        raise
      sys.exit(f'error: {error}')
