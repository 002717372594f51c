"""Runs in processes of their own, forked from one that has imported everything: they start in milliseconds.

What is forked has never used JAX, only imported it, so it has no threads.
"""

from collections.abc import Callable, Sequence
import multiprocessing
from multiprocessing import process as process_lib
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any

from lambda_kit.commands import main

ROOT = pathlib.Path(__file__).resolve().parents[2]
_CONTEXT = multiprocessing.get_context('forkserver')
# Not the commands themselves: their flags have the same names.
_CONTEXT.set_forkserver_preload(
  ['lambda_kit.components', 'lambda_kit.training.train', 'lambda_kit.analysis.reports.report', 'tests.faults.processes']
)

# What a process does first: called with the workdir. At module level, for other processes.
Prelude = Callable[[pathlib.Path], Any]


class Process:
  """A process of this module with the methods of `subprocess.Popen`."""

  def __init__(self, process: process_lib.BaseProcess):
    self._process = process
    self.pid = process.pid

  def poll(self) -> int | None:
    return self._process.exitcode

  def wait(self, timeout: float) -> int:
    """The exit code; minus the number of the signal that ended it."""
    self._process.join(timeout)
    if self._process.exitcode is None:
      raise subprocess.TimeoutExpired(self._process.name, timeout)
    return self._process.exitcode

  def send_signal(self, number: int) -> None:
    if self.poll() is None:
      os.kill(self.pid, number)

  def kill(self) -> None:
    self.send_signal(signal.SIGKILL)


def start(command: str, workdir: pathlib.Path, arguments: Sequence[str], prelude: Prelude | None = None) -> Process:
  """Starts one of lambda-kit's commands. Its output is appended to a file beside the workdir."""
  process = _CONTEXT.Process(target=_main, args=(command, str(workdir), tuple(arguments), prelude), name=command)
  process.start()
  return Process(process)


def _main(command: str, workdir: str, arguments: Sequence[str], prelude: Prelude | None) -> None:
  output = os.open(f'{workdir}.out', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
  for number in (1, 2):
    os.dup2(output, number)
  sys.stdout, sys.stderr = (open(number, 'w', buffering=1, closefd=False) for number in (1, 2))
  os.chdir(ROOT)
  if prelude is not None:
    prelude(pathlib.Path(workdir))
  main.main([command, *arguments])
