"""The interface between a sweep and its executors: runs are submitted, and jobs are polled. No implementation."""

from collections.abc import Sequence
import dataclasses
import enum
from typing import Protocol

from lambda_kit.sweeps import grid


class State(enum.Enum):
  """State of a run."""

  QUEUED = 'queued'
  RUNNING = 'running'
  DONE = 'done'
  FAILED = 'failed'


@dataclasses.dataclass(frozen=True)
class Needs:
  """Resources that one run may use."""

  cores: int = 1
  memory: float = 4.0  # Gigabytes.
  gpus: int = 0

  @property
  def memory_bytes(self) -> int:
    return int(self.memory * 1e9)


@dataclasses.dataclass(frozen=True)
class Ended:
  """How an attempt at a run ended."""

  code: int | None  # Exit code, negative for a signal; None if the machine was lost, which is not the run's fault.
  reason: str = ''  # What the executor knows in addition to the run's own output.


class Job(Protocol):
  """One attempt at a run."""

  def poll(self) -> State | Ended:
    """Returns, without waiting, whether it is queued, is running or has ended."""

  def cancel(self) -> None:
    """Takes it out of the queue, or asks it to save and end. Does not wait, and does nothing if it has ended."""


class Executor(Protocol):
  """Runs processes, as many at a time as its resources allow."""

  def submit(self, runs: Sequence[grid.Run]) -> Sequence[Job]:
    """Accepts attempts at runs, to be started in this order."""

  def close(self) -> None:
    """Releases what the executor holds. Jobs that can't outlive this process are cancelled."""
