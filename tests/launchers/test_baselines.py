"""The baselines through the real entry point, at tiny size."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.faults import runs

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# Proximal and by a trust region; the others share all but a class with one of these.
_METHODS = (
  'ppo_lagrangian',
  'cpo',
  pytest.param('ppo', marks=pytest.mark.slow),
  pytest.param('trpo_lagrangian', marks=pytest.mark.slow),
)
_BINDINGS = (
  'ENVIRONMENT_STEPS = 600',
  'GridCmdp.episode_length = 20',
  'GaussianPolicy.hidden_sizes = (8,)',
  'ObservationCritic.hidden_sizes = (8,)',
  'OnPolicyAgent.critic_iterations = 2',
  'RolloutLoop.steps_per_epoch = 40',
  'RolloutLoop.num_environments = 2',
  'experiment.evaluate_every = 300',
  'experiment.evaluation_episodes = 1',
  'experiment.with_video = False',
  'experiment.checkpoint_steps = 100',
)


def _arguments(method, *bindings):
  return (
    '--gin_file=gin/tasks/grid.gin',
    f'--gin_file=gin/agents/{method}.gin',
    *(f'--gin_bindings={binding}' for binding in (*_BINDINGS, *bindings)),
  )


def _run(*arguments):
  return subprocess.run(
    [sys.executable, str(_ROOT / 'launchers' / 'run.py'), *arguments],
    cwd=_ROOT,
    env=os.environ,
    capture_output=True,
    text=True,
    timeout=600,
    check=False,
  )


@pytest.mark.parametrize('method', _METHODS)
def test_baselines_learn_through_the_launcher(method, tmp_path):
  done = _run(*_arguments(method), f'--workdir={tmp_path}')
  assert done.returncode == 0, done.stderr
  rows = [json.loads(line) for line in (tmp_path / 'learner.jsonl').read_text().splitlines()]
  assert [row['updates'] for row in rows] == list(range(1, 16))
  assert all(value is not None for row in rows for value in row.values())  # Numbers that are not finite are null.
  episodes = (tmp_path / 'episode.jsonl').read_text().splitlines()
  assert len(episodes) == 600 // 20 and len((tmp_path / 'evaluation.jsonl').read_text().splitlines()) == 2


@pytest.mark.slow
def test_a_run_with_two_workers_resumes_to_the_bit(tmp_path):
  arguments = _arguments(
    'ppo_lagrangian',
    'RolloutLoop.steps_per_epoch = 120',
    'RolloutLoop.num_environments = 4',
    'RolloutLoop.num_processes = 2',
  )
  reference, workdir = tmp_path / 'reference', tmp_path / 'run'
  runs.finish(reference, arguments)
  path = workdir / 'episode.jsonl'
  reached = lambda episodes: lambda: path.exists() and path.read_bytes().count(b'\n') >= episodes
  assert runs.interrupt(workdir, arguments, signal.SIGTERM, reached(5)) == 75, runs.output(workdir)
  assert runs.interrupt(workdir, arguments, signal.SIGKILL, reached(15)) in (-9, 0), runs.output(workdir)
  runs.finish(workdir, arguments)
  assert 'Resuming from step' in runs.output(workdir)
  runs.assert_same_outcome(workdir, reference)


@pytest.mark.parametrize(
  'method, binding, message',
  [
    ('ppo', 'COST_LIMIT = -1.0', 'a limit must not be negative'),
    ('cpo', 'GridCmdp.num_constraints = 2', 'Cpo solves for one constraint'),
    ('ppo', 'RolloutLoop.num_processes = 1_000', 'between 1 and'),
    ('ppo', 'experiment.schedule = @PeriodicUpdates()', 'RolloutLoop takes one update for each epoch'),
    ('ppo', 'RolloutLoop.steps_per_epoch = 10', 'No episode ended within 5 agent steps'),
  ],
)
def test_bad_input_is_one_clear_message(method, binding, message, tmp_path):
  done = _run(*_arguments(method, binding), f'--workdir={tmp_path / "run"}')
  assert done.returncode != 0 and message in done.stderr and 'Traceback' not in done.stderr, done.stderr
