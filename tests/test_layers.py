"""Imports point one way: from commands down to types; tests share fakes alone. Read from the source, not imported."""

import ast
import pathlib

import pytest

_PACKAGE = pathlib.Path(__file__).resolve().parents[1] / 'lambda_kit'
# From the bottom up: a module imports those of its own layer and of layers before it.
_LAYERS = (
  'types',
  'resources',
  'errors',
  'ranges',
  'files',
  'reading',
  'signals',
  'core',
  'environments',
  'replay',
  'models',
  'posteriors',
  'safety',
  'policies',
  'planners',
  'agents',
  'config',
  'analysis',
  'logs',
  'training',
  'sweeps',
  'components',
  'commands',
)


def _modules() -> dict[str, pathlib.Path]:
  """Paths by dotted name, without the package's own front doors."""
  names = {path: '.'.join(path.relative_to(_PACKAGE.parent).with_suffix('').parts) for path in _PACKAGE.rglob('*.py')}
  return {
    name.removesuffix('.__init__'): path
    for path, name in names.items()
    if path.parent != _PACKAGE or not path.name.startswith('__')
  }


def _imported_names(path: pathlib.Path) -> set[str]:
  """Dotted names of everything that a file imports, including inside functions."""
  found = set()
  for node in ast.walk(ast.parse(path.read_text('utf-8'))):
    if isinstance(node, ast.Import):
      found |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      assert not node.level, f'{path} has a relative import'
      found |= {node.module, *(f'{node.module}.{alias.name}' for alias in node.names)}
  return found


def _imports(name: str, path: pathlib.Path, modules: dict[str, pathlib.Path]) -> set[str]:
  """The modules of the package that a file imports."""
  found = _imported_names(path)
  return {module for module in found if module in modules and module != name and modules[module].name != '__init__.py'}


_GRAPH = {name: _imports(name, path, _modules()) for name, path in _modules().items()}


def _layer(name: str) -> int:
  return _LAYERS.index(name.split('.')[1])


@pytest.mark.parametrize('name', sorted(_GRAPH))
def test_nothing_is_imported_from_above(name):
  above = [module for module in _GRAPH[name] if _layer(module) > _layer(name)]
  assert not above, f'{name} imports {sorted(above)}, of layers above its own: pass what it needs, or move it.'


def test_benchmarks_are_imported_by_their_command_alone():
  importing = {
    name
    for name, path in _modules().items()
    if any(module.split('.')[0] == 'benchmarks' for module in _imported_names(path))
  }
  assert importing == {'lambda_kit.commands.benchmark'}


def test_there_is_no_cycle():
  finished, path = set(), []

  def visit(name):
    assert name not in path, ' -> '.join([*path[path.index(name) :], name])
    if name not in finished:
      path.append(name)
      for module in sorted(_GRAPH[name]):
        visit(module)
      finished.add(path.pop())

  for name in sorted(_GRAPH):
    visit(name)


def test_the_graph_is_that_of_the_package():
  assert 'lambda_kit.safety.budgets' in _GRAPH['lambda_kit.agents.lambda_.config']
  assert {name.split('.')[1] for name in _GRAPH} <= set(_LAYERS)


def test_no_test_module_is_imported():
  tests = pathlib.Path(__file__).parent
  importing = [
    f'{path.relative_to(tests)}: {name}'
    for path in tests.rglob('*.py')
    for name in _imported_names(path)
    if name.startswith('tests.') and any(part.startswith('test_') for part in name.split('.'))
  ]
  assert not importing, f'Move what they share to tests/fakes/: {importing}'
