"""Values of the wrong kind: what is accepted, what is refused, and what to write instead."""

import abc
from collections.abc import Callable, Mapping, Sequence
import os
import pathlib
from typing import Annotated, Any, Protocol

import pytest

import gin
from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit import ranges
from lambda_kit.config import configuration
from lambda_kit.config import gin_internals
from lambda_kit.config import kinds

_ROOT = str(pathlib.Path(__file__).resolve().parents[2])


class KindSolver(abc.ABC):
  @abc.abstractmethod
  def solve(self) -> int: ...


@gin.register
class KindPid(KindSolver):
  def solve(self) -> int:
    return 0


class KindAgent(Protocol):
  def act(self) -> int: ...


@gin.register
class KindActor:
  def act(self) -> int:
    return 0


@gin.register
class KindUpper:
  def __call__(self, estimates):
    return estimates


@gin.register
def kind_budget(limits: Any, discount: float, repeat: int) -> Any:
  return limits


@gin.register
def kind_number() -> float:
  return 3.0  # Known when it is called, and refused by `ranges.checked` then.


@gin.register
def make_kind_pid() -> KindPid:
  return KindPid()


class KindSolverFactory(Protocol):
  def __call__(self) -> KindSolver: ...


_BOUND = Callable[[Any], Any]
_BUDGET = Callable[[Any, float, int], Any]


def _value(text: str) -> Any:
  return gin_internals.make_parser(text).parse_value()


@pytest.mark.parametrize(
  'annotation, accepted, refused',
  [
    (int, ['3', '0'], ["'3'", '3.0', 'True', 'None', '(3,)', '@KindPid()', '@kind_budget']),
    (float, ['3', '1e-3', '-1.0'], ["'3'", 'True', 'None', '@KindPid']),
    (bool, ['True'], ['1', "'True'", 'None']),
    (str, ["'x'"], ['3', 'None', '@KindPid']),
    (int | None, ['3', 'None'], ['3.5', "'3'"]),
    (ranges.Count, ['1', '3'], ['0', '-1', '1.0', 'True', 'None', '@KindPid()', '1e999']),
    (ranges.Positive, ['1', '1e-9'], ['0', '0.0', '-1.0', '1e999', "'1'"]),
    (ranges.PositiveOrInfinite | None, ['1.0', '1e999', 'None'], ['0.0', '-1e999']),
    (ranges.Share | Sequence[ranges.Share], ['0', '1.0', '(0.0, 1.0)'], ['1.1', '(0.5, 1.1)', "'0.5'"]),
    (Annotated[float, ranges.Range(above=1.0, below=2.0)], ['1.5', '@kind_number()'], ['1.0', '2', '@KindPid()']),
    (float | Sequence[float], ['3', '(1, 2.0)', '[1.0]'], ["'3'", "('1',)", 'None']),
    (Sequence[str], ["('a',)", '[]'], ["'a'", '(1,)', '3']),
    (tuple[int, ...], ['(1, 2)'], ['3', "('a',)"]),
    (Mapping[str, Any], ["{'a': 1}"], ['3', '()']),
    (os.PathLike | None, ["'x'", 'None'], ['@KindPid()']),
    (Any, ['3', "'x'", '@KindPid', '@KindPid()', 'None'], []),
    (
      KindSolver,
      ['@KindPid()', '@a/KindPid()', '@make_kind_pid()'],
      ['@KindPid', '@make_kind_pid', '@KindActor()', '@KindUpper()', '3', 'None', "'pid'"],
    ),
    (KindSolver | None, ['@KindPid()', 'None'], ['@KindPid', '3']),
    (KindAgent, ['@KindActor()'], ['@KindActor', '@KindPid()', '3']),
    (KindSolverFactory, ['@KindPid', '@make_kind_pid'], ['@KindPid()', '@KindActor', '@make_kind_pid()', '3']),
    (_BOUND, ['@KindUpper()'], ['@KindUpper', '@KindPid()', '@KindPid', '@kind_budget', '3', 'None']),
    (_BUDGET, ['@kind_budget'], ['@KindUpper()', '@KindUpper', "'raw'"]),
    (Sequence[KindSolver], ['[@KindPid()]', '()'], ['[@KindPid]', '@KindPid()', '[3]']),
  ],
)
def test_kinds(annotation, accepted, refused):
  expected = kinds.Expected('thing', annotation)
  assert [text for text in accepted if not expected.accepts(_value(text))] == []
  assert [text for text in refused if expected.accepts(_value(text))] == []


def test_a_parameter_that_is_called_a_factory_takes_a_class():
  expected = kinds.Expected('bound_factory', Callable[..., Any])
  assert expected.accepts(_value('@KindUpper')) and not expected.accepts(_value('@KindUpper()'))


def test_counts_are_not_negative():
  assert not kinds.Expected('width', int, 3).accepts(-1) and kinds.Expected('width', int, 3).accepts(0)
  assert kinds.Expected('width', int, -1).accepts(-1) and kinds.Expected('width', int).accepts(-1)


