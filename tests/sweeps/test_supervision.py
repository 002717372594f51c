"""Retries and early stops, with jobs whose ends are written down beforehand."""

import signal

import pytest

from lambda_kit.sweeps import interfaces
from lambda_kit.sweeps import supervision
from tests.fakes import sweeps as fakes

State, Ended = interfaces.State, interfaces.Ended
_UNFINISHED = 1000  # An attempt that ends with code 0, although its run is not finished.


class _Job(interfaces.Job):
  def __init__(self, run, outcome):
    self._run, self._outcome = run, outcome
    polls = outcome[2] if len(outcome) > 2 else 1
    self._states = [State.QUEUED] + [State.RUNNING] * polls
    self.cancelled = False

  def poll(self):
    if self._states:
      return self._states.pop(0)
    code, steps = self._outcome[:2]
    self._run.workdir.mkdir(parents=True, exist_ok=True)
    if steps:
      (self._run.workdir / 'episode.jsonl').write_text(f'{{"environment_steps": {steps}}}\n')
    if code == _UNFINISHED:
      return Ended(0)
    if code == 0:
      fakes.finish(self._run)
    if len(self._outcome) > 3:
      return Ended(code, self._outcome[3])
    return Ended(code, 'code 1' if code == 1 else '')

  def cancel(self):
    self.cancelled = True


class _Executor(interfaces.Executor):
  """Attempts at the run of a seed end as a list says: code, steps after it, how often it is seen running, reason."""

  def __init__(self, outcomes):
    self._outcomes = {seed: list(ends) for seed, ends in outcomes.items()}
    self.submitted, self.jobs = [], []

  def submit(self, runs):
    self.submitted += [run.seed for run in runs]
    jobs = [_Job(run, self._outcomes[run.seed].pop(0)) for run in runs]
    self.jobs += jobs
    return jobs

  def close(self):
    pass


def _supervise(tmp_path, outcomes, **arguments):
  executor = _Executor(outcomes)
  changes = []
  supervisor = supervision.Supervisor(fakes.make_runs(tmp_path, len(outcomes)), executor, interval=0.0, **arguments)
  error = None
  try:
    supervisor.run(lambda status: changes.append((status.run.seed, status.state)))
  except supervision.HopelessError as raised:
    error = raised
  return supervisor.statuses, executor, changes, error


def test_all_runs_are_done(tmp_path):
  statuses, executor, changes, _ = _supervise(tmp_path, {0: [(0, 10)], 1: [(0, 10)]})
  assert [status.state for status in statuses] == [State.DONE, State.DONE]
  assert executor.submitted == [0, 1]
  assert [state for seed, state in changes if seed == 0] == [State.RUNNING, State.DONE]


def test_a_run_that_only_seems_to_end_well_is_tried_again_and_fails(tmp_path):
  statuses, _, _, _ = _supervise(
    tmp_path, {0: [(_UNFINISHED, 10), (0, 20)], 1: [(_UNFINISHED, 10), (_UNFINISHED, 20)]}, max_retries=1
  )
  assert [status.state for status in statuses] == [State.DONE, State.FAILED]
  assert statuses[1].error == 'ended without an error, but there is no run.json, so nobody knows what ran'


def test_failures_are_tried_again_a_bounded_number_of_times(tmp_path):
  # Each attempt gets further, so none of them fails at once.
  statuses, executor, _, _ = _supervise(
    tmp_path, {0: [(1, 10), (1, 20), (0, 30)], 1: [(1, 10), (1, 20), (1, 30)]}, max_retries=2
  )
  assert [(status.state, status.attempts) for status in statuses] == [(State.DONE, 2), (State.FAILED, 3)]
  assert statuses[1].error == 'code 1' and statuses[0].error == ''
  assert executor.submitted.count(0) == executor.submitted.count(1) == 3


def test_no_retries_is_one_attempt(tmp_path):
  statuses, executor, _, _ = _supervise(tmp_path, {0: [(1, 10)]}, max_retries=0)
  assert statuses[0].state is State.FAILED and executor.submitted == [0]


