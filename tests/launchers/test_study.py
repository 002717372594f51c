"""The launcher of studies, at tiny size: each experiment has its own variants."""

import json
import pathlib
import subprocess
import sys

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_EXPERIMENTS = ('--gin_file=gin/tasks/grid.gin', '--gin_file=gin/tasks/grid_images.gin')
_BINDINGS = (
  'ENVIRONMENT_STEPS = 40',
  'GridCmdp.episode_length = 20',
  'experiment.evaluate_every = 20',
  'experiment.evaluation_episodes = 1',
  'experiment.with_video = False',
)


def _study(*flags: str) -> subprocess.CompletedProcess:
  return subprocess.run(
    [sys.executable, 'launchers/study.py', *_EXPERIMENTS, *flags],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=False,
  )


def test_each_experiment_has_its_variants(tmp_path):
  result = _study(
    '--variants=random',
    '--variants=lambda',
    '--seeds=3',
    '--fresh_episodes=2',
    f'--folder={tmp_path}',
    *(f'--gin_bindings={binding}' for binding in _BINDINGS),
  )
  assert result.returncode == 0, result.stderr
  done = json.loads((tmp_path / 'study.json').read_text())
  assert [(one['experiment'], [outcome['variant'] for outcome in one['outcomes']]) for one in done] == [
    ('grid', ['random']),
    ('grid_images', ['lambda']),
  ]
  assert {path.name for path in (tmp_path / 'config').iterdir()} == {'grid-random.gin', 'grid_images-lambda.gin'}
  assert (tmp_path / 'study.md').exists() and (tmp_path / 'study.png').exists()


def test_variants_that_belong_to_no_experiment_are_refused(tmp_path):
  result = _study(*['--variants=lambda'] * 3, f'--folder={tmp_path}')
  assert result.returncode == 1
  assert '--variants is given 3 times, for 2 experiments' in result.stdout + result.stderr
  assert not list(tmp_path.iterdir())
