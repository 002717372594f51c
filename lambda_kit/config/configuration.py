"""Reads a run's configuration from gin files and flags, and refuses one that doesn't do what it says.

    configuration.parse(['gin/sg6_pointgoal1.gin', 'gin/parts/greedy.gin'], ['WIDTH = 8'], search_paths=[repo_root])

Files are read in the order of their axes (`axes`), then the flags. Later bindings win. What gin would ignore or report
too late is a `ConfigurationError`, with a line for each problem: what, where, and what the user may have meant.
"""

from collections.abc import Iterable, Mapping, Sequence
import difflib
import itertools
import math
import os
import re
from typing import Any, NamedTuple

from absl import logging

import gin
from lambda_kit import files
from lambda_kit.config import axes
from lambda_kit.config import checks
from lambda_kit.config import expansion
from lambda_kit.config import gin_internals
from lambda_kit.config import layers

ConfigurationError = axes.ConfigurationError
Key = gin_internals.Key


class _Parsed(NamedTuple):
  """The result of the last `parse`. It is global, like gin's configuration."""

  root: str = ''
  bindings: dict[Key, layers.Binding] = {}
  unused: Sequence[Key] = ()


_parsed = _Parsed()


def parse(
  gin_files: Sequence[str],
  bindings: Sequence[str] = (),
  search_paths: Sequence[str] = (),
  root: str = 'experiment',
  task: str | None = None,
  with_imports: bool = True,
) -> None:
  """Replaces gin's configuration by that of the files and flags, and checks it without building anything.

  Args:
    gin_files: Paths, relative to the working directory or a search path, in any order.
    bindings: Single bindings, such as "Swag.decay = 0.9".
    search_paths: Folders in which gin files, also included ones, are looked up after the working directory.
    root: Name of the configurable that runs everything: what it doesn't lead to is unused.
    task: A gin file to use as the task, whatever its folder.
    with_imports: Whether import statements are executed. If not, they are refused.

  Raises:
    ConfigurationError: A file or an import is missing, two files can't meet, a statement can't be read, a name is
      unknown, a value is missing or of the wrong kind, or a binding configures nothing.
  """
  global _parsed
  gin.clear_config()
  _parsed = _Parsed()
  library = axes.Library(search_paths)
  reader = layers.Reader(library, with_imports)
  for file in library.arrange(gin_files, task):
    reader.read_file(file)
  reader.read_flags(bindings)
  bound = {binding.key: binding for binding in reader.history}
  expansion.check(bound)
  selector = layers.resolve(root, 'the root of the configuration')
  unused = checks.Checker(selector, reader.history, reader.ends).check()
  _parsed = _Parsed(selector, bound, unused)


def unused_bindings() -> list[str]:
  """Bindings of parts that this run doesn't use, each with its source."""
  return [
    f'{key} = {checks.shorten(_parsed.bindings[key].value)} ({_parsed.bindings[key].source})'
    for key in sorted(_parsed.unused, key=str)
  ]


def check_operative(later: Sequence[str] = ()) -> None:
  """Checks, after the first learner step, that the run has used each binding.

  Unused bindings of files on an axis are only logged: a size, for example, also serves other observations.

  Args:
    later: Names of configurables that are first called after this, e.g. in evaluations.

  Raises:
    ConfigurationError: A binding of a flag or of the user's own file was not used: its part was not called, or not in
      this scope, or its callers pass the argument themselves.
  """
  selectors = {selector for name in later for selector in gin_internals.matching_selectors(name)}
  unused = checks.find_unused(_parsed.root, gin_internals.bindings(), selectors)
  problems = []
  for key, reason in unused.items():
    binding = _parsed.bindings.get(key)
    line = f'{binding.source if binding else "Python"}: {key} configures nothing: {reason}.'
    if binding is None or binding.is_typed:
      problems.append(line)
    else:
      logging.info('Not in use: %s', line)
  if problems:
    raise ConfigurationError('\n'.join(problems))


def resolved_config() -> str:
  """The whole configuration as gin text that `parse` accepts, with the source of each binding.

  Unused bindings are comments: in a user's own file they would be errors.
  """
  config = {key: value for key, value in gin_internals.bindings().items() if key not in _parsed.unused}
  comments = ['', '# Not in use', *(f'# {line}' for line in unused_bindings()), ''] if _parsed.unused else []
  sources = {key: binding.source for key, binding in _parsed.bindings.items()}
  return f'{axes.SAVED}\n\n{_format_config(config, sources)}' + '\n'.join(comments)


