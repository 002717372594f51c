"""Runs on this machine: as many processes at a time as fit a budget of cores, memory and GPUs."""

import collections
from collections.abc import Sequence
import os
import time
from typing import NamedTuple

from lambda_kit.sweeps import errors
from lambda_kit.sweeps import grid
from lambda_kit.sweeps import interfaces
from lambda_kit.sweeps import processes

_MEMORY_SECONDS = 2.0  # Between two checks of the memory of all runs.


class LocalExecutor(interfaces.Executor):
  """Starts runs in order, each on cores (and GPUs) of its own.

  Args:
    needs: Resources of one run. A run that uses more memory is ended.
    cores: Numbers of the cores that all runs together may use.
    memory: Gigabytes that all runs together may use.
    gpus: Ids of the GPUs that all runs together may use, as in CUDA_VISIBLE_DEVICES.
  """

  def __init__(self, needs: interfaces.Needs, cores: Sequence[int], memory: float, gpus: Sequence[str] = ()):
    for what, needed, budget, flag in (
      ('cores', needs.cores, len(cores), 'cores'),
      ('GB of memory', needs.memory, memory, 'memory'),
      ('GPUs', needs.gpus, len(gpus), 'gpus'),
    ):
      if needed > budget:
        raise errors.SweepError(
          f'A run needs {needed:g} {what}, and the budget is {budget:g}: no run would ever '
          f'start. Lower --run_{flag} or raise --{flag}.'
        )
    self._needs = needs
    self._cores, self._gpus = list(cores), list(gpus)  # The free ones.
    self._room = int(memory / needs.memory) if needs.memory else len(cores)
    self._waiting: collections.deque[_LocalJob] = collections.deque()
    self._running: list[_RunningJob] = []
    self._next_check = 0.0

  def submit(self, runs: Sequence[grid.Run]) -> Sequence[interfaces.Job]:
    jobs = [_LocalJob(self, run) for run in runs]
    self._waiting.extend(jobs)
    return jobs

  def close(self) -> None:
    self._waiting.clear()
    for _, process, _, _ in self._running:
      process.ask_to_end()  # All of them first, so that they save at the same time.
    for _, process, _, _ in self._running:
      process.end()
    self._running.clear()

  def advance(self) -> None:
    """Frees the resources of ended runs, ends runs that use too much memory, and starts those that fit."""
    for ended in [running for running in self._running if running.process.poll() is not None]:
      ended.process.end()  # Children may be left.
      self._running.remove(ended)
      self._cores += ended.cores
      self._gpus += ended.gpus
    if time.monotonic() >= self._next_check:
      self._next_check = time.monotonic() + _MEMORY_SECONDS
      self._limit_memory()
    needs = self._needs
    while (
      self._waiting
      and len(self._running) < self._room
      and len(self._cores) >= needs.cores
      and len(self._gpus) >= needs.gpus
    ):
      job = self._waiting.popleft()
      cores, self._cores = self._cores[: needs.cores], self._cores[needs.cores :]
      gpus, self._gpus = self._gpus[: needs.gpus], self._gpus[needs.gpus :]
      environment = {'CUDA_VISIBLE_DEVICES': ','.join(gpus)} if needs.gpus else {}
      job.process = processes.RunProcess(job.run, cores, environment)
      self._running.append(_RunningJob(job, job.process, cores, gpus))

  def forget(self, job: '_LocalJob') -> None:
    """Drops a job that has not started."""
    if job in self._waiting:
      self._waiting.remove(job)

  def _limit_memory(self) -> None:
    used = processes.memory_of({process.session for _, process, _, _ in self._running})
    for job, process, _, _ in self._running:
      size = used.get(process.session, 0)
      if self._needs.memory and size > self._needs.memory_bytes and not job.reason:
        job.reason = (
          f'used {size / 1e9:.2f} GB of memory, and may have {self._needs.memory:g}: raise --run_memory, '
          'or keep less in the replay (EpisodeBuffer.max_bytes)'
        )
        process.ask_to_end()


class _LocalJob(interfaces.Job):
  """An attempt that waits for resources, runs or has ended."""

  def __init__(self, executor: LocalExecutor, run: grid.Run):
    self._executor = executor
    self.run = run
    self.process: processes.RunProcess | None = None
    self.reason = ''

  def poll(self) -> interfaces.State | interfaces.Ended:
    self._executor.advance()
    if self.process is None:
      return interfaces.State.QUEUED
    code = self.process.poll()
    return interfaces.State.RUNNING if code is None else interfaces.Ended(code, self.reason)

  def cancel(self) -> None:
    if self.process is None:
      self._executor.forget(self)
    else:
      self.process.ask_to_end()


class _RunningJob(NamedTuple):
  """A job that has started, and its resources."""

  job: _LocalJob
  process: processes.RunProcess
  cores: list[int]
  gpus: list[str]


def available_cores() -> list[int]:
  """Numbers of the cores that this process may use."""
  return sorted(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else list(range(os.cpu_count() or 1))


def available_memory() -> float:
  """Free memory of this machine in gigabytes, by the kernel's estimate."""
  with open('/proc/meminfo', encoding='ascii') as file:
    sizes = dict(line.split(':') for line in file)
  return int(sizes['MemAvailable'].split()[0]) * 1024 / 1e9