def _error(binding: str, *files: str) -> str:
  with pytest.raises(configuration.ConfigurationError) as error:
    configuration.parse(files or ['gin/tasks/grid.gin'], [binding], [_ROOT])
  gin.clear_config()
  source = f'--gin_bindings="{binding}": '
  assert str(error.value).startswith(source) and '\n' not in str(error.value)
  return str(error.value).removeprefix(source)


@pytest.mark.parametrize(
  'binding, message',
  [
    (
      'LambdaAgent.cost_bound = @UpperBound',
      'LambdaAgent.cost_bound = @UpperBound should be a bound that can be called. '
      'Write LambdaAgent.cost_bound = @UpperBound().',
    ),
    (
      'LambdaAgent.cost_bound = @Ensemble',
      'LambdaAgent.cost_bound = @Ensemble should be a bound that can be called. '
      'Write LambdaAgent.cost_bound = @UpperBound() or @LowerBound() or @MeanBound().',
    ),
    (
      'LambdaAgent.solver = @PidLagrangian',
      'LambdaAgent.solver = @PidLagrangian should be an object of the kind '
      'ConstraintSolver. Write LambdaAgent.solver = @PidLagrangian().',
    ),
    (
      'LambdaAgent.solver = @UpperBound()',
      'LambdaAgent.solver = @UpperBound() should be an object of the kind '
      'ConstraintSolver. Write LambdaAgent.solver = @AugmentedLagrangian() or @PidLagrangian() or @PrimalDual().',
    ),
    (
      'LambdaAgent.posterior_factory = @Swag()',
      'LambdaAgent.posterior_factory = @Swag() should be a factory, a reference '
      'without parentheses. Write LambdaAgent.posterior_factory = @Swag.',
    ),
    (
      'LambdaAgent.budget = @raw_budget()',
      'LambdaAgent.budget = @raw_budget() should be a budget that can be called. '
      'Write LambdaAgent.budget = @raw_budget.',
    ),
    (
      'make_environment.simulator = @Swag',
      'make_environment.simulator = @Swag should be a factory, a reference without '
      'parentheses. Write make_environment.simulator = @GridCmdp or @GymnasiumTask or @IsolatedEnvironment.',
    ),
    (
      "LambdaAgent.batch_size = '16'",
      "LambdaAgent.batch_size = '16' should be a whole number, 1 or more. Write LambdaAgent.batch_size = 16.",
    ),
    (
      'LambdaAgent.horizon = -3',
      'LambdaAgent.horizon = -3 should be a whole number, 1 or more. Write LambdaAgent.horizon = 15.',
    ),
    (
      'LambdaAgent.horizon = True',
      'LambdaAgent.horizon = True should be a whole number, 1 or more. Write LambdaAgent.horizon = 15.',
    ),
    (
      'ENVIRONMENT_STEPS = 1e5',
      'ENVIRONMENT_STEPS = 100000.0 (used by experiment.environment_steps) should be a whole '
      'number, 1 or more. Write ENVIRONMENT_STEPS = 100000.',
    ),
    (
      "GridCmdp.observations = 'vector'",
      "GridCmdp.observations = 'vector' should be a sequence in which each is a string in "
      "quotes. Write GridCmdp.observations = ('vector',).",
    ),
    (
      'COST_LIMIT = None',
      'COST_LIMIT = None (used by experiment.cost_limit) should be a number or a sequence in which '
      'each is a number. Write COST_LIMIT = 25.0.',
    ),
  ],
)
def test_wrong_kinds_of_the_projects_own_parts(binding, message):
  assert _error(binding) == message


def test_the_line_of_a_file_is_told(folder):
  assert folder.error("STEPS = '3'\n\ntoy_run.steps = %STEPS") == (
    "1.gin:1: STEPS = '3' (used by toy_run.steps) should be a whole number, 0 or more. Write STEPS = 3."
  )
  assert folder.error('toy_run.posterior = @ToySwag()\nToySwag.columns = 2.5') == (
    '1.gin:2: ToySwag.columns = 2.5 should be a whole number, 0 or more. Write ToySwag.columns = 20.'
  )


def test_a_macro_inside_of_a_sequence_is_told():
  assert _error('WIDTH = 0') == (
    'WIDTH = 0 (used by RecurrentWorldModel.deterministic_size) should be a whole number, 1 or more. Write WIDTH = 200.'
  )
  bindings = ['DEPTH = 0', 'reward/NormalHead.hidden_sizes = (8, %DEPTH)']  # Used nowhere else.
  with pytest.raises(configuration.ConfigurationError) as error:
    configuration.parse(['gin/tasks/grid.gin'], bindings, [_ROOT])
  gin.clear_config()
  assert str(error.value).endswith(
    ': DEPTH = 0 (used by reward/NormalHead.hidden_sizes) should be a whole number, 1 or more.'
  )