def save_config(path: str | os.PathLike[str]) -> None:
  """Writes `resolved_config`. `parse([path])` restores the configuration."""
  _write(path, resolved_config())


def differing_lines(before: str, after: str) -> list[str]:
  """The difference between two texts of `resolved_config`: lines after '- ' and '+ '. Comments are ignored.

  Not by `difflib.ndiff`, which takes hours for some texts of a few thousand lines.
  """
  strip = lambda text: [
    re.sub(r'  # (?:(?!  # ).)*$', '', line) for line in text.splitlines() if line and line[0] != '#'
  ]
  lines = difflib.unified_diff(strip(before), strip(after), lineterm='', n=0)
  return [f'{line[0]} {line[1:]}' for line in itertools.islice(lines, 2, None) if line[0] in '+-']  # After two headers.


def save_operative_config(path: str | os.PathLike[str], replaced: Mapping[str, Any] | None = None) -> None:
  """Writes the parameters that the run has used so far, with defaults; `replaced` overrides some values by name."""
  replaced = replaced or {}
  bindings = {
    key: replaced.get(f'{gin_internals.short_name(key.selector)}.{key.parameter}', value)
    for key, value in gin_internals.operative_bindings().items()
  }
  _write(path, _format_config(bindings, {}))


def format_error(error: Exception) -> str:
  """The message of an error, without gin's list of the configurables that it passed through."""
  return re.sub(r"\n  In call to configurable '.*", '', str(error))


def is_refused_value(error: ValueError) -> bool:
  """Whether a component refused a value while gin was building it for the experiment, before that was called."""
  inside = re.findall(r"\n  In call to configurable '([^']*)'", str(error))
  return bool(inside) and 'experiment' not in inside


def _format_config(config: Mapping[Key, Any], sources: Mapping[Key, str]) -> str:
  """Formats bindings, macros first, in blocks by configurable and scope.

  Unlike `gin.config_str` this keeps infinite values, which gin drops, and the order of dictionaries.
  """
  blocks: dict[tuple[bool, str, str], list[str]] = {}
  for key, value in sorted(config.items(), key=lambda item: str(item[0])):
    is_macro = key.selector == gin_internals.MACRO
    title = 'Macros' if is_macro else gin_internals.short_name(key.selector)
    scope = '' if is_macro else key.scope
    # Only the name of a flag: the rest repeats the binding.
    source = f'  # {sources[key].partition("=")[0]}' if key in sources else ''
    block = blocks.setdefault((not is_macro, title.lower(), scope), [f'# {"/".join(filter(None, [scope, title]))}'])
    block.append(f'{key} = {format_value(value)}{source}')
  imports = [gin_internals.imports()] if gin_internals.imports() else []
  return '\n'.join('\n'.join(lines) + '\n' for lines in [*imports, *(blocks[index] for index in sorted(blocks))])


def format_value(value: Any, width: int = 100) -> str:
  """A value as gin text, on several lines if it is longer than `width`."""

  def enclose(items: Iterable[str], opening: str, closing: str) -> str:
    items = list(items)
    line = f'{opening}{", ".join(items)}{closing}'
    if len(line) <= width:
      return line
    indented = [item.replace('\n', '\n    ') for item in items]
    return '\n'.join([opening, *(f'    {item},' for item in indented), closing])

  match value:
    case float() if math.isinf(value):
      return '1e999' if value > 0 else '-1e999'
    case dict():
      return enclose((f'{format_value(key)}: {format_value(item)}' for key, item in value.items()), '{', '}')
    case list():
      return enclose(map(format_value, value), '[', ']')
    case tuple() if len(value) == 1:
      return f'({format_value(value[0])},)'
    case tuple():
      return enclose(map(format_value, value), '(', ')')
  return repr(value)


def _write(path: str | os.PathLike[str], text: str) -> None:
  try:
    files.write_atomically(path, text)
  except OSError as error:
    raise OSError(error.errno, f'The configuration cannot be written: {error.strerror or error}', str(path)) from error
