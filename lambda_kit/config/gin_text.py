"""Reads the bindings of gin files without importing the components that they configure, which is slow.

Values are Python's; references and macros in them stay text: `@UpperBound()`, `%WIDTH`.
"""

from collections.abc import Mapping, Sequence
import hashlib
import pathlib
import tokenize
from typing import Any

from gin import config_parser
from lambda_kit.config import configuration

Bindings = Mapping[str, Any]

# How a run is named, filmed, stored and placed on devices, none of which affects its outcome.
_IMMATERIAL = frozenset(
  f'experiment.{name}'
  for name in ('seed', 'title', 'with_video', 'checkpoint_steps', 'checkpoint_seconds', 'keep_checkpoints')
) | {'LambdaAgent.num_devices'}


class GinTextError(ValueError):
  """A file is not gin text, or a file that it includes is missing."""


class Symbol(str):
  """A reference or macro. Its `repr` is gin text."""

  def __repr__(self) -> str:
    return str(self)


class _Delegate(config_parser.ParserDelegate):
  def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> Symbol:
    return Symbol(f'@{scoped_configurable_name}{"()" if evaluate else ""}')

  def macro(self, macro_name: str) -> Symbol:
    return Symbol(f'%{macro_name}')


def read_bindings(text: str) -> dict[str, Any]:
  """The bindings of a text without includes, such as a run's config.gin."""
  return _collect(text, None, {})


def read_layers(paths: Sequence[str], root: pathlib.Path) -> dict[str, Any]:
  """The bindings of files and all they include; later ones win. Paths are relative to `root`."""
  bindings: dict[str, Any] = {}
  for path in paths:
    _collect(_read(root / path), root, bindings)
  return bindings


def resolve(bindings: Bindings, value: Any) -> Any:
  """A value with macros replaced by their values."""
  if isinstance(value, Symbol) and value.startswith('%'):
    return resolve(bindings, bindings[value[1:]]) if value[1:] in bindings else value
  if isinstance(value, (list, tuple)):
    return type(value)(resolve(bindings, item) for item in value)
  return value


def get(bindings: Bindings, key: str, default: Any = None) -> Any:
  """The value of a parameter, with macros replaced."""
  return resolve(bindings, bindings[key]) if key in bindings else default


def material_lines(bindings: Bindings) -> list[str]:
  """All bindings that can change the outcome, except the seed: sorted lines, with macros replaced."""
  return sorted(
    f'{key} = {configuration.format_value(resolve(bindings, value))}'
    for key, value in bindings.items()
    if '.' in key and key not in _IMMATERIAL
  )


def config_hash(bindings: Bindings) -> str:
  """A hash that all seeds of an experiment share, and with high probability no other experiment."""
  return hashlib.sha256('\n'.join(material_lines(bindings)).encode()).hexdigest()[:12]


def differing_lines(before: Sequence[str], after: Sequence[str]) -> list[str]:
  """The difference between two configurations' `material_lines`: lines after '- ' and '+ ', sorted by their keys.

  It takes a moment for lines of any kind and number: `difflib` would take hours for some.
  """
  lines = {f'- {line}' for line in {*before} - {*after}} | {f'+ {line}' for line in {*after} - {*before}}
  return sorted(lines, key=lambda line: (line[2:].partition(' = ')[0], line[0] == '+', line))


def _collect(text: str, root: pathlib.Path | None, bindings: dict[str, Any]) -> dict[str, Any]:
  try:
    for statement in config_parser.ConfigParser(text, _Delegate()):
      if isinstance(statement, config_parser.IncludeStatement):
        if root is None:
          raise GinTextError(f'unexpected include of {statement.filename!r}')
        _collect(_read(root / statement.filename), root, bindings)
      elif isinstance(statement, config_parser.BindingStatement):
        scope = f'{statement.scope}/' if statement.scope else ''
        name = f'{statement.selector}.{statement.arg_name}' if statement.arg_name else statement.selector
        bindings[scope + name] = statement.value
  except (SyntaxError, ValueError, TypeError, RecursionError, tokenize.TokenError) as error:
    if isinstance(error, GinTextError):
      raise
    raise GinTextError(f'not gin text: {str(error).partition(chr(10))[0]}') from error
  return bindings


def _read(path: pathlib.Path) -> str:
  try:
    return path.read_text('utf-8')
  except (OSError, ValueError) as error:
    raise GinTextError(f'{path} cannot be read: {error}') from error
