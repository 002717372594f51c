"""Supervision of a sweep: submits missing runs, retries failed ones, and stops configurations that can't succeed."""

import collections
from collections.abc import Callable, Sequence
import dataclasses
import time

from lambda_kit import signals
from lambda_kit.sweeps import errors
from lambda_kit.sweeps import grid
from lambda_kit.sweeps import interfaces
from lambda_kit.sweeps import workdirs

State = interfaces.State


@dataclasses.dataclass
class RunStatus:
  """State and history of a run."""

  run: grid.Run
  state: State
  attempts: int = 0  # Failed ones.
  error: str = ''  # Of the last failed attempt.
  is_stuck: bool = False  # Whether the last failed attempt made no progress.
  job: interfaces.Job | None = None  # The attempt under way.
  steps_before: int = 0  # Environment steps when it started.


OnChange = Callable[[RunStatus], None]


class HopelessError(errors.SweepError):
  """All seeds of a configuration fail at once."""


class Supervisor:
  """Completes all unfinished runs.

  A run that fails is resumed in another attempt, unless it has none left. One that was asked to end (its exit code says
  so, see `lambda_kit.signals`) has not failed, if it made progress. A run that failed at once, that is without
  any progress, first waits for the other seeds of its configuration. If all of them fail at once, the fault is in what
  they share, and more attempts would be futile.

  Args:
    runs: Runs of the sweep.
    executor: Runs them.
    max_retries: Number of times that a run is tried again.
    keep_going: Whether a configuration that can't succeed stops only its own runs, and not the sweep.
    interval: Seconds between two polls of all jobs.
  """

  def __init__(
    self,
    runs: Sequence[grid.Run],
    executor: interfaces.Executor,
    max_retries: int = 2,
    keep_going: bool = False,
    interval: float = 1.0,
  ):
    self._executor = executor
    self._max_retries = max_retries
    self._keep_going = keep_going
    self._on_change: OnChange = lambda status: None
    self._interval = interval
    self.statuses = [RunStatus(run, State.DONE if workdirs.is_finished(run.workdir) else State.QUEUED) for run in runs]
    self._siblings = collections.defaultdict(list)
    for status in self.statuses:
      self._siblings[status.run.configuration].append(status)

  def run(self, on_change: OnChange = lambda status: None) -> list[RunStatus]:
    """Returns when every run is done or has failed for good.

    Args:
      on_change: Called when the state of a run has changed, or an attempt has failed.

    Raises:
      HopelessError: All seeds of a configuration failed at once. Jobs under way are cancelled; their runs can be
        resumed later.
    """
    self._on_change = on_change
    self._submit([status for status in self.statuses if status.state is State.QUEUED])
    while pending := [status for status in self.statuses if status.state in (State.QUEUED, State.RUNNING)]:
      for status in pending:
        if status.job is not None:
          self._poll(status, status.job)
      for siblings in self._siblings.values():
        self._judge(siblings)
      self._submit(
        [
          status
          for status in pending
          if status.job is None and status.state is State.QUEUED and not self._is_held(status)
        ]
      )
      time.sleep(self._interval)
    return self.statuses

  def _submit(self, statuses: Sequence[RunStatus]) -> None:
    if not statuses:
      return
    for status, job in zip(statuses, self._executor.submit([status.run for status in statuses])):
      status.job, status.is_stuck = job, False
      status.steps_before = workdirs.steps_done(status.run.workdir)

  def _poll(self, status: RunStatus, job: interfaces.Job) -> None:
    found = job.poll()
    if isinstance(found, interfaces.Ended):
      status.job = None
      self._end(status, found)
    elif found is not status.state:
      status.state = found
      self._on_change(status)

  def _end(self, status: RunStatus, ended: interfaces.Ended) -> None:
    has_progressed = workdirs.steps_done(status.run.workdir) > status.steps_before
    if ended.code == 0 and workdirs.is_finished(status.run.workdir):
      status.state, status.error, status.is_stuck = State.DONE, '', False
    elif signals.means_later(ended.code) and not ended.reason:
      status.attempts += not has_progressed  # Otherwise one that is never given any time would be started for ever.
      status.error, status.is_stuck = 'was asked to end, and goes on', False
      status.state = State.FAILED if status.attempts > self._max_retries else State.QUEUED
    else:
      status.attempts += 1
      missing = f'ended without an error, but {workdirs.what_is_missing(status.run.workdir)}' if ended.code == 0 else ''
      status.error = ended.reason or missing or workdirs.last_error(status.run.output, ended.code)
      status.is_stuck = ended.code is not None and not has_progressed
      status.state = State.FAILED if status.attempts > self._max_retries else State.QUEUED
    self._on_change(status)

  def _is_held(self, status: RunStatus) -> bool:
    """Whether a run that failed at once has to wait for the outcome of other seeds."""
    others = [other for other in self._siblings[status.run.configuration] if other is not status]
    return status.is_stuck and not any(map(_has_progressed, others)) and any(other.job is not None for other in others)

  def _judge(self, siblings: Sequence[RunStatus]) -> None:
    """Gives up a hopeless configuration. A single seed that failed once doesn't prove that, if it may try again."""
    attempts = sum(status.attempts for status in siblings)
    if not all(status.is_stuck for status in siblings) or attempts < min(2, 1 + self._max_retries):
      return
    for status in siblings:
      if status.state is State.QUEUED:
        status.state = State.FAILED
        self._on_change(status)
    if not self._keep_going:
      for status in self.statuses:
        if status.job is not None:
          status.job.cancel()
      raise HopelessError(_explain(siblings))


def _has_progressed(status: RunStatus) -> bool:
  return status.state is State.DONE or workdirs.steps_done(status.run.workdir) > status.steps_before


def _explain(siblings: Sequence[RunStatus]) -> str:
  task, variant = siblings[0].run.configuration
  seeds_by_error = collections.defaultdict(list)
  for status in siblings:
    seeds_by_error[status.error].append(status.run.seed)
  lines = [f'{variant} on {task} fails at once with every seed, so the sweep was stopped.']
  lines += [f'  seed {", ".join(map(str, seeds))}: {error}' for error, seeds in seeds_by_error.items()]
  lines.append(
    f'The full output is in {siblings[0].run.output}. Once the cause is fixed, the same command continues with '
    'the missing runs; with --keep_going it continues without these.'
  )
  return '\n'.join(lines)
