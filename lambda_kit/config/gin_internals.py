"""Access to gin's internals (`environments/processes/factories` is the only other file that needs some).

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

  scope: str  # 'a/b', or '' outside any scope; for a macro, its name.
  selector: str  # Complete, with the module.
  parameter: str

  def __str__(self) -> str:
    if self.selector == MACRO:
      return self.scope
    return '/'.join(filter(None, [self.scope, f'{short_name(self.selector)}.{self.parameter}']))


class UnknownReference(NamedTuple):
  """A reference whose name fits no configurable, or more than one."""

  name: str


class Signature(NamedTuple):
  parameters: list[str]
  required: list[str]  # Those without a default, or with gin.REQUIRED.
  marked: list[str]  # Those with gin.REQUIRED.
  anything: bool  # Whether it takes **kwargs.
  defaults: Mapping[str, Any]


class _Delegate(gin_config.ParserDelegate):
  """Lets the parser finish a statement whose value holds a bad reference."""

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
  """The parameters that gin has supplied so far, with defaults. Scopes are those of the calls."""
  with gin_config._OPERATIVE_CONFIG_LOCK:
    return {
      Key(scope, selector, parameter): value
      for (scope, selector), values in gin_config._OPERATIVE_CONFIG.items()
      for parameter, value in values.items()
    }


def operative_calls() -> set[tuple[str, str]]:
  """(scope, selector) of the configurables that have been called so far."""
  with gin_config._OPERATIVE_CONFIG_LOCK:
    return set(gin_config._OPERATIVE_CONFIG)


def imports() -> list[str]:
  """The import statements of the files that have been read."""
  return sorted({statement.format() for statement in gin_config._IMPORTS})


def matching_selectors(name: str) -> list[str]:
  """Complete selectors of the configurables that `name`, with or without modules, may mean."""
  return list(_matching_selectors(name, len(gin_config._REGISTRY)))


def short_name(selector: str) -> str:
  return _short_name(selector, len(gin_config._REGISTRY))


# The registry only grows, so its size is its version.
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
  """The package of a configurable's module. Alternatives share a package, such as `lambda_kit.posteriors`."""
  module = getattr(gin_config._REGISTRY[selector].wrapped, '__module__', None) or ''
  return module.rpartition('.')[0] or module


def wrapped(selector: str) -> Any:
  """The class or function itself, without gin's wrapper."""
  return gin_config._REGISTRY[selector].wrapped


@functools.cache
def _constructor(component: Any) -> Callable[..., Any] | None:
  """The function that takes the arguments of a class or function; None for a class without any."""
  is_class = inspect.isclass(component)
  function = inspect.unwrap(gin_config._find_class_construction_fn(component) if is_class else component)
  # A class without its own __init__ takes no arguments, but these two have signatures that accept any.
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
  """The annotations of the parameters of a class or function, and of 'return'; {} if they can't be evaluated."""
  try:
    return typing.get_type_hints(_constructor(component) or (lambda: None), include_extras=True)
  except Exception:
    return {}


def is_reference(value: Any) -> bool:
  return isinstance(value, gin_config.ConfigurableReference)


def references(value: Any) -> Iterator[Reference]:
  """The references in a value, macros included, also inside lists, tuples and dictionaries."""
  return filter(is_reference, _leaves(value))


def unknown_names(value: Any) -> Iterator[str]:
  """The names of the unknown references in a value."""
  return (leaf.name for leaf in _leaves(value) if isinstance(leaf, UnknownReference))


def _leaves(value: Any) -> Iterator[Any]:
  if isinstance(value, Mapping):
    for item in value.values():
      yield from _leaves(item)
  elif isinstance(value, (list, tuple)) and not isinstance(value, UnknownReference):
    for item in value:
      yield from _leaves(item)
  else:
    yield value


def target(reference: Reference) -> str:
  """The complete selector that a reference refers to."""
  return reference.configurable.selector


def is_required(value: Any) -> bool:
  """Whether `%gin.REQUIRED` occurs in the value."""
  constants = (reference for reference in references(value) if target(reference) == CONSTANT)
  return any(gin_config._CONSTANTS['/'.join(reference.scopes)] is gin_config.REQUIRED for reference in constants)


def make_reference(selector: str, evaluate: bool, scopes: Sequence[str] = ()) -> Reference:
  return Reference('/'.join([*scopes, short_name(selector)]), evaluate)


def selectors() -> list[str]:
  """Complete selectors of all configurables, except gin's own."""
  return [selector for selector, _ in gin_config._REGISTRY.items() if not selector.startswith('gin.')]
