"""The command `lambda-kit`, in processes of its own."""

import ast
import importlib.util
import pathlib
import subprocess
import sys

import pytest

from lambda_kit import resources
from lambda_kit.commands import main

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_SCRIPTS = sorted(path.stem for path in (_ROOT / 'launchers').glob('*.py'))


def _python(*arguments):
  return subprocess.run(
    [sys.executable, *arguments], cwd=_ROOT, capture_output=True, text=True, timeout=120, check=False
  )


def _command(*arguments):
  return _python('-m', 'lambda_kit', *arguments)


def test_help_lists_all_commands_and_imports_next_to_nothing():
  done = _python('-X', 'importtime', '-m', 'lambda_kit', '--help')
  assert done.returncode == 0
  assert all(f'  {name} ' in done.stdout and what in done.stdout for name, what in main.COMMANDS.items())
  imported = {line.split('|')[-1].strip() for line in done.stderr.splitlines()}
  assert 'lambda_kit.commands.main' in imported and not imported & {'jax', 'numpy', 'gin', 'absl'}


def test_every_command_is_a_module_and_every_launcher_a_command():
  assert all(importlib.util.find_spec(f'lambda_kit.commands.{name}') for name in main.COMMANDS)
  assert len(_SCRIPTS) == 6 and set(_SCRIPTS) <= set(main.COMMANDS)


@pytest.mark.parametrize(
  'arguments,code,message',
  [
    (('rnu',), 1, 'Did you mean run?'),
    (('evalute', '--workdir=x'), 1, 'Did you mean evaluate?'),
    (('xyz',), 1, "error: there is no command 'xyz'. `lambda-kit --help` lists them."),
    (('list', 'gin'), 1, "Unexpected arguments: ['gin']"),
    (('run', '--gin_flie=x'), 1, 'Did you mean: gin_file'),
  ],
)
def test_what_is_misspelt_is_told_with_the_nearest(arguments, code, message):
  done = _command(*arguments)
  assert done.returncode == code and message in done.stderr and 'Traceback' not in done.stderr


def test_help_of_benchmarks_is_that_of_their_folder():
  done = _command('benchmark', '--help')
  assert '\n  --parts: ' in done.stdout and 'lambda-kit benchmark --parts=' in done.stdout, done.stdout
  assert _python('launchers/benchmark.py', '--help').stdout == done.stdout


@pytest.mark.parametrize('name,flag', [('run', '--seed'), ('evaluate', '--workdir'), ('sweep', '--tasks')])
def test_help_of_a_command_lists_its_flags_and_those_of_gin(name, flag):
  done = _command(name, '--help')
  further = ['--task', '--size', '--agent', '--parts', '--[no]list'] if name == 'run' else []
  for each in (flag, '--gin_file', '--gin_bindings', *further):
    assert f'\n  {each}: ' in done.stdout, done.stdout
  assert f'lambda-kit {name} --' in done.stdout  # The examples of its docstring.


def test_a_launcher_is_the_same_command():
  assert _python('launchers/run.py', '--help').stdout == _command('run', '--help').stdout
  for name in _SCRIPTS:
    text = (_ROOT / 'launchers' / f'{name}.py').read_text()
    assert f"main.main(['{name}', " in text and len(text.splitlines()) < 12


def test_a_python_that_is_too_old_is_told_in_one_sentence():
  """Its version is made up: what is read before the check has to be old syntax, which `ast` can tell."""
  source = (_ROOT / 'lambda_kit' / 'commands' / 'main.py').read_text()
  done = _python('-c', f'import sys; sys.version_info = (3, 10, 13, "final", 0)\nexec({source!r})')
  assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
  assert 'needs Python 3.11 or later, and this is Python 3.10' in done.stderr
  for path in ('launchers/run.py', 'lambda_kit/__init__.py', 'lambda_kit/__main__.py', 'lambda_kit/commands/main.py'):
    ast.parse((_ROOT / path).read_text(), feature_version=(3, 7))


@pytest.mark.parametrize(
  'error,numpy,told',
  [
    ("ImportError('no jax here')", '2.3.5', 'no jax here'),
    ("AttributeError('StringDType')", '1.26.4', 'numpy is 1.26.4, but lambda_kit needs >=2'),
  ],
)
def test_a_package_that_will_not_do_is_told_in_one_sentence(error, numpy, told, tmp_path):
  done = _run_with_jax(error, numpy, tmp_path)
  assert done.returncode == 1
  assert done.stderr == f'error: a package is missing or broken: {told}. `lambda-kit doctor` says what is wrong.\n'


def test_other_errors_keep_their_stack_trace(tmp_path):
  done = _run_with_jax("AttributeError('a fault of ours')", '2.3.5', tmp_path)
  assert done.returncode == 1 and 'Traceback' in done.stderr and 'a fault of ours' in done.stderr


def _run_with_jax(error, numpy, folder):
  """Where importing jax fails, and numpy says that it has some version."""
  (folder / 'jax.py').write_text(f'raise {error}')
  (folder / 'numpy.dist-info').mkdir()
  (folder / 'numpy.dist-info' / 'METADATA').write_text(f'Metadata-Version: 2.1\nName: numpy\nVersion: {numpy}\n')
  return _python(
    '-c',
    'import sys; sys.path.insert(0, sys.argv[1]); from lambda_kit.commands import main; main.main(["run"])',
    str(folder),
  )


def test_the_list_has_every_gin_file_with_its_header():
  done = _command('list')
  assert done.returncode == 0, done.stderr
  lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in done.stdout.splitlines() if line.startswith('  ')}
  gin = resources.root() / 'gin'
  on_an_axis = [*gin.glob('sg6_*.gin'), *(path for path in gin.glob('*/*.gin') if path.parent.name != 'base')]
  assert set(lines) == {path.stem.removeprefix('sg6_') for path in on_an_axis}
  assert lines['unsafe'] == "No constraint (the paper's first ablation)"
  assert _command('run', '--list').stdout == done.stdout
