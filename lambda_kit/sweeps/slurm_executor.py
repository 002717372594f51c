"""Runs as SLURM jobs, through submitit. All machines must see the sweep's folder under the same path."""

from collections.abc import Mapping, Sequence
import contextlib
import pathlib
import signal
from typing import Any

import submitit
from submitit.core import utils as submitit_utils

from lambda_kit.sweeps import errors
from lambda_kit.sweeps import grid
from lambda_kit.sweeps import interfaces
from lambda_kit.sweeps import processes
from lambda_kit.sweeps import workdirs

_MINUTES = 24 * 60  # Of a job. A longer run is queued again, and resumes.
_TIMES_QUEUED_AGAIN = 1000
_ALIVE = ('PENDING', 'CONFIGURING', 'RUNNING', 'REQUEUED', 'SUSPENDED', 'PREEMPTED', 'COMPLETING')


class SlurmExecutor(interfaces.Executor):
  """Submits job arrays. Jobs stay in the queue when this process ends, and the next process takes them over.

  Args:
    folder: For scripts, logs and pickles of submitit.
    needs: Resources of one run.
    options: Further options of sbatch: {'partition': 'gpu', 'time': 600}. 'array_parallelism' is the number of jobs
      that may run at a time.
    cluster: 'slurm', or 'local' for submitit's own stand-in.
  """

  def __init__(
    self,
    folder: pathlib.Path,
    needs: interfaces.Needs,
    options: Mapping[str, Any] | None = None,
    cluster: str = 'slurm',
  ):
    try:
      self._engine = submitit.AutoExecutor(folder, cluster=cluster, slurm_max_num_timeout=_TIMES_QUEUED_AGAIN)
    except RuntimeError as error:
      raise errors.SweepError(
        'SLURM is not reachable from this machine: there is no srun. Run the command on a login '
        'node of the cluster, or choose --executor=local or ray.'
      ) from error
    try:
      self._engine.update_parameters(
        name='lambda_kit',
        cpus_per_task=needs.cores,
        timeout_min=_MINUTES,
        mem_gb=needs.memory or None,
        gpus_per_node=needs.gpus or None,
        **{f'slurm_{name}': value for name, value in (options or {}).items()},
      )
    except (NameError, ValueError, TypeError) as error:
      raise errors.SweepError(
        f'SLURM would not understand --slurm: {str(error).splitlines()[0]}. Options are those of '
        'sbatch without dashes, such as --slurm=partition=gpu.'
      ) from error

  def submit(self, runs: Sequence[grid.Run]) -> Sequence[interfaces.Job]:
    jobs = _jobs_in_the_queue(self._engine.folder, runs)
    missing = [run for run in runs if run.workdir not in jobs]
    if missing:
      sizes = {run.workdir: workdirs.output_size(run) for run in missing}
      try:
        submitted = self._engine.submit_array([_Attempt(run) for run in missing])
      except (submitit_utils.FailedSubmissionError, submitit_utils.FailedJobError, OSError) as error:
        cause = (str(error).strip() or 'no reason given').splitlines()[-1]
        raise errors.SweepError(
          f'SLURM did not accept the jobs: {cause}. Check with sinfo whether the cluster answers. It may require '
          'options such as --slurm=partition=... or --slurm=account=...'
        ) from error
      for run, job in zip(missing, submitted):
        jobs[run.workdir] = _SlurmJob(run, job, sizes[run.workdir])
        _note_file(run).parent.mkdir(parents=True, exist_ok=True)
        _note_file(run).write_text(f'{job.job_id} {sizes[run.workdir]}', encoding='utf-8')
    return [jobs[run.workdir] for run in runs]

  def close(self) -> None:
    pass  # The jobs belong to SLURM.


class _Attempt:
  """The function of a job. Its `checkpoint` tells submitit to queue it again after a timeout or a preemption."""

  def __init__(self, run: grid.Run):
    self._run = run
    self._process: processes.RunProcess | None = None

  def __call__(self) -> int:
    if not processes.is_to_run(self._run):
      return 0
    # SLURM sends this signal to all processes of a job before its time is over. It would kill a run.
    handler = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
      self._process = processes.RunProcess(self._run)
    finally:
      signal.signal(signal.SIGUSR2, handler)
    return self._process.wait()

  def checkpoint(self) -> submitit.helpers.DelayedSubmission:
    """Called when the job has to end soon: the run saves now, and resumes when the job is started again."""
    if self._process is not None:
      self._process.end()
    return submitit.helpers.DelayedSubmission(_Attempt(self._run))


class _SlurmJob(interfaces.Job):
  def __init__(self, run: grid.Run, job: submitit.Job, output_before: int):
    self._run, self._job = run, job
    self._output_before = output_before

  def poll(self) -> interfaces.State | interfaces.Ended:
    if not self._job.done():
      # submitit's own state may be ten minutes old.
      has_begun = workdirs.output_size(self._run) > self._output_before
      return interfaces.State.RUNNING if has_begun else interfaces.State.QUEUED
    _note_file(self._run).unlink(missing_ok=True)
    try:
      return interfaces.Ended(self._job.result())
    except submitit_utils.FailedJobError:
      return interfaces.Ended(1, f'the job failed before its run began: see {self._job.paths.stderr}')
    except submitit_utils.UncompletedJobError:
      return interfaces.Ended(None, f'SLURM ended job {self._job.job_id}: {self._job.state}')

  def cancel(self) -> None:
    self._job.cancel(check=False)
    _note_file(self._run).unlink(missing_ok=True)


def _jobs_in_the_queue(folder: pathlib.Path, runs: Sequence[grid.Run]) -> dict[pathlib.Path, _SlurmJob]:
  """Returns jobs by workdir that an earlier process has submitted and that SLURM still has."""
  jobs = {}
  for run in runs:
    with contextlib.suppress(OSError, ValueError):
      job_id, size = _note_file(run).read_text('utf-8').split()
      jobs[run.workdir] = job_id, _SlurmJob(run, submitit.SlurmJob(folder, job_id), int(size))
  if jobs:
    submitit.SlurmJob.watcher.update()
  state = lambda job_id: submitit.SlurmJob.watcher.get_state(job_id, mode='cache').split()[0]  # Of 'CANCELLED by 7'.
  return {workdir: job for workdir, (job_id, job) in jobs.items() if state(job_id) in _ALIVE}


def _note_file(run: grid.Run) -> pathlib.Path:
  """File with the id of a job that SLURM may still have, and the size of the run's output before it."""
  return pathlib.Path(f'{run.workdir}.job')
