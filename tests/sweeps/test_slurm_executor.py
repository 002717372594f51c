"""SLURM through submitit: with its local executor, and with commands that stand in for those of SLURM."""

import json
import os
import pathlib
import time

import pytest
import submitit

from lambda_kit.sweeps import errors
from lambda_kit.sweeps import interfaces
from lambda_kit.sweeps import processes
from lambda_kit.sweeps import slurm_executor
from lambda_kit.sweeps import supervision
from lambda_kit.sweeps import workdirs
from tests.fakes import sweeps as fakes

State = interfaces.State


@pytest.fixture
def commands(tmp_path, monkeypatch):
  """Makes commands of SLURM that answer with a line."""
  folder = tmp_path / 'bin'
  folder.mkdir()
  monkeypatch.setenv('PATH', f'{folder}:{os.environ["PATH"]}')
  submitit.SlurmJob.watcher.clear()

  def add(name, script):
    (folder / name).write_text(f'#!/bin/sh\n{script}\n')
    (folder / name).chmod(0o755)

  add('srun', 'exit 0')
  return add


def _wait_for(condition, seconds=60):
  deadline = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < deadline
    time.sleep(0.05)


def test_runs_are_done_as_jobs(tmp_path):
  runs = fakes.make_runs(tmp_path, 2, ['BREAK_ONCE = {1}'])
  executor = slurm_executor.SlurmExecutor(tmp_path / 'slurm', interfaces.Needs(), cluster='local')
  statuses = supervision.Supervisor(runs, executor, interval=0.05).run()
  assert [(status.state, status.attempts) for status in statuses] == [(State.DONE, 0), (State.DONE, 1)]
  assert 'RuntimeError: broken' in runs[1].output.read_text()
  # The signal by which SLURM warns a job is submitit's business.
  assert json.loads(fakes.calls(runs[0])[0])['usr2_is_ignored']
  assert not list(tmp_path.rglob('*.job'))  # Nothing is left to take over.


def test_a_job_whose_time_is_over_is_queued_again_and_goes_on(tmp_path):
  (run,) = fakes.make_runs(tmp_path, 1, ['SECONDS = 4'])
  executor = slurm_executor.SlurmExecutor(tmp_path / 'slurm', interfaces.Needs(), cluster='local')
  (job,) = executor.submit([run])
  assert job.poll() is State.QUEUED
  _wait_for(lambda: workdirs.steps_done(run.workdir) >= 30)
  assert job.poll() is State.RUNNING
  (pid_file,) = (tmp_path / 'slurm').glob('*_submitted.pkl')
  controller = int(pid_file.name.split('_')[0])
  with open(f'/proc/{controller}/task/{controller}/children', encoding='ascii') as file:
    (task,) = map(int, file.read().split())
  os.kill(task, submitit.JobEnvironment._usr_sig())
  _wait_for(lambda: isinstance(job.poll(), interfaces.Ended))
  assert job.poll() == interfaces.Ended(0) and workdirs.is_finished(run.workdir)
  assert fakes.has_saved(run) and len(fakes.calls(run)) == 2
  assert len((run.workdir / 'episode.jsonl').read_text().splitlines()) == 10  # It did not begin anew.


def test_a_run_saves_before_its_job_is_queued_again(tmp_path):
  """Not after: SLURM kills what is left of a job when it queues it again."""
  (run,) = fakes.make_runs(tmp_path, 1, ['SECONDS = 60'])
  attempt = slurm_executor._Attempt(run)
  attempt._process = processes.RunProcess(run)
  _wait_for((run.workdir / 'config.gin').exists)
  attempt.checkpoint()
  assert fakes.has_saved(run)


