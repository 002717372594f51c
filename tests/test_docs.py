"""What the Markdown files say exists: links, gin files, names of the grid, flags, parameters, functions."""

import ast
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_PAGES = sorted(path for folder in ('', 'docs', 'gin', 'results') for path in (_ROOT / folder).glob('*.md'))
_COMMANDS = [
  *(_ROOT / 'lambda_kit' / 'commands').glob('*.py'),
  _ROOT / 'benchmarks' / 'command.py',
  _ROOT / 'tests' / 'faults' / 'harness.py',
  _ROOT / 'tests' / 'environments' / 'record_episodes.py',
]
# Of other programs.
_FOREIGN = {
  'help',
  'array',
  'wrap',
  'time',
  'signal',
  'requeue',
  'open-mode',
  'logdir',
  'nodes',
  'ntasks-per-node',
  'gpus-per-node',
  'xla_force_host_platform_device_count',
}
_OWN = {'second_largest', 'mine', 'room.gin'}  # Files of a reader, which pages tell how to write.
_NAMES = re.compile(r'--(?:tasks?|size|agent|parts|variants)=([\w,+./<>-]+)')

of_all_pages = pytest.mark.parametrize('path', _PAGES, ids=lambda path: str(path.relative_to(_ROOT)))


@of_all_pages
def test_links_lead_to_files(path):
  text = path.read_text('utf-8')
  links = [link.partition('#')[0] for link in re.findall(r'\]\(([^)\s]+)\)', text) if '://' not in link]
  missing = [link for link in links if link and not (path.parent / link).exists()]
  assert not missing


@of_all_pages
def test_gin_files_exist(path):
  named = set(re.findall(r'\bgin/[\w/]+\.gin\b', path.read_text('utf-8')))
  assert not [name for name in named if not (_ROOT / name).exists() and pathlib.Path(name).stem not in _OWN]


@of_all_pages
def test_names_of_the_grid_exist(path):
  known = {file.stem for file in (_ROOT / 'gin').rglob('*.gin')}
  known |= {name.removeprefix('sg6_') for name in known} | {'sg6'} | _OWN | _parts_of_benchmarks()
  named = {
    name
    for value in _NAMES.findall(path.read_text('utf-8'))
    for name in re.split('[,+]', value)
    if not name.startswith(('<', 'Safety'))
  }
  assert not named - known


@of_all_pages
def test_flags_exist(path):
  defined = _FOREIGN.union(
    *(re.findall(r"(?:DEFINE_\w+|add_argument)\(\s*'(?:--)?(\w+)'", file.read_text('utf-8')) for file in _COMMANDS)
  )
  named = set(re.findall(r'(?<![\w-])--([a-z][\w-]*)', path.read_text('utf-8')))
  assert not {name for name in named if name not in defined and name.removeprefix('no') not in defined}


# The archive of results tells of parameters of its time, and the map of methods, which the last test is about.
@pytest.mark.parametrize(
  'path',
  sorted(set(_PAGES) - {_ROOT / 'WORKSPACE.md', _ROOT / 'results' / 'README.md'}),
  ids=lambda path: str(path.relative_to(_ROOT)),
)
def test_parameters_exist(path):
  entries = re.split(r'^### ', (_ROOT / 'docs' / 'components.md').read_text('utf-8'), flags=re.MULTILINE)[1:]
  parameters = {entry.split('\n', 1)[0]: entry for entry in entries}
  named = re.findall(r'`(?:[\w/]*/)?(\w+)\.(\w+)(?: = [^`]*)?`', path.read_text('utf-8'))
  wrong = [
    f'{name}.{parameter}'
    for name, parameter in named
    if name in parameters
    and f'{name}.{parameter} =' not in parameters[name]
    and f'`{parameter}`' not in parameters[name]
  ]
  assert not wrong


def test_the_front_page_is_short():
  assert len((_ROOT / 'README.md').read_text('utf-8').splitlines()) < 150


def test_every_page_of_docs_is_in_the_index():
  index = (_ROOT / 'docs' / 'README.md').read_text('utf-8')
  assert not [
    path.name for path in (_ROOT / 'docs').glob('*.md') if path.name != 'README.md' and f']({path.name})' not in index
  ]


def test_the_map_has_every_folder_and_module():
  text = (_ROOT / 'WORKSPACE.md').read_text('utf-8')
  package = _ROOT / 'lambda_kit'
  folders = {f'{path.parent.relative_to(package)}/' for path in package.rglob('__init__.py')} - {'./'}
  modules = {path.name for path in package.glob('*.py') if not path.name.startswith('__')}
  assert not {name for name in folders | modules if f'`{name}`' not in text}


def test_the_way_of_a_transition_names_what_exists():
  text = (_ROOT / 'WORKSPACE.md').read_text('utf-8')
  section = text.partition('## The way of one transition')[2].partition('\n## ')[0]
  rows = re.findall(r'^\| [^|]+ \| `([\w/]+\.py)` \| ([^|]+) \|$', section, re.MULTILINE)
  files = [file for file, _ in rows]
  assert len(rows) > 20 and len(set(files)) == len(files), 'The way goes through each file once.'
  for file, functions in rows:
    defined = _definitions(_ROOT / 'lambda_kit' / file)
    assert not set(re.findall(r'`([\w.]+)`', functions)) - defined, file


def test_examples_of_extending_run(tmp_path):
  """A bound and an environment, written to files and run as the page tells."""
  text = (_ROOT / 'docs' / 'extending.md').read_text('utf-8')
  for name in ('my_parts.py', 'gin/parts/second_largest.gin', 'my_rooms.py', 'room.gin'):
    code = re.search(rf'`{name}`:\n\n((?:(?:    .*)?\n)+)', text).group(1)
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(code), 'utf-8')
  command = [sys.executable, '-m', 'lambda_kit', 'run', '--task=room.gin', '--parts=second_largest', '--dry_run']
  env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(_ROOT), '.']))
  done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
  assert done.returncode == 0 and 'LambdaAgent.cost_bound = @SecondLargest()' in done.stdout, done.stderr


def _definitions(path: pathlib.Path) -> set[str]:
  """Functions, classes and methods of a file."""
  found = set()
  for node in ast.parse(path.read_text('utf-8')).body:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
      found.add(node.name)
      found |= {f'{node.name}.{inner.name}' for inner in node.body if isinstance(inner, ast.FunctionDef)}
  return found


def _parts_of_benchmarks() -> set[str]:
  text = (_ROOT / 'benchmarks' / 'command.py').read_text('utf-8')
  return set(re.findall(r'\w+', re.search(r"'What to measure, (.*?)\.'\)", text, re.DOTALL).group(1)))
