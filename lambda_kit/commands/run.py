"""Trains an agent on a task, both configured by gin files.

  lambda-kit run --list                                        # All tasks, sizes, agents and parts.
  lambda-kit run --task=pointgoal1
  lambda-kit run --task=pointgoal1 --size=quick --parts=greedy,posterior_ensemble --seed=3
  lambda-kit run --gin_file=gin/sg6_pointgoal1.gin --gin_file=gin/sizes/quick.gin
  lambda-kit run --task=grid --gin_bindings="ENVIRONMENT_STEPS = 5000"
  lambda-kit run --workdir=runs/grid-20260101-120000           # Resumes this run.
  lambda-kit run --workdir=runs/grid-20260101-120000 --restart # Moves it aside, and starts it anew.

The run writes to its workdir: run.json (what the run is, and whether it is finished), config.gin (all bindings),
operative_config.gin (all values used), logs (JSON lines and TensorBoard), evaluations as a table, a learning curve and
a video, the replay, and checkpoints. A run that was stopped resumes with its --workdir, to the bit as if it had never
been stopped.
"""

from collections.abc import Sequence
import datetime
import pathlib
import tempfile

from absl import flags
from absl import logging

from lambda_kit import resources
from lambda_kit.analysis import run_record
from lambda_kit.commands import launching
from lambda_kit.commands import list as list_lib
from lambda_kit.config import axes
from lambda_kit.config import configuration
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training import hosts
from lambda_kit.training import rehearsal
from lambda_kit.training import train as train_lib
from lambda_kit.training import workdir as workdir_lib

_ROOT = resources.root()

flags.adopt_module_key_flags(launching)  # So that --help lists --gin_file and the others.

_TASK = flags.DEFINE_string('task', None, 'The task: a name from --list, such as pointgoal1, or a gin file.')
_SIZE = flags.DEFINE_string(
  'size', None, "Networks, data and schedule: a name from --list, such as quick. Default: the task's size."
)
_AGENT = flags.DEFINE_string('agent', None, "The agent: a name from --list, such as ppo. Default: the task's agent.")
_PARTS = flags.DEFINE_list(
  'parts', [], 'Parts of the agent, and ways to run: names from --list, such as greedy,bfloat16.'
)
_LIST = flags.DEFINE_bool('list', False, 'Print all tasks, sizes, agents and parts, and exit.')
_SEED = flags.DEFINE_integer('seed', None, "The run's seed. Default: the one in the gin files, or 0.", lower_bound=0)
_WORKDIR = flags.DEFINE_string(
  'workdir',
  None,
  'The folder for everything that the run writes. If it holds a run, that run is resumed. Default: a new folder in '
  'runs/, named after the gin files.',
)
_ALLOW_CONFIG_CHANGE = flags.DEFINE_bool(
  'allow_config_change', False, 'Resume a run even if its configuration has changed.'
)
_RESTART = flags.DEFINE_bool(
  'restart',
  False,
  'Start a new run in a --workdir that holds one already. What is there is moved to <workdir>.before-1, or the next '
  'free number; nothing is deleted.',
)
_DRY_RUN = flags.DEFINE_bool(
  'dry_run',
  False,
  'Print the configuration; act, learn and evaluate once with made-up data; print the memory and time that the run '
  'will need; and exit. Writes no files.',
)
_HOSTS = flags.DEFINE_string(
  'hosts',
  None,
  'Learn on the devices of several hosts. Start this command on each, with --hosts=auto under SLURM, or with '
  '--hosts=<address>:<port>,<number of processes>,<index of this process>. See docs/scale.md.',
)


def _named_files() -> tuple[str | None, list[str]]:
  """The task and the other gin files that the flags name."""
  library = axes.Library([_ROOT])
  files = list(launching.GIN_FILE.value)
  for names, where in (
    ([_SIZE.value], [axes.Axis.SIZE]),
    ([_AGENT.value], [axes.Axis.AGENT]),
    (_PARTS.value, [axes.Axis.PART, axes.Axis.RUN]),
  ):
    files += [library.find(name, where) for name in names if name]
  if _TASK.value:
    return library.find(_TASK.value, [axes.Axis.TASK]), files
  saved = pathlib.Path(_WORKDIR.value or '') / workdir_lib.CONFIG
  if not files and _WORKDIR.value and saved.is_file():
    if not _ALLOW_CONFIG_CHANGE.value and not _RESTART.value:
      workdir_lib.check_config(saved.parent, workdir_lib.read_record(saved.parent))
    return str(saved), files
  if not files and (saved.parent / run_record.NAME).exists():
    raise axes.ConfigurationError(f'{saved} is missing: name the experiment, such as with --task=pointgoal1.')
  if not files:
    raise axes.ConfigurationError('No experiment was named: give --task=pointgoal1 or another of --list.')
  return None, files


def _default_workdir(names: Sequence[str]) -> pathlib.Path:
  now = datetime.datetime.now().strftime('%Y%m%d-%H%M%S')
  return pathlib.Path('runs') / f'{"-".join(pathlib.Path(name).stem for name in names)}-{now}'


def _prepare_workdir(folder: pathlib.Path) -> None:
  """Refuses a folder that can't be written to, before anything is built."""
  try:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
      pass
  except OSError as error:
    raise OSError(f'Cannot write to the workdir {folder}: {error.strerror}. Choose another with --workdir.') from error


def _configure(task: str | None, gin_files: Sequence[str]) -> None:
  """Sets gin's configuration by the flags."""
  bindings = list(launching.GIN_BINDINGS.value)
  if _SEED.value is not None:
    bindings.append(f'experiment.seed = {_SEED.value}')
  configuration.parse(gin_files, bindings, search_paths=[str(_ROOT)], task=task)


def main(argv: list[str]) -> None:
  launching.begin(argv)
  if _LIST.value:
    print(list_lib.table())
    return
  with launching.explained('Interrupted.'):
    task, gin_files = _named_files()
  workdir = (
    pathlib.Path(_WORKDIR.value) if _WORKDIR.value else _default_workdir([task, *gin_files] if task else gin_files)
  )
  with launching.explained(f'Interrupted. To resume: the same command with --workdir={workdir}'):
    if _HOSTS.value:
      if not _WORKDIR.value:
        raise hosts.HostsError('--hosts needs a --workdir that all hosts share.')
      hosts.join(_HOSTS.value)
    _configure(task, gin_files)
    for line in configuration.unused_bindings():
      logging.info('Not in use: %s', line)
    if _DRY_RUN.value:
      print(configuration.resolved_config())
      with experiment_lib.build() as experiment:
        measured = rehearsal.rehearse(experiment)
      print(f'Dry run: everything was built, acted, learned and was evaluated.\n{measured.describe()}')
      return
    with hosts.workdir_of_process(workdir, copies=not _RESTART.value) as folder:
      is_new = not folder.exists()
      _prepare_workdir(folder)
      try:
        with experiment_lib.build() as experiment:
          if _RESTART.value and (aside := workdir_lib.move_aside(folder)):
            print(f'What was in {folder} is now in {aside}.')
          train_lib.train(experiment, folder, _ALLOW_CONFIG_CHANGE.value)
      finally:
        if is_new and folder.is_dir() and not any(folder.iterdir()):
          folder.rmdir()  # Nothing began.
