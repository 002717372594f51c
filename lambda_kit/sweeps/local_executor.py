"""Runs on this machine: as many processes at a time as a budget of cores, memory and GPUs has room for."""

import collections
from collections.abc import Sequence
import os
import time

from lambda_kit.sweeps import errors
from lambda_kit.sweeps import grid
from lambda_kit.sweeps import interfaces
from lambda_kit.sweeps import processes

_MEMORY_SECONDS = 2.0  # Between two looks at the memory of all runs.


class LocalExecutor(interfaces.Executor):
  """Starts runs in the order in which they came, each on cores (and GPUs) that no other one has.

  Args:
    needs: Of one run. A run that uses more memory is ended.
    cores: Numbers of the cores that all runs together may use.
    memory: Gigabytes that all runs together may use.
    gpus: Ids of the GPUs that all runs together may use, as CUDA_VISIBLE_DEVICES has them.
  """

  def __init__(self, needs: interfaces.Needs, cores: Sequence[int], memory: float, gpus: Sequence[str] = ()):
    for what, needed, budget, flag in (
      ('cores', needs.cores, len(cores), 'cores'),
      ('GB of memory', needs.memory, memory, 'memory'),
      ('GPUs', needs.gpus, len(gpus), 'gpus'),
    ):
      if needed > budget:
        raise errors.SweepError(
          f'A run is to have {needed:g} {what}, and the budget is {budget:g}: no run would ever '
          f'start. Lower --run_{flag} or raise --{flag}.'
        )
    self._needs = needs
    self._cores, self._gpus = list(cores), list(gpus)  # Those that are free.
    self._room = int(memory / needs.memory) if needs.memory else len(cores)
    self._waiting: collections.deque[_LocalJob] = collections.deque()
    self._running: list[_LocalJob] = []
    self._next_look = 0.0

  def submit(self, runs: Sequence[grid.Run]) -> list[interfaces.Job]:
    jobs = [_LocalJob(self, run) for run in runs]
    self._waiting.extend(jobs)
    return jobs

  def close(self) -> None:
    self._waiting.clear()
    for job in self._running:
      job.process.ask_to_end()  # All of them first, so that they save at the same time.
    for job in self._running:
      job.process.end()
    self._running.clear()

  def advance(self) -> None:
    """Takes back what ended runs had, ends those that use too much memory, and starts what there is room for."""
    for job in [job for job in self._running if job.process.poll() is not None]:
      job.process.end()  # What may be left of its children.
      self._running.remove(job)
      self._cores += job.cores
      self._gpus += job.gpus
    if time.monotonic() >= self._next_look:
      self._next_look = time.monotonic() + _MEMORY_SECONDS
      self._limit_memory()
    needs = self._needs
    while (
      self._waiting
      and len(self._running) < self._room
      and len(self._cores) >= needs.cores
      and len(self._gpus) >= needs.gpus
    ):
      job = self._waiting.popleft()
      job.cores, self._cores = self._cores[: needs.cores], self._cores[needs.cores :]
      job.gpus, self._gpus = self._gpus[: needs.gpus], self._gpus[needs.gpus :]
      environment = {'CUDA_VISIBLE_DEVICES': ','.join(job.gpus)} if needs.gpus else {}
      job.process = processes.RunProcess(job.run, job.cores, environment)
      self._running.append(job)

  def forget(self, job: '_LocalJob') -> None:
    """Drops a job that has not started."""
    if job in self._waiting:
      self._waiting.remove(job)

  def _limit_memory(self) -> None:
    used = processes.memory_of({job.process.session for job in self._running})
    for job in self._running:
      size = used.get(job.process.session, 0)
      if self._needs.memory and size > self._needs.memory_bytes and not job.reason:
        job.reason = (
          f'used {size / 1e9:.2f} GB of memory, and may have {self._needs.memory:g}: raise --run_memory, '
          'or keep less in the replay (EpisodeBuffer.max_bytes)'
        )
        job.process.ask_to_end()


class _LocalJob(interfaces.Job):
  """An attempt that waits for room, runs or has ended."""

  def __init__(self, executor: LocalExecutor, run: grid.Run):
    self._executor = executor
    self.run = run
    self.process: processes.RunProcess | None = None
    self.cores: list[int] = []
    self.gpus: list[str] = []
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


def available_cores() -> list[int]:
  """Numbers of the cores that this process may use."""
  return sorted(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else list(range(os.cpu_count() or 1))


def available_memory() -> float:
  """Gigabytes that are free on this machine, as the kernel sees it."""
  with open('/proc/meminfo', encoding='ascii') as file:
    sizes = dict(line.split(':') for line in file)
  return int(sizes['MemAvailable'].split()[0]) * 1024 / 1e9
