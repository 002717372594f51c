"""Finds values of the wrong kind by the annotations of the parameters they are bound to, before anything is built.

  annotation                                accepted gin text
  int, float, bool, str                     such a value; whole numbers for float, too; True is not a number, nor is NaN
  ranges.Count, Annotated[float, Range()]   a number in this range
  Sequence[int], tuple[...], list[...]      (1, 2) or [1, 2]; 'ab' is not a sequence of strings
  X | None                                  None, too
  a class: core.ConstraintSolver            @PidLagrangian(): a called subclass; for a Protocol, any with its methods
  a callable: Callable, core.Budget         @f, a function; or @UpperBound(), an object that can be called
  a factory (the name of the parameter      @Swag, a class that is not called; or a function
    or the annotation ends in 'factory')

Anything is accepted for Any, and from a function without a return annotation.
"""

import collections.abc
from collections.abc import Callable, Iterator
import inspect
import sys
import typing
from typing import Any

from lambda_kit import ranges
from lambda_kit.config import gin_internals
from lambda_kit.config import reach as reach_lib

Key = gin_internals.Key
_SCALARS = (int, float, bool, str)
_UNKNOWN = object()  # A value that is only known once gin has made it.


def find_wrong(reach: reach_lib.Reach, config: reach_lib.Config, source: Callable[[Key], str]) -> list[str]:
  """A sentence for each binding in use whose value is of the wrong kind."""
  problems: dict[Key, str] = {}
  for node in reach.edges:
    if node.selector.startswith('gin.'):
      continue
    hints = gin_internals.hints(gin_internals.wrapped(node.selector))
    defaults = gin_internals.signature(node.selector).defaults
    for parameter, key in reach.parameters(node).items():
      hint, default = hints.get(parameter, Any), defaults.get(parameter, _UNKNOWN)
      for origin, value, expected in (
        *_macros_inside(reach, config, key, parameter, hint),
        (*_follow(reach, config, key, config[key]), Expected(parameter, hint, default)),
      ):
        if not expected.accepts(value):
          used = f' (used by {key})' if origin != key else ''
          problems.setdefault(
            origin,
            f'{source(origin)}: {origin} = {value!r}{used} should be {expected}.{expected.remedy(str(origin), value)}',
          )
          break
  return list(problems.values())


def _macros_inside(
  reach: reach_lib.Reach, config: reach_lib.Config, key: Key, parameter: str, hint: Any
) -> Iterator[tuple[Key, Any, 'Expected']]:
  """The macros in a bound sequence, each with its value and what it should be."""
  sequences = (typing.get_args(arm) for arm in ranges.alternatives(hint) if ranges.is_sequence(arm))
  items = next(filter(None, sequences), (Any,))
  for item in config[key] if isinstance(config[key], (list, tuple)) else ():
    origin, value = _follow(reach, config, key, item)
    if origin != key:
      yield origin, value, Expected(parameter, items[0])


def _follow(reach: reach_lib.Reach, config: reach_lib.Config, key: Key, value: Any) -> tuple[Key, Any]:
  """The value with macros replaced, also inside containers, and the binding that it is written in."""
  if isinstance(value, (list, tuple)):
    return key, type(value)(_follow(reach, config, key, item)[1] for item in value)
  if gin_internals.is_reference(value):
    target = gin_internals.target(value)
    if target == gin_internals.MACRO:
      found = reach.parameters(reach_lib.Node(tuple(value.scopes), target)).get('value')
      return (key, _UNKNOWN) if found is None else _follow(reach, config, found, config[found])
    if target in (gin_internals.CONSTANT, gin_internals.SINGLETON):
      return key, _UNKNOWN
  return key, value


