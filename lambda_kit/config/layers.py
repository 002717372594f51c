"""Reads gin files and flags into gin's configuration, and records where each binding comes from.

Each statement is parsed by gin. The loop around it is ours, since gin doesn't keep files and lines.
"""

from collections.abc import Sequence
import pathlib
import re
import tokenize
from typing import Any, NamedTuple, NoReturn

import gin
from lambda_kit.config import axes
from lambda_kit.config import gin_internals

FLAG = '--gin_bindings'
ConfigurationError = axes.ConfigurationError
did_you_mean = axes.did_you_mean

_statements: dict[str, list[Any]] = {}  # By text. Cached, since a sweep reads the same files for each run.


class Binding(NamedTuple):
  """A binding that was read."""

  key: gin_internals.Key
  value: Any
  source: str  # 'gin/agents/lambda.gin:12', or the flag.
  file: axes.File | None  # The chosen file that holds or includes it; None for a flag.

  @property
  def is_typed(self) -> bool:
    """Whether the user wrote it for this run. Files on an axis also serve runs with other parts."""
    return self.file is None or self.file.axis is axes.Axis.OWN


class Reader:
  """Reads files and flags in turn. Later bindings win.

  Args:
    library: Finds the files.
    with_imports: Whether to execute import statements, or to refuse them.
  """

  def __init__(self, library: axes.Library, with_imports: bool = True):
    self._library = library
    self._with_imports = with_imports
    self._open_files: list[pathlib.Path] = []
    self._file: axes.File | None = None
    self.history: list[Binding] = []
    self.ends: list[int] = []  # The number of bindings read at the end of each file, included files too.

  def read_file(self, file: axes.File) -> None:
    self._file = file
    self._read_text(file)
    self._file = None

  def read_flags(self, bindings: Sequence[str]) -> None:
    for binding in bindings:
      self._read(binding, None)

  def _read_text(self, file: axes.File) -> None:
    self._open_files.append(file.path)
    self._read(file.text, file.name)
    self._open_files.pop()
    self.ends.append(len(self.history))

  def _include(self, name: str, source: str) -> None:
    if self._file is not None and axes.is_other_axis(self._file.axis, name):
      return  # It is read in its own turn.
    file = self._library.open(name, source)
    if file.path in self._open_files:
      raise ConfigurationError(f'{source}: {name} includes itself, directly or through other files.')
    self._read_text(file)

  def _read(self, text: str, name: str | None) -> None:
    """Reads the text of a file, or of a flag if `name` is None."""

    def source(line: int) -> str:
      return f'{name}:{line}' if name else f'{FLAG}="{" ".join(text.split())}"'

    if text in _statements:
      for statement in _statements[text]:
        self._execute(statement, source(statement.location.line_num))
      return
    line = 1
    try:
      statements = []
      parser = gin_internals.make_parser(text)
      while True:
        line = gin_internals.next_line(parser)
        statement = parser.parse_statement()
        if statement is None:
          break
        self._execute(statement, source(statement.location.line_num))
        statements.append(statement)
      # Not cached with imports, since they can change what a name means.
      if name and not any(isinstance(each, gin_internals.ImportStatement) for each in statements):
        _statements[text] = statements
    except ConfigurationError:
      raise
    except SyntaxError as error:
      _raise_syntax_error(source(error.lineno or line), error)
    except tokenize.TokenError:
      raise ConfigurationError(f'{source(line)}: a bracket or quote that opens here is never closed.') from None
    except RecursionError:
      raise ConfigurationError(f'{source(line)}: brackets are nested too deeply.') from None
    except (
      KeyError,
      TypeError,
      ValueError,
    ) as error:  # Such as: two constants match a name, or a parameter is denylisted.
      raise ConfigurationError(f'{source(line)}: {_first_line(error)}') from None

  def _execute(self, statement: Any, source: str) -> None:
    match statement:
      case gin_internals.IncludeStatement():
        self._include(statement.filename, source)
      case gin_internals.ImportStatement():
        if statement.module.startswith('__gin__'):
          raise ConfigurationError(f'{source}: dynamic registration is not supported. Use @gin.register.')
        if not self._with_imports:
          raise ConfigurationError(
            f'{source}: `{statement.format()}` would run code that this file names. If you trust whoever wrote it, add '
            '--trust.'
          )
        try:
          gin.parse_config(statement.format())
        except (ImportError, SyntaxError) as error:
          raise ConfigurationError(f"{source}: can't import {statement.module}: {_first_line(error)}") from None
      case gin_internals.BlockDeclaration():
        resolve(statement.selector, source)
      case gin_internals.BindingStatement():
        self._bind(statement, source)

  def _bind(self, statement: gin_internals.BindingStatement, source: str) -> None:
    scope, name, parameter, value, _ = statement
    if not parameter:
      key = gin_internals.Key('/'.join(filter(None, [scope, name])), gin_internals.MACRO, 'value')
    else:
      selector = resolve(name, source)
      key = gin_internals.Key(scope, selector, parameter)
      signature = gin_internals.signature(selector)
      if parameter not in signature.parameters and not signature.anything:
        parameters = ', '.join(signature.parameters)
        known = f' It has: {parameters}.' if parameters else ' It has none.'
        suggestion = did_you_mean(parameter, signature.parameters) or known
        raise ConfigurationError(f"{source}: {name} has no parameter '{parameter}'.{suggestion}")
    for unknown in gin_internals.unknown_names(value):
      resolve(unknown, source, f' in the value of {key}')
    gin.bind_parameter(key, value)
    self.history.append(Binding(key, value, source, self._file))


def resolve(name: str, source: str, context: str = '') -> str:
  """The complete selector of a configurable. Raises a `ConfigurationError` unless there is exactly one."""
  selectors = gin_internals.matching_selectors(name)
  if not selectors:
    suggestion = did_you_mean(name, gin_internals.registered_names())
    raise ConfigurationError(f"{source}: there is no configurable '{name}'{context}.{suggestion}")
  if len(selectors) > 1:
    raise ConfigurationError(f"{source}: '{name}'{context} can mean {' or '.join(selectors)}.")
  return selectors[0]


def _raise_syntax_error(source: str, error: SyntaxError) -> NoReturn:
  bare_word = re.search(r"Failed to parse token '(-?\w+)'", error.msg)
  if bare_word:
    word = bare_word[1]
    constant = word.capitalize() in ('True', 'False', 'None')
    hint = f'Did you mean {word.capitalize()}?' if constant else f"A string needs quotes: '{word}'."
    message = f"'{word}' is not a value. {hint}"
  else:
    message = f'syntax error: {_first_line(error.msg)}'
  text = (error.text or '').strip()
  in_file = f'\n    {text}' if text and not source.startswith(FLAG) else ''
  raise ConfigurationError(f'{source}: {message}{in_file}') from None


def _first_line(error: object) -> str:
  return (str(error).splitlines() or [''])[0].strip('"')
