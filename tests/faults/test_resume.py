"""A run that was stopped and goes on equals one that never stopped, to the bit."""

import signal

import pytest

from tests.faults import runs


@pytest.fixture(scope='module')
def reference(tmp_path_factory):
  return runs.finished_lambda(tmp_path_factory)


def _reached(workdir, episodes):
  path = workdir / 'episode.jsonl'
  return lambda: path.exists() and path.read_bytes().count(b'\n') >= episodes


# In the random phase by Ctrl-C, while learning by SIGTERM, and without any warning.
_STOPS = ((signal.SIGINT, 3, 130), (signal.SIGTERM, 14, 75), (signal.SIGKILL, 27, -9))


@pytest.mark.parametrize('stops', [_STOPS[1:2], pytest.param(_STOPS, marks=pytest.mark.slow)], ids=len)
def test_lambda_resumes_to_the_bit(reference, stops, tmp_path):
  workdir = tmp_path / 'run'
  for number, episodes, code in stops:
    assert runs.interrupt(workdir, runs.LAMBDA, number, _reached(workdir, episodes)) == code, runs.output(workdir)
  runs.finish(workdir, runs.LAMBDA)
  assert runs.output(workdir).count('Resuming from step') == len(stops)
  runs.assert_same_outcome(workdir, reference)
  assert runs.kinds(reference) == ['episode', 'evaluation', 'learner']


def test_a_second_process_is_refused(tmp_path):
  workdir = tmp_path / 'run'
  arguments = (*runs.RANDOM, '--gin_bindings=ENVIRONMENT_STEPS = 100_000_000')
  first = runs.start(workdir, arguments)
  try:
    while not _reached(workdir, 1)() and first.poll() is None:
      pass
    second = runs.start(workdir, arguments)
    assert second.wait(timeout=120) != 0
    assert f'process {first.pid}' in runs.output(workdir)
    assert first.poll() is None
  finally:
    first.kill()
    first.wait()
