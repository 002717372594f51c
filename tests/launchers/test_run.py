"""The real entry point, in a process of its own, at tiny size."""

import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from PIL import Image
import pytest
from tensorboard.backend.event_processing import event_accumulator

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# The launcher's own work, with an agent that costs nothing.
_TINY = (
  '--gin_file=gin/tasks/grid.gin',
  '--gin_file=gin/agents/random.gin',
  '--gin_bindings=ENVIRONMENT_STEPS = 1_500',
  '--gin_bindings=experiment.evaluate_every = 500',
  '--gin_bindings=experiment.evaluation_episodes = 2',
)


def _command(*arguments):
  return [sys.executable, str(_ROOT / 'launchers' / 'run.py'), *arguments]


def _run(*arguments, **environment):
  return subprocess.run(
    _command(*arguments),
    cwd=_ROOT,
    env=dict(os.environ, **environment),
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )


def _rows(path):
  return [json.loads(line) for line in path.read_text().splitlines()]


def _images(workdir):
  """The last picture of each tag in TensorBoard."""
  events = event_accumulator.EventAccumulator(str(workdir / 'tensorboard')).Reload()
  return {tag: events.Images(tag)[-1] for tag in events.Tags()['images']}


@pytest.fixture(scope='module')
def tiny(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('tiny')
  done = _run(*_TINY, '--seed=7', f'--workdir={workdir}')
  assert done.returncode == 0, done.stderr
  return workdir, done


def test_a_run_leaves_everything(tiny):
  workdir, done = tiny
  assert 'cost return' in done.stdout and str(workdir) in done.stdout
  episodes, evaluations = _rows(workdir / 'episode.jsonl'), _rows(workdir / 'evaluation.jsonl')
  assert [row['environment_steps'] for row in episodes] == list(range(100, 1600, 100))
  assert [row['environment_steps'] for row in evaluations] == [500, 1000, 1500]
  assert all(len(row['episode_returns']) == 2 for row in evaluations)
  # Cost regret is per environment step: 1,500 of them.
  total = sum(row['cost_return'][0] for row in episodes)
  assert evaluations[-1]['cost_regret'][0] == pytest.approx(total / 1500)
  assert (workdir / 'video.mp4').stat().st_size > 1000
  assert (workdir / 'learning_curve.png').read_bytes().startswith(b'\x89PNG')
  images = _images(workdir)
  assert images['evaluation/learning_curve'].encoded_image_string == (workdir / 'learning_curve.png').read_bytes()
  with Image.open(io.BytesIO(images['evaluation/video'].encoded_image_string)) as image:
    assert image.format == 'GIF' and image.n_frames > 20 and image.size == (128, 128)
  assert all(image.step == 1500 for image in images.values()) and len(images) == 2  # A random agent predicts nothing.
  assert 'experiment.seed = 7' in (workdir / 'config.gin').read_text()
  assert 'GridCmdp.slip = 0.05' in (workdir / 'operative_config.gin').read_text()  # A default.


def test_the_saved_config_runs_again_with_the_same_result(tiny, tmp_path):
  workdir, _ = tiny
  done = _run(
    f'--gin_file={workdir / "config.gin"}', f'--workdir={tmp_path}', '--gin_bindings=experiment.with_video = False'
  )
  assert done.returncode == 0, done.stderr
  for kind in ('episode', 'evaluation'):
    ours, theirs = _rows(tmp_path / f'{kind}.jsonl'), _rows(workdir / f'{kind}.jsonl')
    for row in (*ours, *theirs):
      row.pop('time')
      row.pop('seal')
      row.pop('steps_per_second', None)
    assert ours == theirs


def test_a_run_does_not_go_on_with_another_configuration(tiny, tmp_path):
  workdir = tmp_path / 'copy'
  shutil.copytree(tiny[0], workdir)
  change = '--gin_bindings=GridCmdp.slip = 0.2'
  done = _run(*_TINY, '--seed=7', change, f'--workdir={workdir}')
  assert done.returncode != 0 and '+ GridCmdp.slip = 0.2' in done.stderr and 'seed' not in done.stderr
  assert 'slip' not in (workdir / 'config.gin').read_text()
  done = _run(*_TINY, '--seed=7', change, f'--workdir={workdir}', '--allow_config_change')
  assert done.returncode == 0 and 'Resuming from step 1,500' in done.stdout, done.stderr
  assert 'slip' in (workdir / 'config.gin').read_text() and 'slip' not in (workdir / 'config.0.gin').read_text()


def test_a_workdir_alone_goes_on_with_what_it_holds(tiny, tmp_path):
  workdir = tmp_path / 'a copy'
  shutil.copytree(tiny[0], workdir)
  config = (workdir / 'config.gin').read_text()
  done = _run(f'--workdir={workdir}')
  assert done.returncode == 0 and 'Resuming from step 1,500' in done.stdout, done.stderr
  assert (workdir / 'config.gin').read_text() == config
  done = _run(f'--workdir={workdir}', '--gin_bindings=ENVIRONMENT_STEPS = 2_000')
  assert done.returncode != 0 and '+ ENVIRONMENT_STEPS = 2000' in done.stderr and '--allow_config_change' in done.stderr
  done = _run(f'--workdir={workdir}', '--gin_bindings=ENVIRONMENT_STEPS = 2_000', '--allow_config_change')
  assert done.returncode == 0 and _rows(workdir / 'evaluation.jsonl')[-1]['environment_steps'] == 2000, done.stderr


def test_a_restart_moves_the_old_run_aside(tiny, tmp_path):
  workdir, aside = tmp_path / 'copy', tmp_path / 'copy.before-1'
  shutil.copytree(tiny[0], workdir)
  shutil.rmtree(workdir / 'checkpoints')
  done = _run(f'--workdir={workdir}')
  assert done.returncode != 0 and 'Traceback' not in done.stderr
  assert f'are gone from {workdir}/checkpoints' in done.stderr and '--restart, which moves all' in done.stderr
  bindings = ('experiment.with_video = False', 'ENVIRONMENT_STEPS = 500')
  done = _run(f'--workdir={workdir}', '--restart', *(f'--gin_bindings={binding}' for binding in bindings))
  assert done.returncode == 0 and f'What was in {workdir} is now in {aside}.' in done.stdout, done.stderr
  assert len(_rows(workdir / 'episode.jsonl')) == 5
  assert _rows(aside / 'episode.jsonl') == _rows(tiny[0] / 'episode.jsonl') and (aside / 'video.mp4').exists()


def test_names_are_short_for_files():
  done = _run('--task=grid', '--agent=random', '--parts=isolated', '--dry_run')
  files = _run(
    '--gin_file=gin/run/isolated.gin', '--gin_file=gin/agents/random.gin', '--gin_file=gin/tasks/grid.gin', '--dry_run'
  )
  assert done.returncode == 0 and 'experiment.environment_factory = @IsolatedEnvironment' in done.stdout
  configuration = lambda text: text.partition('Dry run:')[0]
  assert configuration(done.stdout) == configuration(files.stdout)


def test_a_finished_run_stays_as_it_is(tiny, tmp_path):
  workdir = tmp_path / 'copy'
  shutil.copytree(tiny[0], workdir)
  done = _run(*_TINY, '--seed=7', f'--workdir={workdir}')
  assert done.returncode == 0, done.stderr
  for kind in ('episode', 'evaluation'):
    assert _rows(workdir / f'{kind}.jsonl') == _rows(tiny[0] / f'{kind}.jsonl')


_ROBOTS = ('sg6_pointgoal1', 'sg6_cargoal1', 'sg6_doggogoal1')
_OTHERS = ('sg6_pointgoal2', 'sg6_pointpush1', 'sg6_pointbutton1', 'sg6_observable_pointpush1')


@pytest.mark.parametrize(
  'layers',
  [
    *((task, 'agents/random', 'parts/observe_vector') for task in _ROBOTS),
    *(pytest.param((task, 'agents/random', 'parts/observe_vector'), marks=pytest.mark.slow) for task in _OTHERS),
    # LAMBDA at the sizes of use. `test_lambda_learns_through_the_launcher` is the smallest.
    pytest.param(('sg6_pointgoal1', 'sizes/quick'), marks=pytest.mark.slow),
    pytest.param(('tasks/grid',), marks=pytest.mark.slow),
  ],
)
def test_experiments_build_and_step(layers, tmp_path):
  done = _run(*(f'--gin_file=gin/{layer}.gin' for layer in layers), '--dry_run', f'--workdir={tmp_path / "none"}')
  assert done.returncode == 0, done.stderr
  assert 'experiment.environment_steps = %ENVIRONMENT_STEPS' in done.stdout and 'Estimated duration: ' in done.stdout
  assert not (tmp_path / 'none').exists()


def test_lambda_learns_through_the_launcher(tmp_path):
  """All of LAMBDA at the smallest size: it has to run, log finite numbers, predict, and use every binding."""
  bindings = (
    'WIDTH = 8',
    'ENVIRONMENT_STEPS = 500',
    'PeriodicUpdates.first = 200',
    'PeriodicUpdates.initial_updates = 3',
    'PeriodicUpdates.updates = 2',
    'LambdaAgent.num_start_states = 16',
    'LambdaAgent.batch_size = 4',
    'LambdaAgent.num_samples = 2',
    'LambdaAgent.horizon = 3',
    'EpisodeBuffer.sequence_length = 5',
    'Swag.burn_in = 1',
    'Swag.period = 1',
    'Swag.num_models = 2',
    'experiment.evaluation_episodes = 1',
  )
  done = _run(
    '--gin_file=gin/tasks/grid.gin', *(f'--gin_bindings={binding}' for binding in bindings), f'--workdir={tmp_path}'
  )
  assert done.returncode == 0, done.stderr
  rows = _rows(tmp_path / 'learner.jsonl')
  assert [row['updates'] for row in rows] == [3, 5, 7, 9]
  assert all(value is not None for row in rows for value in row.values())  # Numbers that are not finite are null.
  errors = json.loads((tmp_path / 'prediction.json').read_text())['errors']['vector']
  assert len(errors['model']) == len(errors['last_seen']) == 45 and all(
    0.0 < error < 100.0 for error in errors['model']
  )
  assert (tmp_path / 'prediction.png').read_bytes().startswith(b'\x89PNG')
  assert set(_images(tmp_path)) == {'evaluation/learning_curve', 'evaluation/prediction', 'evaluation/video'}


@pytest.mark.parametrize('number, code', [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_interrupts_keep_everything_written(number, code, tmp_path):
  """Ctrl-C and SIGTERM end a run with its logs whole and a figure of what was done."""
  process = subprocess.Popen(
    _command(*_TINY, '--gin_bindings=ENVIRONMENT_STEPS = 100_000_000', f'--workdir={tmp_path}'),
    cwd=_ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  deadline = time.monotonic() + 120
  while not (tmp_path / 'evaluation.jsonl').exists() and time.monotonic() < deadline:
    time.sleep(0.1)
  process.send_signal(number)
  _, stderr = process.communicate(timeout=60)
  assert process.returncode == code
  assert 'Interrupted' in stderr and 'Traceback' not in stderr
  assert _rows(tmp_path / 'episode.jsonl') and _rows(tmp_path / 'evaluation.jsonl')
  assert (tmp_path / 'learning_curve.png').exists()


@pytest.mark.parametrize(
  'arguments,message',
  [
    ((), 'No experiment was named'),
    ((*_TINY, '--gin_bindings=GridCmdp.slipp = 0.1'), 'Did you mean slip'),
    ((*_TINY, '--gin_bindings=SafetyGymnasium.image_size = 32'), 'SafetyGymnasium.image_size configures nothing'),
    (('--task=safety_gymnasium',), 'the macro TASK must be set'),
    (('--task=gird',), 'Did you mean grid'),
    (('--task=grid', '--agent=ppo', '--parts=greedy'), 'gin/parts/greedy.gin has no effect with gin/agents/ppo.gin'),
    (
      ('--task=pointgoal1', '--agent=random', "--gin_bindings=TASK = 'SafetyPointGol1-v0'"),
      'Did you mean SafetyPointGoal1-v0',
    ),
    ((*_TINY, '--gin_bindings=COST_LIMIT = (1.0, 2.0)'), 'limit'),
    (('--task=grid', '--dry_run', '--gin_bindings=LambdaAgent.num_start_states = 1_000_000'), 'is more than the'),
    (
      ('--task=grid', '--gin_bindings=LambdaAgent.horizon = 0'),
      'LambdaAgent.horizon = 0 should be a whole number, 1 or more',
    ),
    (('--gin_file=gin/tasks/grid.gin', '--gin_bindings=LambdaAgent.num_devices = 3'), 'and JAX sees 1'),
    ((*_TINY, '--workdir=/proc/nowhere'), 'Choose another with --workdir'),
  ],
)
def test_bad_input_is_one_clear_message(arguments, message, tmp_path):
  if not any('workdir' in argument for argument in arguments):
    arguments = (*arguments, f'--workdir={tmp_path / "run"}')
  done = _run(*arguments)
  assert done.returncode != 0
  assert message in done.stderr + done.stdout
  assert 'Traceback' not in done.stderr
  assert not (tmp_path / 'run').exists()


def test_a_machine_without_opengl_is_told_what_to_install(tmp_path):
  """An EGL that finds no vendor, as on a machine with libegl1 but no Mesa."""
  done = _run(
    '--gin_file=gin/sg6_pointgoal1.gin',
    '--gin_file=gin/agents/random.gin',
    '--dry_run',
    MUJOCO_GL='egl',
    __EGL_VENDOR_LIBRARY_DIRS=str(tmp_path),
  )
  assert done.returncode != 0
  assert 'apt-get install' in done.stderr and 'libgl1-mesa-dri' in done.stderr and 'Traceback' not in done.stderr