class Expected:
  """What a parameter may be bound to."""

  def __init__(self, parameter: str, annotation: Any, default: Any = _UNKNOWN):
    self._noun = parameter.rpartition('_')[2]
    if annotation is int and isinstance(default, int) and default >= 0:
      annotation = ranges.Whole  # Such parameters are counts, which are not negative even if nobody says so.
    self._arms = ranges.alternatives(annotation)
    self._default = default

  def accepts(self, value: Any) -> bool:
    return any(_accepts(arm, value, self._is_factory(arm)) for arm in self._arms)

  def __str__(self) -> str:
    return ranges.join(self._describe(arm) for arm in self._arms)

  def remedy(self, name: str, value: Any) -> str:
    """What to write instead."""
    written = [repr(candidate) for candidate in _rewritten(value) if self.accepts(candidate)][:1] or self._examples()
    return f' Write {name} = {" or ".join(written)}.' if written else ''

  def _is_factory(self, arm: Any) -> bool:
    return self._noun == 'factory' or getattr(arm, '__name__', '').endswith('Factory')

  def _describe(self, arm: Any) -> str:
    if not _is_literal(arm) and self._is_factory(arm):
      return 'a factory, a reference without parentheses'
    if typing.get_origin(arm) is collections.abc.Callable:
      return f'a {self._noun} that can be called'
    return ranges.describe(arm)

  def _examples(self) -> list[str]:
    """References that would be accepted, the default's first; or the default itself."""
    if any(_is_literal(arm) and arm is not type(None) for arm in self._arms):
      return [repr(self._default)] if type(self._default) in _SCALARS else []
    default = (
      self._default if inspect.isclass(self._default) or inspect.isfunction(self._default) else type(self._default)
    )
    found = []
    for selector in gin_internals.selectors():
      component = gin_internals.wrapped(selector)
      # Most components that can be called are for something else: those in the default's module are not.
      if any(_is_callable(arm) and not _is_specific(_result(arm)) for arm in self._arms) and (
        component.__module__ != default.__module__
      ):
        continue
      references = [gin_internals.make_reference(selector, evaluate) for evaluate in (True, False)]
      found += [
        (component is not default, repr(reference))
        for reference in references
        if (inspect.isclass(component) or not reference.evaluate) and self.accepts(reference)
      ]
    return [text for _, text in sorted(found)[:3]]


def _rewritten(value: Any) -> Iterator[Any]:
  """Other ways to write a value."""
  if gin_internals.is_reference(value):
    yield gin_internals.make_reference(gin_internals.target(value), not value.evaluate, value.scopes)
  elif isinstance(value, str):
    for convert in (int, float):
      try:
        yield convert(value)
      except ValueError:
        pass
  elif isinstance(value, float) and value.is_integer():
    yield int(value)
  if isinstance(value, (int, float, str)):
    yield (value,)


def _accepts(annotation: Any, value: Any, is_factory: bool = False) -> bool:
  annotation, allowed = ranges.split(annotation)
  if value is _UNKNOWN or annotation is Any or isinstance(annotation, typing.TypeVar):
    return True
  if gin_internals.is_reference(value):
    return _accepts_reference(annotation, value, is_factory)
  if annotation is type(None):
    return value is None
  if annotation in _SCALARS:
    is_kind = isinstance(value, (int, float) if annotation is float else annotation)
    is_kind = is_kind and (annotation is bool or not isinstance(value, bool)) and value == value  # Not NaN.
    return is_kind and (allowed is None or value in allowed)
  if ranges.is_sequence(annotation):
    items = typing.get_args(annotation) or (Any,)
    same = len(items) == 1 or items[-1] is Ellipsis
    return isinstance(value, (list, tuple)) and (
      not same or all(any(_accepts(arm, item) for arm in ranges.alternatives(items[0])) for item in value)
    )
  if (typing.get_origin(annotation) or annotation) in (dict, collections.abc.Mapping):
    return isinstance(value, dict)
  # A path, an enumeration, ...: no literal is a component.
  return not _is_callable(annotation) and not _is_component(annotation)


