"""Reads gin files and flags into gin's configuration, and remembers where each binding comes from.

gin's own parser is used for each statement. The loop around it is ours, since gin forgets files and lines, and since
what a binding was good for has to be judged by the layers up to its own (see `gin_checks`).
"""

import difflib
import os
import pathlib
import re
import tokenize
from typing import Any, Iterable, NamedTuple, NoReturn, Sequence

import gin

from lambda_kit.config import gin_internals

FLAG = '--gin_bindings'


class ConfigurationError(ValueError):
  """The configuration is wrong. The message is meant for people: it needs no stack trace."""


class Binding(NamedTuple):
  key: gin_internals.Key
  value: Any
  source: str  # 'gin/base/lambda.gin:12', or the flag


class Snapshot(NamedTuple):
  """The configuration at the end of a file, or of the flags."""
  num_read: int  # bindings read until then
  config: dict[gin_internals.Key, Any]


def nearest(name: str, candidates: Iterable[str]) -> str | None:
  """The candidate that `name` may be a misspelling of."""
  by_lower_case = {candidate.lower(): candidate for candidate in sorted(set(candidates) - {name})}
  matches = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.6)
  return by_lower_case[matches[0]] if matches else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
  """' Did you mean X?' with the nearest candidate, or '' if none is near."""
  match = nearest(name, candidates)
  return f' Did you mean {match}?' if match else ''


class Reader:
  """Reads layers one after the other. Later bindings win."""

  def __init__(self, search_paths: Sequence[str]):
    self._roots = [pathlib.Path(path) for path in ('', *search_paths)]
    self._open_files: list[pathlib.Path] = []
    self.history: list[Binding] = []
    self.snapshots: list[Snapshot] = []

  def read_file(self, name: str, included_from: str = '') -> None:
    path = self._find(name, included_from)
    if path in self._open_files:
      raise ConfigurationError(f'{included_from}: {name} includes itself, directly or through other files.')
    self._open_files.append(path)
    self._read(path.read_text(encoding='utf-8'), name)
    self._open_files.pop()
    self._take_snapshot()

  def read_flags(self, bindings: Sequence[str]) -> None:
    for binding in bindings:
      self._read(binding, None)
    self._take_snapshot()

  def _take_snapshot(self) -> None:
    self.snapshots.append(Snapshot(len(self.history), gin_internals.bindings()))

  def _find(self, name: str, included_from: str) -> pathlib.Path:
    for root in self._roots:
      if (root / name).is_file():
        return (root / name).resolve()
    where = f'{included_from}: ' if included_from else ''
    roots = ', '.join(dict.fromkeys(str(root.resolve()) for root in self._roots))
    looked_in = '' if os.path.isabs(name) else f' in {roots}'
    raise ConfigurationError(f'{where}there is no file {name}{looked_in}.{self._suggest_file(name)}')

  def _suggest_file(self, name: str) -> str:
    """The gin file whose name is nearest, in the folder that was asked for, in gin/ or at the top."""
    near: dict[str, list[str]] = {}
    for root in self._roots:
      for path in [*(root / name).parent.glob('*.gin'), *(root / 'gin').rglob('*.gin'), *root.glob('*.gin')]:
        near.setdefault(path.name, []).append(str(path if os.path.isabs(name) else path.relative_to(root)))
    matches = difflib.get_close_matches(os.path.basename(name), near, n=1, cutoff=0.6)
    if not matches:
      return ''
    # Of several files of this name, the one with the nearest path.
    return f' Did you mean {difflib.get_close_matches(name, near[matches[0]], n=1, cutoff=0)[0]}?'

  def _read(self, text: str, name: str | None) -> None:
    """Reads the text of a file, or of a flag if `name` is None."""
    def source(line: int) -> str:
      return f'{name}:{line}' if name else f'{FLAG}="{" ".join(text.split())}"'

    line = 1
    try:
      parser = gin_internals.make_parser(text)
      while True:
        line = gin_internals.next_line(parser)
        statement = parser.parse_statement()
        if statement is None:
          return
        self._execute(statement, source(statement.location.line_num))
    except ConfigurationError:
      raise
    except SyntaxError as error:
      _raise_syntax_error(source(error.lineno or line), error)
    except tokenize.TokenError:
      raise ConfigurationError(f'{source(line)}: a bracket or quote that opens here is never closed.') from None
    except (KeyError, ValueError) as error:  # Among others: two constants match a name, a parameter is denylisted.
      raise ConfigurationError(f'{source(line)}: {_first_line(error)}') from None

  def _execute(self, statement: Any, source: str) -> None:
    match statement:
      case gin_internals.IncludeStatement():
        self.read_file(statement.filename, source)
      case gin_internals.ImportStatement():
        if statement.module.startswith('__gin__'):
          raise ConfigurationError(f'{source}: dynamic registration is not supported. Use @gin.register.')
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
    for reference in gin_internals.references(value):
      if isinstance(reference, gin_internals.UnknownReference):
        resolve(reference.name, source, f' in the value of {key}')
    gin.bind_parameter(key, value)
    self.history.append(Binding(key, value, source))


def resolve(name: str, source: str, context: str = '') -> str:
  """The complete selector of a configurable. Raises a `ConfigurationError` if there is none, or more than one."""
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
