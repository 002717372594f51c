"""The parent's side of a worker process: starts it, sends commands, watches it and ends it."""

from collections.abc import Sequence
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time

from absl import logging

from lambda_kit.environments.processes import worker as worker_lib

_CLOSE_SECONDS = 5.0  # For workers to close their environments before they are killed.
_TRACE_SECONDS = 1.0  # For a hanging worker to write its stack trace.


class WorkerFailure(Exception):
  """A worker failed. The first line of the message says how; the traceback follows, if there is one."""


class WorkerProcess:
  """A process that runs `worker.main`. Calls raise `WorkerFailure` rather than wait forever."""

  def __init__(self, start: worker_lib.Start, memory_fd: int, timeout: float):
    """Starts the process without waiting for it. After `timeout` seconds, `wait_until_started` gives up."""
    self._deadline = time.monotonic() + timeout
    self._started = False
    self._is_killed = False
    self._trace_fd = anonymous_file('lambda_kit_trace')
    self._connection, theirs = socket.socketpair()
    fds = (theirs.fileno(), memory_fd, self._trace_fd)
    program = (
      f'import sys; sys.path[:] = {[str(path) for path in sys.path]}; '
      f'from lambda_kit.environments.processes import worker; worker.main{fds}'
    )
    # Not `multiprocessing`: with spawn, its children import the parent's main module, and with it jax.
    # A process group of its own shields the worker from Ctrl-C, and lets `kill` reach what the environment starts.
    with theirs:
      self._process = subprocess.Popen(
        [sys.executable, '-c', program], stdin=subprocess.DEVNULL, pass_fds=fds, process_group=0
      )
    self._connection.settimeout(timeout)
    try:
      worker_lib.send_long(self._connection, b'', pickle.dumps(start))
    except OSError:
      pass  # It has died; `wait_until_started` will say why.

  @property
  def process_id(self) -> int:
    return self._process.pid

  def wait_until_started(self) -> worker_lib.Started:
    """Waits for the environment to be built."""
    started = pickle.loads(self.receive(self._deadline))
    self._started = True
    return started

  def send(self, command: bytes) -> None:
    """Sends a command. It is a few bytes, so sending doesn't block."""
    try:
      self._connection.send(command)
    except OSError:
      raise WorkerFailure(self._describe_end()) from None

  def receive(self, deadline: float) -> bytes:
    """Waits until the last command has been carried out, and returns the answer's content.

    `deadline` is a value of `time.monotonic`.
    """
    self._connection.settimeout(_remaining(deadline))
    try:
      answer = self._connection.recv(1)
      if answer == worker_lib.DONE:
        return b''
      content = worker_lib.receive_long(self._connection)
    except TimeoutError:
      raise WorkerFailure(f'The worker did not answer in time. It was here:\n{self._trace()}') from None
    except (OSError, EOFError):
      raise WorkerFailure(self._describe_end()) from None
    if answer == worker_lib.FAILED:
      raise WorkerFailure(content.decode(errors='replace'))
    return content

  def call(self, command: bytes, timeout: float) -> bytes:
    self.send(command)
    return self.receive(time.monotonic() + timeout)

  def ask_to_close(self) -> None:
    """Tells the worker to close its environment and exit. One that has no environment yet is killed."""
    if not self._started:
      self.kill()
    if self._is_killed:
      return
    try:
      self._connection.send(worker_lib.CLOSE)
    except OSError:
      pass  # It has ended.

  def finish(self, deadline: float) -> None:
    """Waits for a worker that was asked to close, and kills it after the deadline."""
    if self._is_killed:
      return
    try:
      self._process.wait(_remaining(deadline))
    except subprocess.TimeoutExpired:
      logging.warning('A worker did not close its environment in time and is killed.\n%s', self._trace())
    if self._process.returncode == 1:
      try:
        self.receive(deadline)
      except WorkerFailure as failure:
        logging.warning('A worker failed while it closed its environment.\n%s', failure)
    self.kill()

  def kill(self) -> None:
    """Kills the worker, with all processes that its environment has started. May be called twice."""
    if self._process.poll() is None:
      os.killpg(self._process.pid, signal.SIGKILL)
      self._process.wait()
    if not self._is_killed:
      self._is_killed = True
      self._connection.close()
      os.close(self._trace_fd)

  def _describe_end(self) -> str:
    try:
      status = self._process.wait(_CLOSE_SECONDS)
    except subprocess.TimeoutExpired:
      return f'The worker closed its connection.\n{self._trace()}'
    reason = f'was killed by {signal.Signals(-status).name}' if status < 0 else f'exited with status {status}'
    return f'The process of the worker {reason}.\n{self._read_trace()}'

  def _trace(self) -> str:
    """Asks a living worker for its stack trace."""
    self._process.send_signal(worker_lib.TRACE_SIGNAL)
    deadline = time.monotonic() + _TRACE_SECONDS
    trace, previous = '', ''
    while time.monotonic() < deadline and not (trace and trace == previous):  # Until it's no longer growing.
      time.sleep(0.05)
      trace, previous = self._read_trace(), trace
    return trace

  def _read_trace(self) -> str:
    """What the worker's faulthandler has written, after a crash or on request."""
    return os.pread(self._trace_fd, 1 << 20, 0).decode(errors='replace')


def stop(workers: Sequence[WorkerProcess], memory_fd: int, parent_id: int) -> None:
  """Ends all workers and frees the memory."""
  if os.getpid() != parent_id:
    return  # A fork of the parent exits; the workers are not its own.
  for worker in workers:
    worker.ask_to_close()
  deadline = time.monotonic() + _CLOSE_SECONDS
  for worker in workers:
    worker.finish(deadline)
  os.close(memory_fd)


def anonymous_file(name: str) -> int:
  """Opens a file without a path, which disappears with the last process that has it open, however that ends."""
  if hasattr(os, 'memfd_create'):
    return os.memfd_create(name)
  with tempfile.TemporaryFile() as file:
    return os.dup(file.fileno())


def _remaining(deadline: float) -> float:
  return max(deadline - time.monotonic(), 1e-3)  # A time-out of 0 makes sockets non-blocking, with another error.
