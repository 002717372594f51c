"""Shared by commands: common flags, the set-up of the process, and its end after an error."""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import signal
import sys
import threading
from typing import Any

from absl import app
from absl import flags
from absl import logging
import jax

from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit import errors
from lambda_kit import resources
from lambda_kit import signals
from lambda_kit.config import configuration

GIN_FILE = flags.DEFINE_multi_string(
  'gin_file',
  [],
  'A gin file: one of the grid (see lambda-kit list), or one of your own, which overrides those of the grid',
)
GIN_BINDINGS = flags.DEFINE_multi_string(
  'gin_bindings', [], 'A gin binding, such as "make_environment.action_repeat = 4", which overrides all files'
)
TRACEBACK = flags.DEFINE_bool('traceback', False, 'Show the stack trace of an error, not only its message.')


def begin(argv: list[str]) -> None:
  """Sets up a process.

  Args:
    argv: The command line without flags: the program's name and nothing else.
  """
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.WARNING)  # Absl's own default in a program is INFO.
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}. Name gin files with --gin_file=...')
  signals.raise_end_requested()
  sys.unraisablehook = _interrupt_again
  # JAX adds its options at run time. None: neither a flag nor the environment sets it.
  if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
    _keep_compiled_programs(resources.cache_folder() / 'jax')


@contextlib.contextmanager
def explained(when_interrupted: str) -> Iterator[None]:
  """On Ctrl-C, signals of schedulers and errors that a user can correct, ends the process with one line.

  The exit codes are those of `lambda_kit.signals`, and 1 after an error.

  Args:
    when_interrupted: What to print on Ctrl-C and signals.
  """
  try:
    yield
  except KeyboardInterrupt as interrupt:
    signals.ignore()
    with contextlib.suppress(OSError):  # After SIGHUP, there may be no terminal.
      print(when_interrupted, file=sys.stderr)
      logging.flush()
    os._exit(signals.exit_code(interrupt))
  except (errors.UserError, OSError, ValueError) as error:
    explains = isinstance(error, (errors.UserError, OSError)) or configuration.is_refused_value(error)
    if TRACEBACK.value or not explains:
      raise
    sys.exit(f'error: {configuration.format_error(error)}')


def _keep_compiled_programs(folder: pathlib.Path) -> None:
  """Caches compiled programs for later runs. Without a writable folder, every run compiles."""
  try:
    folder.mkdir(parents=True, exist_ok=True)
  except OSError:
    return
  if os.access(folder, os.W_OK):
    jax.config.update('jax_compilation_cache_dir', str(folder))


def _interrupt_again(unraisable: Any) -> None:
  """Repeats an interrupt that came where Python ignores exceptions: during garbage collection or in `__del__`."""
  if not isinstance(unraisable.exc_value, KeyboardInterrupt):
    sys.__unraisablehook__(unraisable)
    return
  number = signal.SIGTERM if isinstance(unraisable.exc_value, signals.EndRequested) else signal.SIGINT
  # With a delay, because here it would be ignored again.
  again = threading.Timer(0.02, signal.pthread_kill, (threading.main_thread().ident, number))
  again.daemon = True
  again.start()
