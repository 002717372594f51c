"""Small runs in processes of their own, to be hurt."""

from collections.abc import Callable, Sequence
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

from lambda_kit.replay import episodes
from lambda_kit.training.checkpoints import store as store_lib

ROOT = pathlib.Path(__file__).resolve().parents[2]

_SIZES = (
  'experiment.evaluate_every = 300',
  'experiment.evaluation_episodes = 2',
  'experiment.with_video = False',
  'experiment.checkpoint_steps = 200',
  'GridCmdp.episode_length = 20',
)
RANDOM = (
  '--gin_file=gin/tasks/grid.gin',
  '--gin_file=gin/agents/random.gin',
  *(f'--gin_bindings={binding}' for binding in (*_SIZES, 'ENVIRONMENT_STEPS = 2_000')),
)
FILM = (*RANDOM, '--gin_bindings=ENVIRONMENT_STEPS = 400', '--gin_bindings=experiment.with_video = True')
LAMBDA = (
  '--gin_file=gin/tasks/grid.gin',
  *(
    f'--gin_bindings={binding}'
    for binding in (
      *_SIZES,
      'ENVIRONMENT_STEPS = 1_000',
      'WIDTH = 8',
      'PeriodicUpdates.first = 100',
      'PeriodicUpdates.initial_updates = 3',
      'PeriodicUpdates.every = 50',
      'PeriodicUpdates.updates = 2',
      'LambdaAgent.num_start_states = 16',
      'LambdaAgent.batch_size = 4',
      'LambdaAgent.num_samples = 2',
      'LambdaAgent.horizon = 3',
      'EpisodeBuffer.sequence_length = 5',
      'EpisodeBuffer.max_bytes = 12_000',
      'Swag.burn_in = 1',
      'Swag.period = 1',
      'Swag.num_models = 2',
    )
  ),
)

# Gathers episodes by LAMBDA's actor and never learns: a replay without the seconds of compiling a learner.
GATHER = (*LAMBDA, '--gin_bindings=PeriodicUpdates.first = 1_000_000')


def start(workdir: pathlib.Path, arguments: Sequence[str], **environment: str) -> subprocess.Popen:
  """Starts or continues the run of a workdir. Its output goes to files beside the workdir."""
  out = open(f'{workdir}.out', 'ab')
  return subprocess.Popen(
    [sys.executable, str(ROOT / 'launchers' / 'run.py'), *arguments, f'--workdir={workdir}'],
    cwd=ROOT,
    env=dict(os.environ, **environment),
    stdout=out,
    stderr=out,
  )


def output(workdir: pathlib.Path) -> str:
  return pathlib.Path(f'{workdir}.out').read_text('utf-8', errors='replace')


def finish(workdir: pathlib.Path, arguments: Sequence[str], **environment: str) -> None:
  process = start(workdir, arguments, **environment)
  if process.wait(timeout=600) != 0:
    raise AssertionError(output(workdir)[-3000:])


def finished_lambda(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """The workdir of a finished run of `LAMBDA`, made once for all tests and their workers. Copy it to change it."""
  folder = tmp_path_factory.getbasetemp()
  if 'PYTEST_XDIST_WORKER' in os.environ:
    folder = folder.parent
  done = folder / 'lambda.done'
  with open(folder / 'lambda.lock', 'w') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    if not done.exists():
      finish(folder / 'lambda', LAMBDA)
      done.touch()
  return folder / 'lambda'


def interrupt(
  workdir: pathlib.Path,
  arguments: Sequence[str],
  number: int,
  is_time: Callable[[], bool],
  again_after: float | None = None,
  poll_seconds: float = 0.01,
) -> int:
  """Runs until a moment comes, then sends a signal, and a second one if seconds until it are given.

  Returns:
    The exit code; 0 if the run was over before the moment came.
  """
  process = start(workdir, arguments)
  deadline = time.monotonic() + 300
  while not is_time() and process.poll() is None and time.monotonic() < deadline:
    time.sleep(poll_seconds)
  process.send_signal(number)
  if again_after is not None:
    time.sleep(again_after)
    process.send_signal(number)
  return process.wait(timeout=120)


def rows(workdir: pathlib.Path, kind: str) -> list[dict[str, Any]]:
  """The rows of a log, without what depends on the clock, and without the run's id."""
  found = []
  for line in (workdir / f'{kind}.jsonl').read_text().splitlines():
    row = json.loads(line)
    found.append({name: value for name, value in row.items() if name not in ('time', 'steps_per_second', 'seal')})
  return found


def last_state(workdir: pathlib.Path) -> tuple[int, dict[str, np.ndarray], dict[str, Any]]:
  """Step, learner's arrays and state of the newest checkpoint, without checksums of logs: rows have their time."""
  checkpoint = store_lib.CheckpointStore(workdir / 'checkpoints').newest()
  state = {name: value for name, value in checkpoint.state.items() if name != 'logs'}
  return checkpoint.step, safetensors_numpy.load_file(checkpoint.path / 'learner.safetensors'), state


def kinds(workdir: pathlib.Path) -> list[str]:
  """Of the logs that a run has written."""
  return sorted(path.stem for path in workdir.glob('*.jsonl'))


def rows_lost(workdir: pathlib.Path, reference: pathlib.Path) -> int:
  """How many rows of a reference are not in the logs of a run."""
  lost = 0
  for kind in kinds(reference):
    path = workdir / f'{kind}.jsonl'
    found = rows(workdir, kind) if path.exists() else []
    lost += sum(row not in found for row in rows(reference, kind))
  return lost


def assert_same_outcome(workdir: pathlib.Path, reference: pathlib.Path) -> None:
  """Logs, parameters, replay and everything else are equal to the bit."""
  assert kinds(workdir) == kinds(reference)
  for kind in kinds(reference):
    assert rows(workdir, kind) == rows(reference, kind), kind
  (step, arrays, state), (expected_step, expected, expected_state) = last_state(workdir), last_state(reference)
  assert step == expected_step and state == expected_state
  assert arrays.keys() == expected.keys()
  for name, array in expected.items():
    assert arrays[name].dtype == array.dtype and arrays[name].tobytes() == array.tobytes(), name
  if state['replay'] is not None:
    for number in range(*state['replay']['span']):
      name = f'replay/episode-{number:06d}.npz'
      (episode, header), (other, other_header) = (episodes.read_episode(path / name) for path in (workdir, reference))
      assert header == other_header
      for field, array in episodes.flatten(other).items():
        assert episodes.flatten(episode)[field].tobytes() == array.tobytes(), (name, field)


def log_size(workdir: pathlib.Path) -> int:
  """Bytes of the log of episodes: how far a run is, cheap enough to look at all the time."""
  try:
    return (workdir / 'episode.jsonl').stat().st_size
  except FileNotFoundError:
    return 0
