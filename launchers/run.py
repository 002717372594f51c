"""Runs an experiment that gin files describe.

  python launchers/run.py --gin_file=gin/sg6_pointgoal1.gin
  python launchers/run.py --gin_file=gin/sg6_pointgoal1.gin --gin_file=gin/variants/quick.gin --seed=3
  python launchers/run.py --gin_file=gin/tiny_grid.gin --gin_bindings="run_experiment.environment_steps = 5000"

Files are layers: of two bindings of one parameter the later one counts, and flags come last. The workdir gets
config.gin (all bindings), operative_config.gin (all values used), logs as JSON lines and for TensorBoard, the
evaluations as a table, a learning curve and a video, the replay, and checkpoints. A run that was stopped goes on, to the
bit as if it had not been, by the same command with its --workdir.
"""

import datetime
import os
import pathlib
import signal
import sys

from absl import app
from absl import flags
from absl import logging
import jax

from lambda_kit import components  # pylint: disable=unused-import
from lambda_kit.agents.lambda_agent import learning
from lambda_kit.checkpoints import errors as checkpoint_errors
from lambda_kit.checkpoints import lock
from lambda_kit.environments import opengl
from lambda_kit.environments import wrappers
from lambda_kit.environments.safety_gym import loading
from lambda_kit.experiments import configuration
from lambda_kit.experiments import run
from lambda_kit.experiments import training
from lambda_kit.replay import buffer
from lambda_kit.replay import episodes

_ROOT = pathlib.Path(__file__).resolve().parents[1]

_GIN_FILE = flags.DEFINE_multi_string(
    'gin_file', [], 'A gin file. Give the flag several times to layer files: later ones override earlier ones.')
_GIN_BINDINGS = flags.DEFINE_multi_string(
    'gin_bindings', [], 'A binding such as "make_environment.action_repeat = 4". Overrides all files; may be repeated.')
_SEED = flags.DEFINE_integer('seed', None, 'Seed of the run. Default: what the gin files say, or 0.', lower_bound=0)
_WORKDIR = flags.DEFINE_string(
    'workdir', None, 'Folder for all that the run writes; if it holds a run, that run goes on. Default: a new folder in '
    'runs/, named after the gin files.')
_ALLOW_CONFIG_CHANGE = flags.DEFINE_bool(
    'allow_config_change', False, 'Let a run go on with another configuration than it began with.')
_DRY_RUN = flags.DEFINE_bool(
    'dry_run', False, 'Print the resolved config, build everything, take one step, and stop. Writes nothing.')
_TRACEBACK = flags.DEFINE_bool('traceback', False, 'Show the stack trace of an error, not only its message.')

# Errors whose message tells a user what to do.
_EXPLAINED = (configuration.ConfigurationError, run.SetupError, opengl.OpenGLError, loading.SimulatorMissing,
              wrappers.NonFiniteError, episodes.EpisodeFileError, buffer.NotEnoughDataError,
              learning.TrainingDiverged, checkpoint_errors.CheckpointError, lock.WorkdirLockedError,
              training.ConfigChangedError, OSError)


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


def _end_like_ctrl_c(signum, frame):
  del signum, frame
  raise KeyboardInterrupt


def main(argv: list[str]) -> None:
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.WARNING)  # Absl's own default in a program is INFO.
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}. Gin files are given with --gin_file=...')
  if not _GIN_FILE.value:
    raise app.UsageError('No experiment was named: give --gin_file=gin/sg6_pointgoal1.gin or another file of gin/.')
  signal.signal(signal.SIGTERM, _end_like_ctrl_c)
  if jax.config.jax_compilation_cache_dir is None:  # Neither a flag nor the environment says otherwise.
    jax.config.update('jax_compilation_cache_dir', str(_ROOT / '.cache' / 'jax'))
  workdir = None
  try:
    bindings = list(_GIN_BINDINGS.value)
    if _SEED.value is not None:
      bindings.append(f'run_experiment.seed = {_SEED.value}')
    configuration.parse(_GIN_FILE.value, bindings, search_paths=[str(_ROOT)])
    for line in configuration.superseded_bindings():
      logging.info('Superseded: %s', line)
    if _DRY_RUN.value:
      print(configuration.resolved_config())
      run.run_experiment(job=run.take_one_step)
      print('Dry run: everything was built and one step was taken.')
      return
    workdir = pathlib.Path(_WORKDIR.value) if _WORKDIR.value else _default_workdir(_GIN_FILE.value)
    _prepare_workdir(workdir)
    run.run_experiment(job=training.Training(workdir, _ALLOW_CONFIG_CHANGE.value))
  except KeyboardInterrupt:
    print(f'Interrupted. To go on: the same command with --workdir={workdir}', file=sys.stderr)
    logging.flush()
    os._exit(130)  # pylint: disable=protected-access
  except _EXPLAINED as error:
    if workdir is not None and workdir.is_dir() and not any(workdir.iterdir()):
      workdir.rmdir()  # Nothing began.
    if _TRACEBACK.value:
      raise
    sys.exit(f'error: {configuration.format_error(error)}')


if __name__ == '__main__':
  app.run(main)
