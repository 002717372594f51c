"""The real entry point with the real runs of the smallest kind: the random agent on the built-in CMDP."""

import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

import pytest

from lambda_kit.sweeps import workdirs
from lambda_kit.training.checkpoints import lock

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_TINY = (
  '--gin_file=gin/tasks/grid.gin',
  '--variants=random',
  '--gin_bindings=ENVIRONMENT_STEPS = 500',
  '--gin_bindings=experiment.evaluation_episodes = 1',
  '--gin_bindings=experiment.with_video = False',
  '--run_memory=1',
  '--memory=4',
)


def _command(*arguments):
  return [sys.executable, str(_ROOT / 'launchers' / 'sweep.py'), *arguments]


def _sweep(*arguments, **environment):
  return subprocess.run(
    _command(*arguments),
    cwd=_ROOT,
    env=dict(os.environ, **environment),
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  folder = tmp_path_factory.mktemp('sweep')
  done = _sweep(*_TINY, '--seeds=2', f'--folder={folder}')
  assert done.returncode == 0, done.stderr
  return folder, done


def test_a_sweep_leaves_finished_runs_and_their_report(finished):
  folder, done = finished
  assert all(workdirs.is_finished(folder / 'grid' / 'random' / f'seed{seed}') for seed in (0, 1))
  assert 'grid/random/seed1: done' in done.stdout and '2 runs' in done.stdout
  scores = json.loads((folder / 'report' / 'scores.json').read_text())
  assert 'Random' in json.dumps(scores) and 'of which 2 have a score' in done.stdout
  assert (folder / 'report' / 'index.html').exists()
  means = (folder / 'report' / 'tables' / 'runs.md').read_text().splitlines()
  row = next(i for i, line in enumerate(means) if line.startswith('| GridCmdp | Random | 2 |'))
  assert means[row + 1] == '| GridCmdp | optimum | — | 22.83 | 5.0 | — | — | — | — |'


def test_the_same_command_repeats_nothing_and_a_larger_one_only_what_is_missing(finished):
  folder, _ = finished
  log = folder / 'grid' / 'random' / 'seed0' / 'episode.jsonl'
  before = log.stat().st_mtime_ns, (folder / 'grid' / 'random' / 'seed0.out').read_text()
  done = _sweep(*_TINY, '--seeds=3', f'--folder={folder}')
  assert done.returncode == 0 and '3 runs, 2 of them already done' in done.stdout, done.stderr
  assert (log.stat().st_mtime_ns, (folder / 'grid' / 'random' / 'seed0.out').read_text()) == before
  assert workdirs.is_finished(folder / 'grid' / 'random' / 'seed2')


def test_a_dry_run_prints_commands_for_a_shell(finished):
  folder, _ = finished
  done = _sweep(*_TINY, '--seeds=5', f'--folder={folder}', '--dry_run')
  lines = done.stdout.splitlines()
  assert len(lines) == 5 and lines[0].startswith('# finished: ') and lines[1].startswith('# finished: ')
  words = shlex.split(lines[4])
  assert words[1:4] == ['-m', 'lambda_kit', 'run'] and '--gin_bindings=ENVIRONMENT_STEPS = 500' in words
  assert '--seed=4' in words and not (folder / 'grid' / 'random' / 'seed4').exists()


def test_an_index_is_one_run_of_the_grid(finished):
  folder, _ = finished
  done = _sweep(*_TINY, '--seeds=9', f'--folder={folder}', '--index=8')
  assert done.returncode == 0, done.stderr
  assert workdirs.is_finished(folder / 'grid' / 'random' / 'seed8')
  assert not (folder / 'grid' / 'random' / 'seed7').exists()
  done = _sweep(*_TINY, '--seeds=9', f'--folder={folder}', '--index=9')
  assert done.returncode != 0 and 'indices are 0 to 8, as in sbatch --array=0-8' in done.stderr


def test_another_configuration_in_the_same_folder_is_refused(finished):
  folder, _ = finished
  done = _sweep(*_TINY, '--seeds=2', f'--folder={folder}', '--gin_bindings=GridCmdp.slip = 0.2')
  assert done.returncode != 0 and '+ GridCmdp.slip = 0.2' in done.stderr and 'another --folder' in done.stderr


def test_a_second_sweep_in_the_same_folder_is_refused(tmp_path):
  with lock.WorkdirLock(tmp_path):
    done = _sweep(*_TINY, f'--folder={tmp_path}')
  assert done.returncode != 0 and 'Another sweep is running' in done.stderr


def test_an_interrupted_sweep_goes_on(tmp_path):
  arguments = (
    *_TINY,
    '--gin_bindings=ENVIRONMENT_STEPS = 10_000',
    '--gin_bindings=experiment.evaluate_every = 10_000',
    f'--folder={tmp_path}',
  )
  process = subprocess.Popen(_command(*arguments), cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
  workdir = tmp_path / 'grid' / 'random' / 'seed0'
  deadline = time.monotonic() + 120
  while not workdirs.steps_done(workdir) and time.monotonic() < deadline:
    time.sleep(0.1)
  process.send_signal(signal.SIGTERM)
  _, stderr = process.communicate(timeout=120)
  assert process.returncode == 75 and 'The same command continues' in stderr and 'Traceback' not in stderr
  assert 'Interrupted. To resume' in pathlib.Path(f'{workdir}.out').read_text()  # The run was asked to end, and saved.
  done = _sweep(*arguments)
  assert done.returncode == 0 and 'Resuming from step' in pathlib.Path(f'{workdir}.out').read_text(), done.stderr
  assert workdirs.is_finished(workdir)


def test_a_run_that_fails_at_once_on_every_seed_stops_the_sweep(tmp_path):
  # The configuration is valid. What is wrong shows when the parts are built.
  done = _sweep(*_TINY, '--seeds=2', '--gin_bindings=COST_LIMIT = (1.0, 2.0)', f'--folder={tmp_path}')
  assert done.returncode != 0 and 'random on grid fails at once with every seed' in done.stderr
  assert 'seed 0, 1: error: ' in done.stderr and 'limit' in done.stderr and 'Traceback' not in done.stderr
  assert done.stdout.count(': running') == 2  # No seed was tried twice.
  assert [line.split() for line in done.stdout.splitlines() if line.strip()][-1] == ['2', 'runs', '0', '0', '0', '2']


@pytest.mark.parametrize(
  'arguments,message',
  [
    ((), 'No experiment was named'),
    ((*_TINY, '--seeds=0'), 'The grid has no runs'),
    (('--tasks=pointgaol1',), 'Did you mean pointgoal1'),
    ((*_TINY, '--gin_bindings=GridCmdp.slipp = 0.1'), 'Did you mean slip'),
    ((*_TINY, '--run_cores=1000'), 'Lower --run_cores'),
    ((*_TINY, '--folder=/proc/nowhere'), 'Choose another with --folder'),
    ((*_TINY, '--slurm=gpu'), 'Write --slurm=partition=gpu'),
    ((*_TINY, '--executor=slurm'), 'error: '),  # Not installed, or no SLURM here.
    ((*_TINY, '--executor=ray', '--ray_address=127.0.0.1:1'), 'error: '),  # Not installed, or no cluster there.
  ],
)
def test_bad_input_is_one_clear_error(arguments, message, tmp_path):
  done = _sweep(f'--folder={tmp_path}', *arguments, PATH=os.path.dirname(sys.executable))
  assert done.returncode != 0 and message in done.stderr and 'Traceback' not in done.stderr
  assert not list(tmp_path.rglob('*.out'))
