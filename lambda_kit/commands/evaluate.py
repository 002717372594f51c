"""Evaluates a checkpoint of a run, records videos of it, and exports its policy.

  lambda-kit evaluate --workdir=runs/grid-20260101-120000
  lambda-kit evaluate --workdir=X --which=best --episodes=90 --videos=3
  lambda-kit evaluate --workdir=X --step=100000 --export=exported
  lambda-kit evaluate --workdir=X --calibrate=20         # How good are the models' forecasts of costs?
  lambda-kit evaluate --workdir=X --trust                # Imports the modules that the run's config.gin imports.

The configuration is the run's own config.gin. If the checkpoint holds the score of an evaluation, this evaluation is
repeated, and the command says whether the result is identical. Results are written to X/evaluation/. The run may still
be in progress. The exported policy acts without gin: `lambda_kit.load_policy('exported')`. It carries the certificate
that --calibrate, now or earlier, gave its checkpoint: X/evaluation/calibration.json.
"""

import pathlib

from absl import flags

from lambda_kit import resources
from lambda_kit.analysis import run_record
from lambda_kit.commands import launching
from lambda_kit.config import configuration
from lambda_kit.training import checkpoint_evaluation
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training import workdir as workdir_lib

_ROOT = resources.root()

flags.adopt_module_key_flags(launching)

_WORKDIR = flags.DEFINE_string('workdir', None, "The run's folder.", required=True)
_WHICH = flags.DEFINE_enum(
  'which',
  checkpoint_evaluation.NEWEST,
  [checkpoint_evaluation.NEWEST, checkpoint_evaluation.BEST],
  'Which checkpoint: the newest, or the best safe one.',
)
_STEP = flags.DEFINE_integer('step', None, 'Environment steps of the checkpoint, instead of --which.', lower_bound=0)
_EPISODES = flags.DEFINE_integer('episodes', 0, 'How many episodes to run beyond the evaluation.', lower_bound=0)
_VIDEOS = flags.DEFINE_integer(
  'videos',
  0,
  'How many episodes to film. For the first, there is also a video of what the model predicts.',
  lower_bound=0,
)
_CALIBRATE = flags.DEFINE_integer(
  'calibrate',
  0,
  "In how many new episodes to compare the models' forecasts of costs, and bounds on them, with the costs that come.",
  lower_bound=0,
)
_TRUST = flags.DEFINE_bool(
  'trust', False, 'Import the modules that gin files name: runs their code. Only for runs of people whom you trust.'
)
_EXPORT = flags.DEFINE_string('export', None, 'Folder to export the policy to.')


def main(argv: list[str]) -> None:
  launching.begin(argv)
  workdir = pathlib.Path(_WORKDIR.value)
  with launching.explained('Interrupted.'):
    config = workdir / workdir_lib.CONFIG
    if not config.is_file():
      raise FileNotFoundError(f'{workdir} holds no run: it has no config.gin. Name the folder of one with --workdir.')
    if (workdir / run_record.NAME).exists():  # The first runs had none.
      workdir_lib.check_config(workdir, workdir_lib.read_record(workdir))
    configuration.parse(
      [str(config), *launching.GIN_FILE.value],
      launching.GIN_BINDINGS.value,
      search_paths=[str(_ROOT)],
      with_imports=_TRUST.value,
    )
    with experiment_lib.build() as experiment:
      checkpoint_evaluation.evaluate(
        experiment,
        workdir,
        which=_WHICH.value,
        step=_STEP.value,
        more_episodes=_EPISODES.value,
        num_videos=_VIDEOS.value,
        export_to=_EXPORT.value,
        num_calibrations=_CALIBRATE.value,
      )
