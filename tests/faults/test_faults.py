"""Runs that are hurt come to the same end as one that is not, to the bit. `make faults` does the same at length."""

import pytest

from tests.faults import injection
from tests.faults import runs
from tests.faults import scenarios


@pytest.fixture(scope='module', name='random')
def _random(tmp_path_factory):
  """The random agent's run, and a workdir where it was killed."""
  run = scenarios.Run(tmp_path_factory.mktemp('random'), runs.RANDOM)
  return run, run.stop('stopped', 0.75)


@pytest.fixture(scope='module', name='gather')
def _gather(tmp_path_factory):
  """A run with a replay, and a workdir where it was killed."""
  run = scenarios.Run(tmp_path_factory.mktemp('gather'), runs.GATHER)
  return run, run.stop('stopped', 0.75)


def _assert_good(result, injected):
  assert result.is_good, result
  assert result.injected == injected, result


def test_kills(random):
  _assert_good(scenarios.kills(random[0], times=2, seed=1), 2)


@pytest.mark.parametrize(
  'damage, file',
  [(injection.truncate, 'state.json'), pytest.param(injection.flip_bit, 'learner.safetensors', marks=pytest.mark.slow)],
)
def test_a_damaged_checkpoint(random, damage, file):
  _assert_good(scenarios.damaged_checkpoints(*random, [file], [damage]), 1)


def test_no_good_checkpoint(random):
  _assert_good(scenarios.no_good_checkpoint(*random), 1)


def test_a_second_writer(random):
  _assert_good(scenarios.second_writer(random[0], 0.3), 1)


def test_a_full_disk(random):
  result = scenarios.full_disk(random[0], [0.3])
  if not result.injected:
    pytest.skip(result.message)
  _assert_good(result, 1)


@pytest.mark.slow
def test_an_episode_that_only_the_newest_checkpoint_needs(gather):
  _assert_good(scenarios.lost_episodes(*gather, damages=[injection.delete]), 1)


@pytest.mark.slow
def test_many_kills_while_learning(tmp_path):
  _assert_good(scenarios.kills(scenarios.Run(tmp_path, runs.LAMBDA), times=10, seed=2), 10)
