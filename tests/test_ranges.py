"""Ranges of numbers: what is in them, what they are called, and that calls from Python keep to them."""

from collections.abc import Callable, Sequence
import dataclasses
import inspect
import math
from typing import Annotated

import haiku as hk
import numpy as np
import pytest

import gin
from lambda_kit import errors
from lambda_kit import ranges


@pytest.mark.parametrize(
  'annotation, inside, outside, description',
  [
    (ranges.Count, [1, 2**70], [0, -1], 'a whole number, 1 or more'),
    (ranges.NotNegative, [0.0, 1e300], [-1e-9, math.inf, math.nan], 'a finite number, 0 or more'),
    (ranges.Positive, [1e-9], [0.0, math.inf, math.nan], 'a finite number, more than 0'),
    (ranges.PositiveOrInfinite, [1e-9, math.inf], [0.0, -math.inf, math.nan], 'a number, more than 0'),
    (ranges.Share, [0.0, 1.0], [-0.1, 1.1, math.nan], 'a number between 0 and 1'),
    (ranges.Discount, [0.5, 1.0], [0.0, 1.1], 'a number, more than 0 and at most 1'),
    (ranges.ShareBelowOne, [0.0], [1.0], 'a number, at least 0 and less than 1'),
    (ranges.Finite, [-1e300], [math.inf, math.nan], 'a finite number'),
  ],
)
def test_ranges(annotation, inside, outside, description):
  kind, allowed = ranges.split(annotation)
  assert all(value in allowed for value in inside) and not any(value in allowed for value in outside)
  assert kind in (int, float) and ranges.describe(annotation) == description


def test_alternatives_are_described_together():
  assert ranges.describe(ranges.Count | None) == 'a whole number, 1 or more, or None'
  assert ranges.describe(float | Sequence[ranges.Share]) == (
    'a number or a sequence in which each is a number between 0 and 1'
  )


@ranges.checked
class Part:
  """Has one parameter of each sort."""

  def __init__(
    self,
    count: ranges.Count,
    rate: ranges.Positive | Callable[[int], float] = 1.0,
    sizes: Sequence[ranges.Count] = (1,),
    limit: Annotated[float, ranges.Range(above=1.0)] | None = None,
    name: str = '',
  ):
    self.values = count, rate, sizes, limit, name


class Special(Part):
  """A class of its own name."""


def test_calls_within_the_ranges_are_as_before():
  schedule = lambda count: -1.0
  assert Part(1).values == (1, 1.0, (1,), None, '')
  assert Part(np.int32(2), schedule, [3], 1.5, name='x').values == (2, schedule, [3], 1.5, 'x')
  assert Part(1, sizes=np.array([1, 2])).values[2].tolist() == [1, 2]
  assert list(inspect.signature(Part).parameters) == ['count', 'rate', 'sizes', 'limit', 'name']
  with pytest.raises(TypeError):
    Part(1, unknown=2)


@pytest.mark.parametrize(
  'arguments, sentence',
  [
    (dict(count=0), 'Part.count = 0 should be a whole number, 1 or more.'),
    (dict(count=True), 'Part.count = True should be a whole number, 1 or more.'),
    (dict(count=2.0), 'Part.count = 2.0 should be a whole number, 1 or more.'),
    (dict(count='2'), "Part.count = '2' should be a whole number, 1 or more."),
    (dict(count=None), 'Part.count = None should be a whole number, 1 or more.'),
    (
      dict(count=1, sizes=(1, 0)),
      'Part.sizes = (1, 0) should be a sequence in which each is a whole number, 1 or more.',
    ),
    (dict(count=1, sizes='12'), "Part.sizes = '12' should be a sequence in which each is a whole number, 1 or more."),
    (dict(count=1, limit=math.nan), 'Part.limit = nan should be a finite number, more than 1, or None.'),
  ],
)
def test_arguments_out_of_range_are_refused(arguments, sentence):
  with pytest.raises(errors.SetupError) as error:
    Part(**arguments)
  assert str(error.value) == sentence


def test_a_number_is_refused_although_a_function_would_do():
  with pytest.raises(errors.SetupError, match=r'^Part\.rate = -1\.0 should be a finite number, more than 0, or'):
    Part(1, -1.0)


def test_subclasses_go_by_their_own_names():
  with pytest.raises(errors.SetupError, match=r'^Special\.count = 0 '):
    Special(0)


def test_functions_dataclasses_and_modules():
  @ranges.checked
  def half(of: ranges.NotNegative) -> float:
    return of / 2

  @ranges.checked
  @dataclasses.dataclass(frozen=True)
  class Settings:
    share: ranges.Share = 0.5

  @ranges.checked
  class Layer(hk.Module):
    def __init__(self, size: ranges.Count, name: str | None = None):
      super().__init__(name=name)
      self.size = size

    def __call__(self, x):
      return hk.Linear(self.size)(x)

  assert half(3.0) == 1.5 and Settings().share == 0.5
  apply = lambda size: hk.transform(lambda x: Layer(size)(x)).init(None, np.zeros((1, 2)))
  for refused, sentence in (
    (lambda: half(-1.0), r'half\.of = -1\.0 '),
    (lambda: dataclasses.replace(Settings(), share=2.0), r'Settings\.share = 2\.0 '),
    (lambda: apply(0), r'Layer\.size = 0 '),
  ):
    with pytest.raises(errors.SetupError, match=sentence):
      refused()


def test_gin_binds_what_is_checked():
  configured = gin.external_configurable(Part, module='test_ranges')
  try:
    gin.parse_config('test_ranges.Part.count = 3')
    assert configured().values[0] == 3
    gin.parse_config('test_ranges.Part.sizes = (0,)')
    with pytest.raises(errors.SetupError, match=r'Part\.sizes = \(0,\) '):
      configured()
  finally:
    gin.clear_config()
