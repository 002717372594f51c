"""What commands share: how a process of them begins, and how it ends when something goes wrong."""

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
from lambda_kit.config import configuration

GIN_FILE = flags.DEFINE_multi_string(
  'gin_file',
  [],
  'A gin file: of the grid (lambda-kit list), in any order, or of your own, which is read after '
  'those. May be repeated.',
)
GIN_BINDINGS = flags.DEFINE_multi_string(
  'gin_bindings', [], 'A binding such as "make_environment.action_repeat = 4". Overrides all files; may be repeated.'
)
TRACEBACK = flags.DEFINE_bool('traceback', False, 'Show the stack trace of an error, not only its message.')


def begin(argv: list[str]) -> None:
  """Sets up a process.

  Args:
    argv: What absl left of the command line: only the program's name is expected.
  """
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.WARNING)  # Absl's own default in a program is INFO.
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}. Gin files are given with --gin_file=...')
  signal.signal(signal.SIGTERM, _end_like_ctrl_c)
  sys.unraisablehook = _interrupt_again
  if jax.config.jax_compilation_cache_dir is None:  # Neither a flag nor the environment says otherwise.
    _keep_compiled_programs(resources.cache_folder() / 'jax')


@contextlib.contextmanager
def explained(when_interrupted: str) -> Iterator[None]:
  """Ends the process with one line, without a stack trace, on errors that have a remedy and on Ctrl-C or SIGTERM.

  Args:
    when_interrupted: What to say on Ctrl-C.
  """
  try:
    yield
  except KeyboardInterrupt:
    print(when_interrupted, file=sys.stderr)
    logging.flush()
    os._exit(130)
  except (errors.UserError, OSError, ValueError) as error:
    explains = isinstance(error, (errors.UserError, OSError)) or configuration.is_refused_value(error)
    if TRACEBACK.value or not explains:
      raise
    sys.exit(f'error: {configuration.format_error(error)}')


def _keep_compiled_programs(folder: pathlib.Path) -> None:
  """Makes a second start quick. Without a folder that can be written to, each start compiles."""
  try:
    folder.mkdir(parents=True, exist_ok=True)
  except OSError:
    return
  if os.access(folder, os.W_OK):
    jax.config.update('jax_compilation_cache_dir', str(folder))


def _end_like_ctrl_c(signum, frame):
  del signum, frame
  raise KeyboardInterrupt


def _interrupt_again(unraisable: Any) -> None:
  """Repeats an interrupt that came where Python ignores exceptions: while it collects garbage, or in `__del__`."""
  if not isinstance(unraisable.exc_value, KeyboardInterrupt):
    sys.__unraisablehook__(unraisable)
    return
  # Not at once: this is still the place where it would be ignored.
  again = threading.Timer(0.02, signal.pthread_kill, (threading.main_thread().ident, signal.SIGTERM))
  again.daemon = True
  again.start()
