"""What a sweep and its executors agree on: runs go in, jobs come out that are asked how they are. No implementation."""

from collections.abc import Sequence
import dataclasses
import enum
from typing import Protocol

from lambda_kit.sweeps import grid


class State(enum.Enum):
  """How a run is."""

  QUEUED = 'queued'
  RUNNING = 'running'
  DONE = 'done'
  FAILED = 'failed'


@dataclasses.dataclass(frozen=True)
class Needs:
  """What one run may use."""

  cores: int = 1
  memory: float = 4.0  # Gigabytes.
  gpus: int = 0

  @property
  def memory_bytes(self) -> int:
    return int(self.memory * 1e9)


@dataclasses.dataclass(frozen=True)
class Ended:
  """How an attempt at a run ended."""

  code: int | None  # Of the process, negative for a signal; None if the machine was lost, which is no fault of the run.
  reason: str = ''  # What the executor knows beyond the run's own output.


class Job(Protocol):
  """One attempt at a run, somewhere."""

  def poll(self) -> State | Ended:
    """Tells, without waiting, whether it is queued, is running or has ended."""

  def cancel(self) -> None:
    """Takes it out of the queue, or asks it to save and end. Does not wait, and does nothing if it has ended."""


class Executor(Protocol):
  """Runs processes somewhere, as many at a time as there is room for."""

  def submit(self, runs: Sequence[grid.Run]) -> list[Job]:
    """Accepts attempts at runs, in the order in which they are to start."""

  def close(self) -> None:
    """Gives back what the executor holds. What would not outlive this process is cancelled."""
