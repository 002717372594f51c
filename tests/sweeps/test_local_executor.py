"""Processes on this machine: what they get, what they may not take, and how they end."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from lambda_kit.sweeps import errors
from lambda_kit.sweeps import interfaces
from lambda_kit.sweeps import local_executor
from lambda_kit.sweeps import supervision
from lambda_kit.sweeps import workdirs
from tests.fakes import sweeps as fakes

State = interfaces.State


def _executor(needs=interfaces.Needs(), cores=2, memory=8.0, gpus=()):
  return local_executor.LocalExecutor(needs, local_executor.available_cores()[:cores], memory, gpus)


def _sweep(runs, executor, **arguments):
  try:
    return supervision.Supervisor(runs, executor, interval=0.02, **arguments).run()
  finally:
    executor.close()


def _wait_for(condition, seconds=20):
  deadline = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < deadline
    time.sleep(0.02)


def _most_at_a_time(executor, runs):
  jobs, most = executor.submit(runs), 0
  deadline = time.monotonic() + 60
  while not all(isinstance(job.poll(), interfaces.Ended) for job in jobs):
    most = max(most, sum(job.poll() is State.RUNNING for job in jobs))
    assert time.monotonic() < deadline
    time.sleep(0.02)
  return most


def test_all_runs_are_done_and_nothing_is_repeated(tmp_path):
  runs = fakes.make_runs(tmp_path, 3)
  assert all(status.state is State.DONE for status in _sweep(runs, _executor()))
  assert all(status.state is State.DONE for status in _sweep(runs, _executor()))
  assert all(len(fakes.calls(run)) == 1 for run in runs)


def test_a_broken_run_goes_on_where_it_was(tmp_path):
  runs = fakes.make_runs(tmp_path, 2, ['BREAK_ONCE = {1}'])
  statuses = _sweep(runs, _executor())
  assert [(status.state, status.attempts) for status in statuses] == [(State.DONE, 0), (State.DONE, 1)]
  assert len((runs[1].workdir / 'episode.jsonl').read_text().splitlines()) == 10
  assert workdirs.last_error(runs[1].output, 1) == 'ended with code 1, without any output'  # Of the second attempt.
  assert 'RuntimeError: broken' in runs[1].output.read_text()


@pytest.mark.parametrize(
  'budget,needs,most',
  [
    (dict(cores=1), interfaces.Needs(), 1),
    (dict(cores=2), interfaces.Needs(), 2),
    (dict(cores=2), interfaces.Needs(cores=2), 1),
    (dict(cores=2, memory=5.0), interfaces.Needs(memory=4.0), 1),
    (dict(cores=2, gpus=('0',)), interfaces.Needs(gpus=1), 1),
  ],
)
def test_a_budget_is_kept(tmp_path, budget, needs, most):
  if budget['cores'] > len(local_executor.available_cores()):
    pytest.skip('needs two cores')
  assert _most_at_a_time(_executor(needs, **budget), fakes.make_runs(tmp_path, 3, ['SECONDS = 0.4'])) == most


def test_runs_have_cores_and_gpus_of_their_own(tmp_path):
  if len(local_executor.available_cores()) < 2:
    pytest.skip('needs two cores')
  runs = fakes.make_runs(tmp_path, 2, ['SECONDS = 0.5'])
  _sweep(runs, _executor(interfaces.Needs(gpus=1), gpus=('5', '7')))
  calls = [json.loads(fakes.calls(run)[0]) for run in runs]
  assert sorted(call['gpus'] for call in calls) == ['5', '7']
  assert [len(call['cores']) for call in calls] == [1, 1] and calls[0]['cores'] != calls[1]['cores']


def test_a_run_that_takes_too_much_memory_is_ended(tmp_path, monkeypatch):
  monkeypatch.setattr(local_executor, '_MEMORY_SECONDS', 0.0)
  runs = fakes.make_runs(tmp_path, 1, ['SECONDS = 20', 'MEGABYTES = 200'])
  (status,) = _sweep(runs, _executor(interfaces.Needs(memory=0.1)), max_retries=0, keep_going=True)
  assert status.state is State.FAILED and 'may have 0.1: raise --run_memory' in status.error
  assert fakes.has_saved(runs[0])


@pytest.mark.parametrize(
  'budget,needs,message',
  [
    (dict(cores=range(1)), interfaces.Needs(cores=2), '2 cores, and the budget is 1.*Lower --run_cores or raise --co'),
    (dict(memory=2.0), interfaces.Needs(), '4 GB of memory, and the budget is 2'),
    ({}, interfaces.Needs(gpus=1), '1 GPUs, and the budget is 0'),
  ],
)
def test_a_budget_without_room_for_a_run_is_refused(budget, needs, message):
  with pytest.raises(errors.SweepError, match=message):
    local_executor.LocalExecutor(needs, **{'cores': range(2), 'memory': 8.0, **budget})


def test_closing_lets_runs_save(tmp_path):
  runs = fakes.make_runs(tmp_path, 2, ['SECONDS = 60'])
  executor = _executor(cores=1)
  jobs = executor.submit(runs)
  _wait_for(
    lambda: (
      jobs[0].poll() is State.RUNNING
      and workdirs.steps_done(runs[0].workdir) == 0
      and (runs[0].workdir / 'config.gin').exists()
    )
  )
  executor.close()
  assert fakes.has_saved(runs[0]) and not fakes.calls(runs[1])


def test_a_run_does_not_outlive_its_sweep(tmp_path):
  """Not even if the sweep is killed; it saves nevertheless."""
  (run,) = fakes.make_runs(tmp_path, 1, ['SECONDS = 60'])
  parent = subprocess.Popen(
    [
      sys.executable,
      '-c',
      f"""
import pathlib
from lambda_kit.sweeps import grid, processes
processes.RunProcess(grid.Run('task', 'lambda', 0, ('task.gin',), ('SECONDS = 60',), {run.program!r},
                              pathlib.Path({str(run.workdir)!r}), pathlib.Path('/'))).wait()""",
    ]
  )
  _wait_for((run.workdir / 'config.gin').exists, 60)
  parent.send_signal(signal.SIGKILL)
  parent.wait()
  _wait_for(lambda: fakes.has_saved(run))
  pid = json.loads(fakes.calls(run)[0])['pid']
  _wait_for(lambda: not os.path.exists(f'/proc/{pid}') or 'zombie' in open(f'/proc/{pid}/status').read())


def test_free_memory_is_known():
  assert 0.01 < local_executor.available_memory() < 1e5
