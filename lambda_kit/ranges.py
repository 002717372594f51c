"""Ranges of numbers, written where a parameter is declared: `horizon: ranges.Count = 15`.

What gin binds is compared with them before anything is built (`config/kinds.py`), what Python passes when it is called
(`checked`). NaN is in no range, and an infinity only in those that say so.
"""

from collections.abc import Callable, Iterable, Sequence
import dataclasses
import functools
import inspect
import math
import numbers
import types
import typing
from typing import Annotated, Any, TypeVar

import numpy as np

from lambda_kit import errors

Target = TypeVar('Target', bound=Callable[..., Any])
_NOUNS = {int: 'a whole number', float: 'a number', bool: 'True or False', str: 'a string in quotes', None: 'None'}


@dataclasses.dataclass(frozen=True)
class Range:
  """The numbers between two ends; `at_least` and `at_most` belong to it, `above` and `below` do not."""

  at_least: float | None = None
  above: float | None = None
  at_most: float | None = None
  below: float | None = None
  infinite: bool = False  # Whether infinities may belong to it.

  def __contains__(self, value: float) -> bool:
    return (
      (math.isfinite(value) or (self.infinite and not math.isnan(value)))
      and (self.at_least is None or value >= self.at_least)
      and (self.above is None or value > self.above)
      and (self.at_most is None or value <= self.at_most)
      and (self.below is None or value < self.below)
    )

  def describe(self, noun: str) -> str:
    """'a whole number, 1 or more'."""
    if self.at_least is not None and self.at_most is not None:
      return f'{noun} between {self.at_least:g} and {self.at_most:g}'
    ends = {'at least': self.at_least, 'more than': self.above, 'at most': self.at_most, 'less than': self.below}
    named = [f'{words} {end:g}' for words, end in ends.items() if end is not None]
    if self.at_least is not None and len(named) == 1:
      named = [f'{self.at_least:g} or more']
    if noun == _NOUNS[float] and not self.infinite and self.at_most is None and self.below is None:
      noun = 'a finite number'
    return f'{noun}, {" and ".join(named)}' if named else noun


Count = Annotated[int, Range(at_least=1)]
Whole = Annotated[int, Range(at_least=0)]
Finite = Annotated[float, Range()]
NotNegative = Annotated[float, Range(at_least=0.0)]
Positive = Annotated[float, Range(above=0.0)]
PositiveOrInfinite = Annotated[float, Range(above=0.0, infinite=True)]
AtLeastOne = Annotated[float, Range(at_least=1.0)]
Share = Annotated[float, Range(at_least=0.0, at_most=1.0)]
PositiveShare = Annotated[float, Range(above=0.0, at_most=1.0)]
ShareBelowOne = Annotated[float, Range(at_least=0.0, below=1.0)]
BetweenZeroAndOne = Annotated[float, Range(above=0.0, below=1.0)]
Discount = PositiveShare


def alternatives(annotation: Any) -> list[Any]:
  """The members of a union, or the annotation itself."""
  is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
  return [one for each in typing.get_args(annotation) for one in alternatives(each)] if is_union else [annotation]


def split(annotation: Any) -> tuple[Any, Range | None]:
  """An annotation without its range, and the range if it has one."""
  if typing.get_origin(annotation) is not Annotated:
    return annotation, None
  base, *notes = typing.get_args(annotation)
  return base, next((note for note in notes if isinstance(note, Range)), None)


def is_sequence(annotation: Any) -> bool:
  return (typing.get_origin(annotation) or annotation) in (list, tuple, Sequence)


def describe(annotation: Any) -> str:
  """'a whole number, 1 or more, or None'."""
  return join(_describe(each) for each in alternatives(annotation))


def join(descriptions: Iterable[str]) -> str:
  """'a or b'."""
  found = list(dict.fromkeys(descriptions))
  return (', or ' if any(',' in each for each in found[:-1]) else ' or ').join(found)


def _describe(annotation: Any) -> str:
  kind, allowed = split(annotation)
  if is_sequence(kind):
    items = typing.get_args(kind)
    return f'a sequence in which each is {describe(items[0])}' if items else 'a sequence'
  noun = _NOUNS.get(None if kind is type(None) else kind)
  if noun is None:
    return f'an object of the kind {getattr(typing.get_origin(kind) or kind, "__name__", kind)}'
  return allowed.describe(noun) if allowed else noun


def checked(target: Target, name: str | None = None) -> Target:
  """Makes a class or a function refuse arguments outside the ranges in its annotations.

  Args:
    target: A class is changed in place.
    name: What gin files call it; by default its name in Python.
  """
  is_class = inspect.isclass(target)
  function = target.__init__ if is_class else target
  signature = inspect.signature(function)
  ranged = {
    parameter: hint
    for parameter, hint in typing.get_type_hints(function, include_extras=True).items()
    if _has_range(hint)
  }

  @functools.wraps(function)
  def wrapper(*args: Any, **kwargs: Any) -> Any:
    given = signature.bind_partial(*args, **kwargs).arguments
    for parameter, hint in ranged.items():
      if parameter in given and not _fits(hint, given[parameter]):
        owner = name or (type(args[0]).__name__ if is_class else target.__name__)
        raise errors.SetupError(f'{owner}.{parameter} = {given[parameter]!r} should be {describe(hint)}.')
    return function(*args, **kwargs)

  wrapper.__signature__ = signature  # type: ignore[attr-defined]  # Gin doesn't look through wrappers.
  if not is_class:
    return typing.cast(Target, wrapper)
  target.__init__ = wrapper  # type: ignore[method-assign]
  return target


def _has_range(annotation: Any) -> bool:
  kind, allowed = split(annotation)
  return allowed is not None or any(_has_range(each) for each in typing.get_args(kind))


def _fits(annotation: Any, value: Any) -> bool:
  """Whether a value can be meant. What is neither a number nor None is left to those that use it."""
  kind, allowed = split(annotation)
  if len(alternatives(kind)) > 1:
    return any(_fits(each, value) for each in alternatives(kind))
  if kind in (int, float):
    is_number = isinstance(value, numbers.Integral if kind is int else numbers.Real) and not isinstance(value, bool)
    return is_number and (allowed is None or value in allowed)
  if kind is type(None):
    return value is None
  if is_sequence(kind):
    return isinstance(value, (list, tuple, np.ndarray)) and all(_fits(typing.get_args(kind)[0], item) for item in value)
  return not isinstance(value, (numbers.Number, str, type(None)))
