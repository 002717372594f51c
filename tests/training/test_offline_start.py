"""Runs that start from an offline dataset: without a random action, to the bit, and refused early if it is unfit."""

import json
import pathlib
import signal

import numpy as np
import pytest

import gin
from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit.agents.lambda_ import builder
from lambda_kit.config import configuration
from lambda_kit.environments import spec as spec_lib
from lambda_kit.replay import episodes as episodes_lib
from lambda_kit.replay import offline
from lambda_kit.training import experiment as experiment_lib
from tests.fakes import tiny
from tests.faults import runs

_ROOT = str(pathlib.Path(__file__).resolve().parents[2])
_FLAGS = tuple(flag for flag in runs.LAMBDA if 'PeriodicUpdates.first' not in flag and 'max_bytes' not in flag)
_MISSING = 'There is no dataset folder .*nowhere'


def _save(folder, **changes):
  """Three made-up episodes of the grid."""
  header = episodes_lib.Header.of(spec_lib.make_spec(tiny.make_environment(**changes), 1.0))
  rng = np.random.default_rng(0)
  draw = lambda field: rng.uniform(0.0, 1.0, (21, *field.shape)).astype(field.dtype)
  fields = [{name: draw(field) for name, field in header.fields.items()} for _ in range(3)]
  offline.save_dataset(folder, [episodes_lib.Episode(**episodes_lib.unflatten(arrays)) for arrays in fields], header)


def _bindings(folder):
  given = [flag.removeprefix('--gin_bindings=') for flag in _FLAGS if flag.startswith('--gin_bindings=')]
  return [*given, f"OFFLINE_DATA = '{folder}'"]


@pytest.fixture(autouse=True)
def _clear():
  yield
  gin.clear_config()


def _build(folder):
  configuration.parse(['gin/tasks/grid.gin', 'gin/parts/start_offline.gin'], _bindings(folder), [_ROOT])
  return experiment_lib.build()


def test_no_random_action_is_taken(tmp_path):
  _save(tmp_path)
  with _build(tmp_path) as experiment:
    learned_from = []
    experiment.loop.connect(_Rows(learned_from))
    assert experiment.replay.num_episodes == 3
    experiment.loop.advance()
    (belief,) = experiment.learner.get_variables(['belief'])
    assert learned_from[0] == ('learner', 0, 3) and belief['updates'] == 3  # The next round is due at step 50.
    assert experiment.replay.num_episodes == 4


class _Rows:
  """Keeps kinds, steps and updates of rows."""

  def __init__(self, rows):
    self._rows = rows

  def write(self, kind, row):
    self._rows.append((kind, row['environment_steps'], row.get('updates')))


@pytest.mark.parametrize(
  'changes, message', [(None, _MISSING), (dict(num_constraints=2), 'episode-000000.npz belongs to another task: ')]
)
def test_an_unfit_dataset_is_refused_in_a_sentence_before_anything_is_compiled(tmp_path, monkeypatch, changes, message):
  if changes is not None:
    _save(tmp_path / 'nowhere', **changes)
  monkeypatch.setattr(builder.LambdaBuilder, 'make_learner', lambda *unused: pytest.fail('A learner was made.'))
  with pytest.raises(Exception, match=message) as caught:
    _build(tmp_path / 'nowhere')
  assert len(configuration.format_error(caught.value).splitlines()) == 1


@pytest.mark.slow
def test_a_stopped_run_resumes_to_the_bit(tmp_path):
  _save(tmp_path / 'data')
  arguments = (*_FLAGS, '--parts=start_offline', f"--gin_bindings=OFFLINE_DATA = '{tmp_path / 'data'}'")
  undisturbed, stopped = tmp_path / 'undisturbed', tmp_path / 'stopped'
  runs.finish(undisturbed, arguments)
  # First before there is a checkpoint, after the updates of step 0.
  reached = lambda name, count: (
    lambda: (stopped / name).exists() and (stopped / name).read_bytes().count(b'\n') >= count
  )
  assert runs.interrupt(stopped, arguments, signal.SIGKILL, reached('learner.jsonl', 1)) == -9
  assert runs.interrupt(stopped, arguments, signal.SIGTERM, reached('episode.jsonl', 14)) == 75
  runs.finish(stopped, arguments)
  runs.assert_same_outcome(stopped, undisturbed)
  steps = [json.loads(line)['environment_steps'] for line in (stopped / 'learner.jsonl').read_text().splitlines()]
  assert steps[:2] == [0, 50] and steps == sorted(set(steps))
