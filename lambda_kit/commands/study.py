"""Runs variants of an experiment with several seeds, and compares them with the exact optimum of the built-in CMDP.

  lambda-kit study                      # The learning proof: LAMBDA, unsafe and greedy, three seeds each.
  lambda-kit study --gin_file=gin/tasks/grid.gin --variants=lambda,posterior_ensemble \
      --gin_file=gin/tasks/grid_images.gin --variants=lambda,posterior_ensemble --seeds=0,1,2,3,4 --jobs=2 --folder=runs/cmdp

What a run delivers is its best safe checkpoint, measured on fresh episodes. With --check it ends with code 1 unless
that of LAMBDA went at least 85% of the way from random actions to the optimum within the limit, with every seed, and
the last evaluations of unsafe exceed the limit. A study that was stopped goes on by the same command.
"""

from collections.abc import Sequence
import json
import pathlib
import sys

from absl import app
from absl import flags

import gin
from lambda_kit import resources
from lambda_kit.analysis import drawing
from lambda_kit.analysis.reports import studies
from lambda_kit.config import configuration
from lambda_kit.training import study

_ROOT = resources.root()

_GIN_FILES = flags.DEFINE_multi_string(
  'gin_file', ['gin/tasks/grid.gin'], 'An experiment on the built-in CMDP; may be repeated.'
)
_VARIANTS = flags.DEFINE_multi_string(
  'variants',
  ['lambda,unsafe,greedy'],
  'Names of agents, parts and sizes, or lambda for the experiment as it is, with '
  'commas between them. Once for all experiments, or once for each.',
)
_SEEDS = flags.DEFINE_list('seeds', ['0', '1', '2'], 'Seeds of the runs.')
_GIN_BINDINGS = flags.DEFINE_multi_string('gin_bindings', [], 'A binding for all runs; may be repeated.')
_FRESH_EPISODES = flags.DEFINE_integer(
  'fresh_episodes', 100, 'On which the best safe checkpoints are measured.', lower_bound=1
)
_JOBS = flags.DEFINE_integer('jobs', 1, 'Runs at a time.', lower_bound=1)
_FOLDER = flags.DEFINE_string('folder', 'runs/study', 'Where workdirs, study.json, study.md, study.png and config/ go.')
_CHECK = flags.DEFINE_bool('check', False, 'End with code 1 if the learning proof fails.')


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}.')
  files, variants = _GIN_FILES.value, [names.split(',') for names in _VARIANTS.value]
  if len(variants) == 1:
    variants *= len(files)
  if len(variants) != len(files):
    raise app.UsageError(
      f'--variants is given {len(variants)} times, for {len(files)} experiments: once for all of '
      'them, or once for each.'
    )
  folder = pathlib.Path(_FOLDER.value).resolve()
  folder.mkdir(parents=True, exist_ok=True)
  try:
    done = [_run_study(gin_file, names, folder) for gin_file, names in zip(files, variants)]
  except (configuration.ConfigurationError, study.StudyError, OSError) as error:
    sys.exit(f'error: {error}')
  (folder / 'study.json').write_text(json.dumps([one.to_json() for one in done], indent=1) + '\n')
  (folder / 'study.md').write_text(studies.summary(done), 'utf-8')
  drawing.save(studies.study_figure(done), folder, 'study')
  for one in done:
    study.copy_configs(one, folder / one.experiment, folder / 'config')
  for one in done:
    print(f'\n{one.experiment}\n{studies.study_table(one)}')
  print(f'Everything is in {folder}')
  if _CHECK.value and not all(study.is_proof(outcome, one.reference) for one in done for outcome in one.outcomes):
    sys.exit('The learning proof failed.')


def _run_study(gin_file: str, variants: Sequence[str], folder: pathlib.Path) -> study.Study:
  configuration.parse([gin_file], _GIN_BINDINGS.value, search_paths=[str(_ROOT)])
  reference = study.grid_reference(gin.get_configurable('GridCmdp')(seed=0), gin.query_parameter('%COST_LIMIT'))
  gin.clear_config()
  name = pathlib.Path(gin_file).stem
  outcomes = study.run_study(
    gin_file,
    variants,
    [int(seed) for seed in _SEEDS.value],
    folder / name,
    _GIN_BINDINGS.value,
    _JOBS.value,
    fresh_episodes=_FRESH_EPISODES.value,
    on_outcome=lambda outcome: _tell(name, outcome),
  )
  return study.Study(name, reference, outcomes)


def _tell(name: str, outcome: study.Outcome) -> None:
  print(
    f'{name}, {outcome.variant}, seed {outcome.seed}: return {outcome.delivered_return:.2f}, cost return '
    f'{outcome.delivered_cost:.1f}',
    flush=True,
  )
