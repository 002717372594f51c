"""The command `lambda-kit`: imports and runs the named command.

The syntax must stay readable for older versions of Python, which get as far as the check of their version.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 (a clone can be run by older Pythons)
  sys.exit(
    'error: lambda_kit needs Python 3.11 or later, and this is Python %d.%d (%s). In a clone, `make setup` '  # noqa: UP031 (read by older Pythons)
    'finds a later one or says how to install it.' % (sys.version_info[0], sys.version_info[1], sys.executable)
  )


from collections.abc import Sequence
import difflib
import importlib
import signal
import types

from lambda_kit import errors

# Each is a module of this package with a function `main(argv)`.
COMMANDS = {
  'run': 'Train an agent on a task, or resume a run.',
  'evaluate': 'Evaluate a checkpoint of a run, record videos, export its policy.',
  'sweep': 'Run a grid of experiments: tasks x variants x seeds.',
  'report': 'Write tables, figures and a page about all runs in a folder.',
  'list': 'List the grid of gin files: tasks, sizes, agents, parts.',
  'components': 'List what gin files may name: components, parameters, defaults.',
  'setup': "Install the Safety-Gymnasium tasks, which pip alone can't.",
  'doctor': 'Check what is installed and what works, with remedies.',
  'benchmark': 'Measure speed and memory.',
}


def main(argv: Sequence[str] | None = None) -> None:
  """Runs a command.

  Args:
    argv: The command's name and its flags. By default, this process's own.
  """
  arguments = list(sys.argv[1:] if argv is None else argv)
  if not arguments or arguments[0] in ('-h', '--help', 'help'):
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `lambda-kit --help | head` ends without a stack trace.
    print(_help())
    sys.exit(0 if arguments else 2)
  name, rest = arguments[0], arguments[1:]
  if name not in COMMANDS:
    near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
    meant = f' Did you mean {near[0]}?' if near else ''
    sys.exit(f'error: there is no command {name!r}.{meant} `lambda-kit --help` lists them.')
  _start(name, rest)


def _start(name: str, arguments: list[str]) -> None:
  try:
    from absl import app

    module = importlib.import_module(f'lambda_kit.commands.{name}')
  except errors.UserError as error:
    sys.exit(f'error: {error}')
  except Exception as error:
    # Packages whose dependencies are too old can fail in any way.
    unfit = str(error).strip().splitlines()[:1] if isinstance(error, ImportError) else _unfit_packages()
    if '--traceback' in arguments or not unfit:
      raise
    # The doctor needs fewer packages than the other commands.
    remedy = '`lambda-kit doctor` says what is wrong.'
    if name == 'doctor' or getattr(error, 'name', '') == 'absl':
      remedy = 'Install lambda_kit with all it needs: `make setup` in a clone, or pip install.'
    sys.exit(f'error: a package is missing or broken: {"; ".join(unfit)}. {remedy}')
  sys.argv = [f'lambda-kit {name}', *arguments]
  _show_in_help(module)
  app.run(module.main, argv=sys.argv)


def _unfit_packages() -> list[str]:
  from lambda_kit.commands import requirements

  return [str(need) for need in requirements.needs() if not need.is_met]


def _show_in_help(module: types.ModuleType) -> None:
  """Makes absl's `--help`, which describes the main module, describe a command."""
  from absl import flags

  sys.modules['__main__'].__doc__ = module.__doc__
  for flag in flags.FLAGS.get_key_flags_for_module(module):
    flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)


def _help() -> str:
  width = max(map(len, COMMANDS))
  return '\n'.join(
    [
      'Safe model-based reinforcement learning, configured by gin files.',
      '',
      'usage: lambda-kit <command> [flags]',
      '',
      *(f'  {name:{width}}  {what}' for name, what in COMMANDS.items()),
      '',
      'lambda-kit <command> --help describes its flags. To begin with:',
      '',
      '  lambda-kit run --task=grid',
    ]
  )