def test_a_failure_at_once_on_every_seed_stops_the_sweep(tmp_path):
  _, executor, _, error = _supervise(tmp_path, {seed: [(1, 0)] * 3 for seed in range(3)})
  assert sorted(executor.submitted) == [0, 1, 2]  # Nobody was tried again.
  assert 'lambda on task fails at once with every seed' in str(error) and 'seed 0, 1, 2: code 1' in str(error)
  assert 'seed0.out' in str(error) and '--keep_going' in str(error)


def test_a_single_seed_has_a_second_chance(tmp_path):
  statuses, executor, _, error = _supervise(tmp_path, {0: [(1, 0), (0, 10)]})
  assert error is None and statuses[0].state is State.DONE
  _, executor, _, error = _supervise(tmp_path / 'other', {0: [(1, 0)] * 3})
  assert error is not None and executor.submitted == [0, 0]


def test_one_that_fails_at_once_waits_for_the_others(tmp_path):
  statuses, executor, changes, error = _supervise(tmp_path, {0: [(1, 0), (0, 10)], 1: [(0, 10, 50)]})
  assert error is None and all(status.state is State.DONE for status in statuses)
  assert executor.submitted == [0, 1, 0]
  # The second attempt of seed 0 began after seed 1 had shown that the configuration works.
  assert changes.index((1, State.DONE)) < len(changes) - 1 - changes[::-1].index((0, State.RUNNING))


def test_what_got_nowhere_on_its_second_attempt_is_stuck_too(tmp_path):
  """Both seeds get to step 10, and then break at the same point again and again."""
  _, executor, _, error = _supervise(tmp_path, {0: [(1, 10)] * 9, 1: [(1, 10)] * 9}, max_retries=8)
  assert error is not None and executor.submitted.count(0) == 2


def test_lost_machines_are_no_reason_to_stop(tmp_path):
  statuses, _, _, error = _supervise(tmp_path, {0: [(None, 0), (None, 0), (0, 10)], 1: [(None, 0), (0, 10)]})
  assert error is None and [status.state for status in statuses] == [State.DONE, State.DONE]


def test_jobs_under_way_are_cancelled_by_a_stop(tmp_path):
  runs = fakes.make_runs(tmp_path, 2, variants=['lambda', 'good'])
  executor = _Executor({0: [(1, 0), (0, 10, 50)], 1: [(1, 0), (0, 10, 50)]})
  with pytest.raises(supervision.HopelessError):
    supervision.Supervisor(runs, executor, interval=0.0).run()
  assert [job.cancelled for job in executor.jobs] == [False, False, True, True]


def test_keep_going_gives_up_one_configuration_only(tmp_path):
  runs = fakes.make_runs(tmp_path, 2, variants=['lambda', 'good'])
  executor = _Executor({0: [(1, 0), (0, 10)], 1: [(1, 0), (0, 10)]})
  statuses = supervision.Supervisor(runs, executor, keep_going=True, interval=0.0).run()
  assert [status.state for status in statuses] == [State.FAILED, State.FAILED, State.DONE, State.DONE]


@pytest.mark.parametrize('code', [75, -signal.SIGUSR1, -signal.SIGTERM])
def test_runs_that_were_asked_to_end_go_on_and_have_not_failed(code, tmp_path):
  outcomes = {0: [(code, 10), (code, 20), (code, 30), (0, 40)], 1: [(code, 0), (code, 0), (0, 10)]}
  statuses, executor, _, error = _supervise(tmp_path, outcomes, max_retries=2)
  # Seed 1 got nowhere twice, which proves nothing about its configuration.
  assert error is None and [(status.state, status.attempts) for status in statuses] == [
    (State.DONE, 0),
    (State.DONE, 2),
  ]
  assert executor.submitted.count(0) == 4 and not statuses[0].error


def test_a_run_that_never_gets_any_time_is_given_up(tmp_path):
  statuses, executor, _, error = _supervise(tmp_path, {0: [(75, 0)] * 3}, max_retries=2)
  assert error is None and statuses[0].state is State.FAILED and executor.submitted == [0, 0, 0]
  assert 'asked to end' in statuses[0].error


def test_a_run_that_its_executor_ended_for_a_reason_has_failed(tmp_path):
  statuses, *_ = _supervise(tmp_path, {0: [(75, 10, 1, 'used too much memory')]}, max_retries=0)
  assert statuses[0].state is State.FAILED and statuses[0].error == 'used too much memory'
