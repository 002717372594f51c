"""Signals by which schedulers end processes, and the exit code that says: go on later.

SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGALRM    a process saves, and ends with GO_ON_LATER
SIGINT (Ctrl-C)                                        it saves, and ends with INTERRUPTED: a user decides what follows
SIGQUIT (Ctrl-\\)                                      it ends at once and saves nothing, for one that hangs
"""

import os
import signal

GO_ON_LATER = os.EX_TEMPFAIL  # 75: "temporary failure", the same command continues.
INTERRUPTED = 128 + signal.SIGINT

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGALRM)
# A parent that made its child ignore one of these meant it: nohup the first, submitit the second.
_LEFT_IGNORED = (signal.SIGHUP, signal.SIGUSR2)


class EndRequested(KeyboardInterrupt):
  """A scheduler asked this process to end."""


def exit_code(interrupt: KeyboardInterrupt) -> int:
  """Returns the code to exit with after an interrupt."""
  return GO_ON_LATER if isinstance(interrupt, EndRequested) else INTERRUPTED


def means_later(code: int | None) -> bool:
  """Whether the exit code of a process, negative for a signal, says that it was asked to end and did not fail."""
  return code == GO_ON_LATER or (code is not None and -code in ENDING)  # It was asked while it was starting.


def raise_end_requested() -> None:
  """From now on, signals of schedulers raise `EndRequested` in the main thread."""
  for number in ENDING:
    if number not in _LEFT_IGNORED or signal.getsignal(number) is not signal.SIG_IGN:
      signal.signal(number, _raise)


def ignore() -> None:
  """From now on, signals of schedulers and Ctrl-C are ignored: by a process that is ending, and by workers.

  A scheduler may signal all processes of a job. A worker that died of it would look like an environment that failed,
  and it ends with its parent anyway.
  """
  for number in (signal.SIGINT, *ENDING):
    signal.signal(number, signal.SIG_IGN)


def _raise(number, frame):
  del frame
  if number == signal.SIGXCPU:
    signal.signal(number, signal.SIG_IGN)  # The kernel sends it again every second, while the process saves.
  raise EndRequested
