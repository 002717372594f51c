"""Runs an experiment that gin files describe.

  lambda-kit run --gin_file=gin/sg6_pointgoal1.gin
  lambda-kit run --gin_file=gin/sg6_pointgoal1.gin --gin_file=gin/variants/quick.gin --seed=3
  lambda-kit run --gin_file=gin/tiny_grid.gin --gin_bindings="run_experiment.environment_steps = 5000"

Files are layers: of two bindings of one parameter the later one counts, and flags come last. The workdir gets
config.gin (all bindings), operative_config.gin (all values used), logs as JSON lines and for TensorBoard, the
evaluations as a table, a learning curve and a video, the replay, and checkpoints. A run that was stopped goes on, to the
bit as if it had not been, by the same command with its --workdir.
"""

import datetime
import pathlib

from absl import app
from absl import flags
from absl import logging

from lambda_kit import resources
from lambda_kit.config import configuration
from lambda_kit.training import hosts
from lambda_kit.commands import launching
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training import seeds
from lambda_kit.training import train as train_lib

_ROOT = resources.root()

flags.adopt_module_key_flags(launching)  # So that --help lists --gin_file and the others.

_SEED = flags.DEFINE_integer('seed', None, 'Seed of the run. Default: what the gin files say, or 0.', lower_bound=0)
_WORKDIR = flags.DEFINE_string(
    'workdir', None, 'Folder for all that the run writes; if it holds a run, that run goes on. Default: a new folder in '
    'runs/, named after the gin files.')
_ALLOW_CONFIG_CHANGE = flags.DEFINE_bool(
    'allow_config_change', False, 'Let a run go on with another configuration than it began with.')
_DRY_RUN = flags.DEFINE_bool(
    'dry_run', False, 'Print the resolved config, build everything, take one step, and stop. Writes nothing.')
_SEEDS = flags.DEFINE_list(
    'seeds', [], 'Train several seeds at once, their updates in one program, each in a folder seed<n> of --workdir: '
    '0,1,2. For small tasks.')
_HOSTS = flags.DEFINE_string(
    'hosts', None, 'Learn on the devices of several hosts, each with this command: auto under SLURM, or '
    'address:port,processes,number of this process. See docs/scale.md.')


def _default_workdir(gin_files: list[str]) -> pathlib.Path:
  names = '-'.join(pathlib.Path(name).stem for name in gin_files) or 'run'
  now = datetime.datetime.now().strftime('%Y%m%d-%H%M%S')
  return pathlib.Path('runs') / f'{names}-{now}'


def _prepare_workdir(folder: pathlib.Path) -> None:
  """Refuses, before anything is built, a folder that can't be written to."""
  probe = folder / '.writable'
  try:
    folder.mkdir(parents=True, exist_ok=True)
    probe.write_text('')
    probe.unlink()
  except OSError as error:
    raise OSError(f'Can not write to the workdir {folder}: {error.strerror}. Choose another with --workdir.') from error


def _parse_seeds() -> list[int]:
  """What --seeds names."""
  if not _SEEDS.value:
    return []
  if not all(word.isdecimal() for word in _SEEDS.value) or len(set(_SEEDS.value)) < len(_SEEDS.value):
    raise app.UsageError(f'--seeds={",".join(_SEEDS.value)} is no list of different seeds, such as 0,1,2.')
  if _SEED.value is not None or _HOSTS.value:
    raise app.UsageError('--seeds goes neither with --seed nor with --hosts.')
  return [int(word) for word in _SEEDS.value]


def _configure(seed: int | None) -> None:
  """Makes gin's configuration that of the flags."""
  bindings = list(launching.GIN_BINDINGS.value)
  if seed is not None:
    bindings.append(f'run_experiment.seed = {seed}')
  configuration.parse(launching.GIN_FILE.value, bindings, search_paths=[str(_ROOT)])


def main(argv: list[str]) -> None:
  launching.begin(argv)
  gin_files = launching.GIN_FILE.value
  if not gin_files:
    raise app.UsageError('No experiment was named: give --gin_file=gin/sg6_pointgoal1.gin or another file of gin/.')
  workdir = pathlib.Path(_WORKDIR.value) if _WORKDIR.value else _default_workdir(gin_files)
  with launching.explained(f'Interrupted. To go on: the same command with --workdir={workdir}'):
    if _HOSTS.value:
      if not _WORKDIR.value:
        raise hosts.HostsError('--hosts needs a --workdir that all hosts see.')
      hosts.join(_HOSTS.value)
    numbers = _parse_seeds()
    _configure(numbers[0] if numbers else _SEED.value)
    for line in configuration.superseded_bindings():
      logging.info('Superseded: %s', line)
    if _DRY_RUN.value:
      print(configuration.resolved_config())
      experiment_lib.run_experiment(job=experiment_lib.take_one_step)
      print('Dry run: everything was built and one step was taken.')
      return
    with hosts.workdir_of_process(workdir) as folder:
      _prepare_workdir(folder)
      try:
        if numbers:
          seeds.train(numbers, folder, _configure, _ALLOW_CONFIG_CHANGE.value)
        else:
          experiment_lib.run_experiment(job=train_lib.Training(folder, _ALLOW_CONFIG_CHANGE.value))
      finally:
        if folder.is_dir() and not any(folder.iterdir()):
          folder.rmdir()  # Nothing began.