def test_the_script_asks_for_what_a_run_needs(tmp_path, commands):
  commands('sbatch', 'echo Submitted batch job 71')
  runs = fakes.make_runs(tmp_path, 3)
  executor = slurm_executor.SlurmExecutor(
    tmp_path / 'slurm',
    interfaces.Needs(cores=6, memory=12.0, gpus=1),
    {'partition': 'gpu', 'time': 600, 'array_parallelism': 2},
  )
  executor.submit(runs)
  script = (tmp_path / 'slurm' / '71_submission.sh').read_text()
  for line in (
    '--array=0-2%2',
    '--cpus-per-task=6',
    '--mem=12GB',
    '--gpus-per-node=1',
    '--partition=gpu',
    '--time=600',
    '--signal=USR2@90',
    '--open-mode=append',
  ):
    assert f'#SBATCH {line}\n' in script, script
  assert 'submitit.core._submit' in script and script.startswith('#!/bin/bash')
  # What the array's second job will call is the second run.
  attempt = submitit.SlurmJob(tmp_path / 'slurm', '71_1').submission()
  assert attempt.result() == 0 and workdirs.is_finished(runs[1].workdir) and not fakes.calls(runs[0])


def test_jobs_in_the_queue_are_taken_over(tmp_path, commands):
  commands('sbatch', f'echo x >> {tmp_path}/submissions; echo Submitted batch job 71')
  runs = fakes.make_runs(tmp_path, 3)
  make = lambda: slurm_executor.SlurmExecutor(tmp_path / 'slurm', interfaces.Needs())
  make().submit(runs)
  # Later, another process: one job waits, one was cancelled, one is not known any more.
  commands('sacct', 'printf "JobID|State|NodeList\\n71_0|PENDING|\\n71_1|CANCELLED by 1000|\\n"')
  commands('sbatch', f'echo x >> {tmp_path}/submissions; echo Submitted batch job 72')
  submitit.SlurmJob.watcher.clear()
  jobs = make().submit(runs)
  assert [job.poll() for job in jobs] == [State.QUEUED] * 3
  assert (tmp_path / 'submissions').read_text().count('x') == 2
  ids = [pathlib.Path(f'{run.workdir}.job').read_text().split()[0] for run in runs]
  assert ids == ['71_0', '72_0', '72_1']


def test_jobs_that_slurm_ended_are_lost_not_failed(tmp_path, commands, monkeypatch):
  monkeypatch.setattr(submitit.SlurmJob, '_results_timeout_s', 0)
  commands('sbatch', 'echo Submitted batch job 71')
  commands('sacct', 'printf "JobID|State|NodeList\\n71|NODE_FAIL|\\n"')
  executor = slurm_executor.SlurmExecutor(tmp_path / 'slurm', interfaces.Needs())
  (job,) = executor.submit(fakes.make_runs(tmp_path, 1))
  assert job.poll() == interfaces.Ended(None, 'SLURM ended job 71: NODE_FAIL')


def test_cancelling_tells_slurm(tmp_path, commands):
  commands('sbatch', 'echo Submitted batch job 71')
  commands('scancel', f'echo $1 > {tmp_path}/cancelled')
  (job,) = slurm_executor.SlurmExecutor(tmp_path / 'slurm', interfaces.Needs()).submit(fakes.make_runs(tmp_path, 1))
  job.cancel()
  assert (tmp_path / 'cancelled').read_text() == '71\n'


def test_a_machine_without_slurm_is_told_where_to_go(tmp_path, monkeypatch):
  monkeypatch.setenv('PATH', str(tmp_path))
  with pytest.raises(errors.SweepError, match='there is no srun. Run the command on a login node'):
    slurm_executor.SlurmExecutor(tmp_path / 'slurm', interfaces.Needs())


def test_a_cluster_that_does_not_answer_is_an_error_with_its_words(tmp_path, commands):
  commands('sbatch', 'echo "sbatch: error: Unable to contact slurm controller" >&2; exit 1')
  executor = slurm_executor.SlurmExecutor(tmp_path / 'slurm', interfaces.Needs())
  with pytest.raises(errors.SweepError, match='did not accept the jobs: .*Unable to contact slurm controller.*sinfo'):
    executor.submit(fakes.make_runs(tmp_path, 2))


def test_unknown_options_are_named(tmp_path, commands):
  del commands
  with pytest.raises(errors.SweepError, match="would not understand --slurm: .*'partitoin'"):
    slurm_executor.SlurmExecutor(tmp_path / 'slurm', interfaces.Needs(), {'partitoin': 'gpu'})