def _accepts_reference(annotation: Any, reference: gin_internals.Reference, is_factory: bool) -> bool:
  component = gin_internals.wrapped(gin_internals.target(reference))
  is_class = inspect.isclass(component)
  result = component if is_class else _returned(component)  # Of a call.
  if not _is_callable(annotation):
    return (
      _may_be(result, annotation) if reference.evaluate else not (_is_literal(annotation) or _is_component(annotation))
    )
  if not reference.evaluate:
    # If no factory is expected, a class is not accepted as a callable: calling it would only make an object.
    return _may_be(result, _result(annotation)) and (
      (not is_class and _takes(component, annotation)) or is_factory or (is_class and _is_specific(_result(annotation)))
    )
  if not inspect.isclass(result) or result is Any:
    return True
  # A Haiku module can be called, but is not a factory of modules.
  return _has(result, '__call__') and not (is_class and is_factory) and _takes(result.__call__, annotation, 1)


def _may_be(result: Any, annotation: Any) -> bool:
  """Whether an object of class `result` can be of the annotated kind. True if either is unknown."""
  if any(arm is Any for arm in (*ranges.alternatives(result), *ranges.alternatives(annotation))):
    return True
  return any(
    _is_kind_of(typing.get_origin(one) or one, typing.get_origin(other) or other)
    for one in ranges.alternatives(result)
    for other in ranges.alternatives(annotation)
  )


def _is_kind_of(one: Any, other: Any) -> bool:
  if not inspect.isclass(one) or not inspect.isclass(other):
    return True
  if getattr(other, '_is_protocol', False):
    return all(
      _has(one, name)
      for name in vars(other)
      if callable(vars(other)[name]) and (name == '__call__' or not name.startswith('_'))
    )
  return issubclass(one, other) or (one, other) == (int, float)


def _has(component: type, name: str) -> bool:
  return any(name in vars(base) for base in component.__mro__)  # `hasattr` finds a class's own `__call__`.


def _takes(function: Any, annotation: Any, bound: int = 0) -> bool:
  """Whether a function takes as many arguments as a Callable says, after `bound` ones such as `self`."""
  arguments = (typing.get_args(annotation) or (...,))[0]
  if not isinstance(arguments, list):
    return True
  try:
    inspect.signature(function).bind(*range(bound + len(arguments)))
  except TypeError:
    return False
  except ValueError:  # Written in C.
    pass
  return True


def _returned(function: Any) -> Any:
  return gin_internals.hints(function).get('return', Any)


def _result(annotation: Any) -> Any:
  """What calling an object of the annotated kind returns."""
  if getattr(annotation, '_is_protocol', False):
    return _returned(annotation.__call__)
  return (typing.get_args(annotation) or (Any,))[-1]


def _is_specific(annotation: Any) -> bool:
  return inspect.isclass(annotation) and annotation is not Any and annotation not in _SCALARS


def _is_callable(annotation: Any) -> bool:
  """Whether it is only for calling: a Callable, or a Protocol with nothing but `__call__`."""
  if getattr(annotation, '_is_protocol', False):
    return '__call__' in vars(annotation) and all(name.startswith('_') for name in vars(annotation))
  return (typing.get_origin(annotation) or annotation) is collections.abc.Callable


def _is_literal(annotation: Any) -> bool:
  """Whether gin text expresses such a value without a reference."""
  kind, _ = ranges.split(annotation)
  return kind in _SCALARS or kind is type(None) or ranges.is_sequence(kind)


def _is_component(annotation: Any) -> bool:
  """Whether gin text can express an object of a class only by a reference."""
  origin = typing.get_origin(annotation) or annotation
  return (
    inspect.isclass(origin)
    and origin.__module__.partition('.')[0] not in sys.stdlib_module_names
    and (
      inspect.isabstract(origin)
      or getattr(origin, '_is_protocol', False)
      or origin.__module__.startswith('lambda_kit.')
    )
  )
