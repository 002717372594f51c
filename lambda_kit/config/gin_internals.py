"""Gin's private parts, behind functions (`environments/processes/factories` is the other file that needs some).

They are those of gin-config 0.5.0, which pyproject.toml pins.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import functools
import inspect
import typing
from typing import Any, NamedTuple, TypeAlias

from gin import config as gin_config
from gin import config_parser

BindingStatement = config_parser.BindingStatement
BlockDeclaration = config_parser.BlockDeclaration
ImportStatement = config_parser.ImportStatement
IncludeStatement = config_parser.IncludeStatement
Parser: TypeAlias = config_parser.ConfigParser
Reference: TypeAlias = gin_config.ConfigurableReference

# gin's own configurables. `%NAME` is short for `@NAME/gin.macro()`, and `NAME = 1` for `NAME/gin.macro.value = 1`.
MACRO = 'gin.macro'
CONSTANT = 'gin.constant'
SINGLETON = 'gin.singleton'


class Key(NamedTuple):
  """What a binding sets."""

  scope: str  # 'a/b', or '' outside any scope; for a macro, its name
  selector: str  # complete: with the module
  parameter: str

  def __str__(self) -> str:
    if self.selector == MACRO:
      return self.scope
    return '/'.join(filter(None, [self.scope, f'{short_name(self.selector)}.{self.parameter}']))


class UnknownReference(NamedTuple):
  """Stands in a value where a reference names no configurable, or more than one."""

  name: str


class Signature(NamedTuple):
  parameters: list[str]
  required: list[str]  # those without a default, or with gin.REQUIRED
  marked: list[str]  # those with gin.REQUIRED
  anything: bool  # True with **kwargs
  defaults: Mapping[str, Any]


class _Delegate(gin_config.ParserDelegate):
  """Lets the parser go on to the end of a statement whose value holds a bad reference."""

  def configurable_reference(self, scoped_selector: str, evaluate: bool) -> Reference | UnknownReference:
    name = scoped_selector.rsplit('/', 1)[-1]
    if len(matching_selectors(name)) != 1:
      return UnknownReference(name)
    return super().configurable_reference(scoped_selector, evaluate)


def make_parser(text: str) -> Parser:
  return Parser(text, _Delegate())


def next_line(parser: Parser) -> int:
  """Number of the line where the next statement begins."""
  parser._skip_whitespace_and_comments()
  return parser.current_token.start[0]


def bindings() -> dict[Key, Any]:
  """The configuration as it stands."""
  return {
    Key(scope, selector, parameter): value
    for (scope, selector), values in gin_config._CONFIG.items()
    for parameter, value in values.items()
  }


def operative_bindings() -> dict[Key, Any]:
  """The parameters, defaults included, that configurables took from gin so far. Scopes are those of the calls."""
  with gin_config._OPERATIVE_CONFIG_LOCK:
    return {
      Key(scope, selector, parameter): value
      for (scope, selector), values in gin_config._OPERATIVE_CONFIG.items()
      for parameter, value in values.items()
    }


def operative_calls() -> set[tuple[str, str]]:
  """(scope, selector) of the configurables that were called so far."""
  with gin_config._OPERATIVE_CONFIG_LOCK:
    return set(gin_config._OPERATIVE_CONFIG)


def imports() -> list[str]:
  """The import statements of the files that were read."""
  return sorted({statement.format() for statement in gin_config._IMPORTS})


def matching_selectors(name: str) -> list[str]:
  """Complete selectors of the configurables that `name`, with or without modules, can mean."""
  return list(_matching_selectors(name, len(gin_config._REGISTRY)))


def short_name(selector: str) -> str:
  return _short_name(selector, len(gin_config._REGISTRY))


# The registry only grows.
@functools.cache
def _matching_selectors(name: str, num_registered: int) -> Sequence[str]:
  del num_registered
  return sorted(gin_config._REGISTRY.matching_selectors(name))


@functools.cache
def _short_name(selector: str, num_registered: int) -> str:
  del num_registered
  return gin_config._REGISTRY.minimal_selector(selector)


def registered_names() -> list[str]:
  return [short_name(selector) for selector, _ in gin_config._REGISTRY.items() if not selector.startswith('gin.')]


def package(selector: str) -> str:
  """Package of the configurable's module: alternatives to each other share one (`lambda_kit.posteriors`)."""
  module = getattr(gin_config._REGISTRY[selector].wrapped, '__module__', None) or ''
  return module.rpartition('.')[0] or module


def wrapped(selector: str) -> Any:
  """The class or function itself, without what gin puts around it."""
  return gin_config._REGISTRY[selector].wrapped


@functools.cache
def _constructor(component: Any) -> Callable[..., Any] | None:
  """What takes the arguments of a class or function; None if a class takes none."""
  is_class = inspect.isclass(component)
  function = inspect.unwrap(gin_config._find_class_construction_fn(component) if is_class else component)
  # Without an __init__ of its own a class takes no arguments, though these two claim to take any.
  if function is object.__init__ or getattr(function, '__name__', '') == '_no_init_or_replace_init':
    return None
  return function


@functools.cache
def _signature(component: Any) -> Signature:
  function = _constructor(component)
  if function is None:
    return Signature([], [], [], False, {})
  try:
    spec = inspect.getfullargspec(function)
  except TypeError:  # Written in C.
    return Signature([], [], [], True, {})
  positional = spec.args[1:] if inspect.isclass(component) else spec.args
  defaults = dict(zip(reversed(spec.args), reversed(spec.defaults or ()))) | (spec.kwonlydefaults or {})
  parameters = positional + spec.kwonlyargs
  required = [name for name in parameters if defaults.get(name, gin_config.REQUIRED) is gin_config.REQUIRED]
  marked = [name for name in required if name in defaults]
  return Signature(
    parameters,
    required,
    marked,
    spec.varkw is not None,
    {name: defaults[name] for name in parameters if name not in required},
  )


def signature(selector: str) -> Signature:
  return _signature(wrapped(selector))


@functools.cache
def hints(component: Any) -> Mapping[str, Any]:
  """The annotations of a class's or function's parameters, and 'return'; {} if they can't be evaluated."""
  try:
    return typing.get_type_hints(_constructor(component) or (lambda: None))
  except Exception:
    return {}


def references(value: Any) -> Iterator[Reference | UnknownReference]:
  """The references in a value, macros included, also those inside lists, tuples and dictionaries."""
  if isinstance(value, (Reference, UnknownReference)):
    yield value
  elif isinstance(value, Mapping):
    for item in value.values():
      yield from references(item)
  elif isinstance(value, (list, tuple)):
    for item in value:
      yield from references(item)


def target(reference: Reference) -> str:
  """Complete selector of what the reference refers to."""
  return reference.configurable.selector


def constant(reference: Reference) -> Any:
  """What `%gin.REQUIRED` or another constant of gin stands for."""
  return gin_config._CONSTANTS['/'.join(reference.scopes)]


def is_required(value: Any) -> bool:
  """True if `%gin.REQUIRED` occurs in the value."""
  return any(
    target(reference) == CONSTANT and constant(reference) is gin_config.REQUIRED for reference in references(value)
  )


def make_reference(selector: str, evaluate: bool, scopes: Sequence[str] = ()) -> Reference:
  return Reference('/'.join([*scopes, short_name(selector)]), evaluate)


def selectors() -> list[str]:
  """Complete selectors of all configurables but gin's own."""
  return [selector for selector, _ in gin_config._REGISTRY.items() if not selector.startswith('gin.')]
