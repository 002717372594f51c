"""Factories of parallel environments: what they are made of goes to other processes, gin's bindings included."""

import functools
import threading

import numpy as np
import pytest

import gin
from lambda_kit.environments.processes import parallel
from tests.fakes import environments as fakes

SEED = 3
# Registered here and nowhere else: workers, which don't import this module, must find it all the same.
gin.external_configurable(fakes.Walk, module='planes')


@pytest.fixture(autouse=True)
def _fresh_gin():
  gin.clear_config()
  yield
  gin.clear_config()


@gin.register
def _receive(factory):
  return factory


@gin.register
def unknown_to_workers(value=None):
  return value


def _rewards(factory) -> np.ndarray:
  with parallel.ParallelEnvironments(factory, 1, SEED) as environments:
    environments.reset()
    return environments.step(np.ones((1, 2))).reward.reward


def _expected(**kwargs) -> np.ndarray:
  serial = fakes.Walk(parallel.environment_seed(SEED, 0), **kwargs)
  serial.reset()
  return serial.step(np.ones(2, np.float32)).reward.reward


def _configured(config: str):
  """What gin gives for the reference that is bound to `receive.factory`."""
  gin.parse_config(config)
  gin.finalize()
  return gin.get_configurable(_receive)()


def test_closures_and_partials():
  bias = 0.5
  assert _rewards(lambda seed: fakes.Walk(seed, bias=bias)) == _expected(bias=0.5)
  assert _rewards(functools.partial(fakes.Walk, scale=2.0)) == _expected(scale=2.0)


def test_what_can_not_be_sent_is_refused():
  lock = threading.Lock()
  with pytest.raises(ValueError, match='cannot be sent to another process'):
    parallel.ParallelEnvironments(lambda seed: (lock, fakes.Walk(seed)), 1, SEED)


def test_a_reference_takes_its_bindings_along():
  factory = _configured("""
      _receive.factory = @make_walk
      make_walk.scale = 3.0
      train/make_walk.bias = 4.0
      """)
  assert _rewards(factory) == _expected(scale=3.0)


def test_a_scoped_reference_with_macros_and_nested_references():
  if 'planes.FACTOR' not in gin.config._CONSTANTS:
    gin.constant('planes.FACTOR', 3.0)
  factory = _configured("""
      _receive.factory = @train/make_walk
      BIAS = @add()
      UNRELATED = @unknown_to_workers
      make_walk.scale = %planes.FACTOR
      train/make_walk.bias = %BIAS
      train/make_walk.walk_factory = @planes.Walk
      train/add.left = 0.5
      add.left = 8.0
      unknown_to_workers.value = %UNRELATED
      """)
  # A macro evaluates its reference in the macro's own scope, as in this process.
  local = factory(seed=parallel.environment_seed(SEED, 0))
  local.reset()
  assert _rewards(factory) == local.step(np.ones(2, np.float32)).reward.reward
  assert _rewards(factory) == _expected(scale=3.0, bias=8.25)
  assert _rewards(functools.partial(factory, bias=-1.0)) == _expected(scale=3.0, bias=-1.0)


def test_the_scope_that_is_open_counts():
  factory = _configured("""
      _receive.factory = @make_walk
      train/make_walk.bias = 4.0
      """)
  with gin.config_scope('train'):
    assert _rewards(factory) == _expected(bias=4.0)


def test_a_class_and_its_scope():
  factory = _configured("""
      _receive.factory = @train/planes.Walk
      planes.Walk.scale = 5.0
      train/planes.Walk.bias = 2.0
      """)
  assert _rewards(factory) == _expected(scale=5.0, bias=2.0)


def test_configurables_that_the_factory_calls_itself():
  gin.parse_config('configured_bias.value = 1.5')
  assert _rewards(fakes.make_biased_walk) == _expected(bias=1.5)


def test_bindings_that_are_not_literals():
  gin.bind_parameter('make_walk.walk_factory', functools.partial(fakes.Walk))
  gin.bind_parameter('unknown_to_workers.value', threading.Lock())  # No need to send it.
  assert _rewards(gin.get_configurable('make_walk')) == _expected()
  gin.bind_parameter('make_walk.scale', threading.Lock())
  with pytest.raises(parallel.WorkerError, match='make_walk.scale cannot be sent'):
    _rewards(gin.get_configurable('make_walk'))


def test_bindings_that_come_too_late_are_an_error():
  gin.external_configurable(fakes.Walk, name='late.Walk')
  gin.bind_parameter('late.Walk.bias', 1.0)
  with pytest.raises(parallel.WorkerError, match=r"\['late.Walk'\] came too late"):
    _rewards(fakes.register_late)


def test_configurables_of_a_function():
  """No module has this one."""

  @gin.register('local_walk', module='local')
  def make(seed, bias=0.0):
    return fakes.Walk(seed, bias=bias)

  del make
  gin.bind_parameter('local.local_walk.bias', 6.0)
  assert _rewards(gin.get_configurable('local.local_walk')) == _expected(bias=6.0)


def test_bindings_used_by_workers_are_operative_here():
  factory = _configured("""
      _receive.factory = @make_walk
      SCALE = 3.0
      make_walk.scale = %SCALE
      """)
  assert 'make_walk.' not in gin.operative_config_str()
  _rewards(factory)
  operative = gin.operative_config_str()
  for binding in ('SCALE = 3.0', 'make_walk.scale = %SCALE', 'make_walk.bias = 0.0'):
    assert binding in operative
