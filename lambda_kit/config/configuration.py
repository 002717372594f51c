"""Reads the configuration of a run from gin files and flags, and refuses one that doesn't do what it says.

    configuration.parse(['gin/sg6_pointgoal1.gin', 'gin/variants/greedy.gin'], ['SEED = 3'], search_paths=[repo_root])

Each file is a layer, and the flags are the last one. Later bindings win. Everything that gin would ignore or report too
late is a `ConfigurationError` with one line for each problem: what, where, and what may have been meant.
"""

import difflib
import math
import os
import pathlib
import re
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

import gin

from lambda_kit.config import checks
from lambda_kit.config import gin_internals
from lambda_kit.config import layers

ConfigurationError = layers.ConfigurationError
Key = gin_internals.Key


class _Parsed(NamedTuple):
  """What the last `parse` found. It is global, as gin's configuration is."""
  root: str = ''
  sources: dict[Key, str] = {}
  superseded: Sequence[Key] = ()


_parsed = _Parsed()


def parse(gin_files: Sequence[str], bindings: Sequence[str] = (), search_paths: Sequence[str] = (),
          root: str = 'run_experiment') -> None:
  """Replaces gin's configuration by that of the files and flags, and checks it without building anything.

  Args:
    gin_files: paths, from the working directory or a search path.
    bindings: single bindings, such as "Swag.decay = 0.9".
    search_paths: folders where gin files, included ones too, are looked up after the working directory.
    root: name of the configurable that runs everything: what it doesn't lead to is not used.

  Raises:
    ConfigurationError: a file or an import is missing, a statement can't be read, a name is unknown, a value is
      missing, or a binding configures nothing.
  """
  global _parsed
  gin.clear_config()
  _parsed = _Parsed()
  reader = layers.Reader(search_paths)
  for gin_file in gin_files:
    reader.read_file(gin_file)
  reader.read_flags(bindings)
  selector = layers.resolve(root, 'the root of the configuration')
  superseded = checks.Checker(selector, reader.history, reader.snapshots).check()
  _parsed = _Parsed(selector, {binding.key: binding.source for binding in reader.history}, superseded)


def superseded_bindings() -> list[str]:
  """Bindings whose part a later layer swapped for another, each with its source. Worth a line in the log."""
  return [f'{key} = {checks.shorten(value)} ({_parsed.sources[key]})'
          for key, value in gin_internals.bindings().items() if key in _parsed.superseded]


def check_operative(later: Sequence[str] = ()) -> None:
  """Checks, after the first learner step, that the run has used each binding.

  Args:
    later: names of configurables that are first called after this, in evaluations for example.

  Raises:
    ConfigurationError: some binding was not used: its part was not called, or not in this scope, or its callers pass
      the argument themselves.
  """
  selectors = {selector for name in later for selector in gin_internals.matching_selectors(name)}
  config = gin_internals.bindings()
  unused = checks.find_unused(_parsed.root, config, selectors)
  if unused:
    raise ConfigurationError('\n'.join(f'{_parsed.sources.get(key, "Python")}: {key} configures nothing: {reason}.'
                                       for key, reason in unused.items()))


def resolved_config() -> str:
  """The whole configuration as gin text that `parse` accepts, with the source of each binding.

  Superseded bindings are comments: in a single file they would be errors.
  """
  superseded = superseded_bindings()
  config = {key: value for key, value in gin_internals.bindings().items() if key not in _parsed.superseded}
  comments = ['# Superseded by later layers', *(f'# {line}' for line in superseded), ''] if superseded else []
  return _format_config(config, _parsed.sources) + '\n'.join(['', *comments] if comments else [])


def save_config(path: str | os.PathLike[str]) -> None:
  """Writes `resolved_config`. `parse([path])` leads to the same configuration."""
  write_file(path, resolved_config())


def differing_lines(before: str, after: str) -> list[str]:
  """What changed between two texts of `resolved_config`: '- ' and '+ ' with a line each. Comments count for nothing."""
  strip = lambda text: [re.sub(r'\s+# \S+$', '', line) for line in text.splitlines() if line and line[0] != '#']
  return [line for line in difflib.ndiff(strip(before), strip(after)) if line[0] in '+-']


def save_operative_config(path: str | os.PathLike[str], replaced: Mapping[str, Any] | None = None) -> None:
  """Writes the parameters that the run has used so far, defaults included; some of them with other values, by name."""
  replaced = replaced or {}
  bindings = {key: replaced.get(f'{gin_internals.short_name(key.selector)}.{key.parameter}', value)
              for key, value in gin_internals.operative_bindings().items()}
  write_file(path, _format_config(bindings, {}))


def format_error(error: Exception) -> str:
  """The message of an error, without the configurables that gin lists if the error passes through any."""
  return re.sub(r"\n  In call to configurable '.*", '', str(error))


def is_refused_value(error: ValueError) -> bool:
  """Whether a component refused a value while gin built it as an argument of the experiment, before that began."""
  inside = re.findall(r"\n  In call to configurable '([^']*)'", str(error))
  return bool(inside) and 'run_experiment' not in inside


def _format_config(config: Mapping[Key, Any], sources: Mapping[Key, str]) -> str:
  """Formats bindings, macros first, in blocks by configurable and scope.

  Unlike `gin.config_str` this keeps infinite values, which gin drops, and the order of dictionaries.
  """
  blocks: dict[tuple[bool, str, str], list[str]] = {}
  for key, value in sorted(config.items(), key=lambda item: str(item[0])):
    is_macro = key.selector == gin_internals.MACRO
    title = 'Macros' if is_macro else gin_internals.short_name(key.selector)
    scope = '' if is_macro else key.scope
    # Of a flag only the name: the rest repeats the binding.
    source = f'  # {sources[key].partition("=")[0]}' if key in sources else ''
    block = blocks.setdefault((not is_macro, title.lower(), scope), [f'# {"/".join(filter(None, [scope, title]))}'])
    block.append(f'{key} = {format_value(value)}{source}')
  imports = [gin_internals.imports()] if gin_internals.imports() else []
  return '\n'.join('\n'.join(lines) + '\n' for lines in [*imports, *(blocks[index] for index in sorted(blocks))])


def format_value(value: Any, width: int = 100) -> str:
  """A value as gin text, over several lines if it is longer than `width`."""
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


def write_file(path: str | os.PathLike[str], text: str) -> None:
  """Writes to a temporary file and renames it, so that nobody finds half a file."""
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(f'.{path.name}.{os.getpid()}.tmp')
  try:
    temporary.write_text(text, encoding='utf-8')
    temporary.replace(path)
  except OSError as error:
    raise OSError(error.errno, f'The configuration can not be written: {error.strerror or error}', str(path)) from error
  finally:
    temporary.unlink(missing_ok=True)
