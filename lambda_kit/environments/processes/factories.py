"""How an environment factory reaches another process, with the gin configuration that it needs.

What gin hands out for `@make_environment` or `@train/make_environment` is a wrapper that looks its bindings up in the
process that it lives in, and can't be pickled. Here a wrapper travels as the name of its configurable and its scope;
the bindings travel beside it. The other process imports the module of each configurable that it meets and takes over
the bindings of those that it knows: the rest (networks, learners) would only make it import what it doesn't need.

Closures and lambdas travel by value, with cloudpickle.
"""
# Gin's dictionaries of bindings have no public names.

from collections.abc import Callable
import importlib
import io
import operator
import pickle
import types
from typing import Any, NamedTuple

import cloudpickle

import gin
from lambda_kit import core

BindingKey = tuple[str, str, str]  # Scope, complete selector, parameter.
Bindings = dict[BindingKey, bytes | None]  # Pickled one by one: each is read only if it's needed. None: not picklable.


class Package(NamedTuple):
  """A factory, ready to be pickled and called in another process."""

  factory: bytes
  scope: list[str]  # The gin scope that was open when the factory was packed.
  bindings: Bindings


class Used(NamedTuple):
  """What gin has recorded while an environment was made."""

  calls: list[tuple[str, str]]  # Scopes and complete selectors.
  bindings: Bindings  # Defaults included.


def pack(factory: core.EnvironmentFactory) -> Package:
  """Prepares `factory` and the gin configuration of this process for another one."""
  try:
    pickled = _dumps(factory)
  except Exception as error:  # Objects raise what they like when they are pickled.
    raise ValueError(
      f'The environment factory {factory!r} can not be sent to another process ({error}). Define it at the top level '
      'of a module, or let it hold only what can be pickled.'
    ) from error
  # Macros travel with the references to them.
  bindings = {key: value for key, value in _dump_bindings(gin.config._CONFIG).items() if key[1] != 'gin.macro'}
  return Package(pickled, gin.current_scope(), bindings)


def build(package: Package, seed: int) -> tuple[core.Environment, Used]:
  """Makes the environment, in the process that it is to live in."""
  factory = pickle.loads(package.factory)
  waiting = _bind(package.bindings)
  with gin.config_scope(list(package.scope)):
    environment = factory(seed=seed)
  late = sorted({selector for _, selector, _ in waiting if _is_registered(selector)})
  if late:
    raise ValueError(
      f'Bindings of {late} came too late: their modules were only imported while the environment was made. Import '
      'them in the module of the environment factory.'
    )
  operative = gin.config._OPERATIVE_CONFIG
  return environment, Used(list(operative), _dump_bindings(operative))


def add_to_operative_config(used: Used) -> None:
  """Records what another process has used as if it had been used here.

  Otherwise the bindings of an environment that lives only in other processes would seem to have configured nothing.
  """
  parameters = {key: {} for key in used.calls if _is_registered(key[1])}
  for (scope, selector, parameter), value in used.bindings.items():
    if value is not None and (scope, selector) in parameters:
      parameters[scope, selector][parameter] = pickle.loads(value)
  with gin.config._OPERATIVE_CONFIG_LOCK:
    for key, values in parameters.items():
      gin.config._OPERATIVE_CONFIG.setdefault(key, {}).update(values)


def _bind(bindings: Bindings) -> Bindings:
  """Binds what is bound to known configurables, and returns the bindings of unknown ones."""
  waiting = dict(bindings)
  # Reading a value may import modules, and so make more configurables known.
  while known := [key for key in waiting if _is_registered(key[1])]:
    for key in known:
      value = waiting.pop(key)
      if value is None:
        scope, selector, parameter = key
        raise ValueError(f'The value bound to {scope}/{selector}.{parameter} can not be sent to another process.')
      gin.bind_parameter(key, pickle.loads(value))
  return waiting


def _dump_bindings(config: dict[tuple[str, str], dict[str, Any]]) -> Bindings:
  bindings: Bindings = {}
  for (scope, selector), parameters in list(config.items()):
    for parameter, value in parameters.items():
      try:
        bindings[scope, selector, parameter] = _dumps(value)
      except Exception:  # As above. It matters only if the value is needed.
        bindings[scope, selector, parameter] = None
  return bindings


def _is_registered(selector: str) -> bool:
  return selector in gin.config._REGISTRY


def _dumps(value: Any) -> bytes:
  file = io.BytesIO()
  _Pickler(file).dump(value)
  return file.getvalue()


class _Origin(NamedTuple):
  """Where a configurable comes from."""

  selector: str
  module: str
  name: str  # In the module, with dots for nested names.
  by_value: Callable[..., Any] | None  # The configurable itself, if no other process can import it.


class _Pickler(cloudpickle.Pickler):
  """Also pickles references to configurables and the wrappers that gin makes for them."""

  def reducer_override(self, obj: Any) -> Any:
    if isinstance(obj, gin.config.ConfigurableReference):
      scope = '/'.join(obj.scopes)
      if obj.configurable.selector == 'gin.macro':
        bound = gin.config._CONFIG.get((scope, 'gin.macro'), {})
        return _restore_macro, (scope, *bound.values())
      if obj.configurable.selector == 'gin.constant':
        value = gin.config._CONSTANTS[scope]
        # gin.REQUIRED is compared by identity, and every process has its own.
        return _restore_constant, ((scope,) if value is gin.REQUIRED else (scope, value))
      return _restore_reference, (_origin(obj.configurable), obj.scopes, obj.evaluate)
    if isinstance(obj, (type, types.FunctionType)):
      scopes, configurable = _find_configurable(obj)
      if configurable is not None:
        return _restore_wrapper, (_origin(configurable), scopes)
    return super().reducer_override(obj)


def _find_configurable(wrapper: Any) -> tuple[list[str], Any]:
  """The scopes and the configurable behind a wrapper made by gin; None for anything else."""
  scopes = []
  call = type(wrapper).__call__ if isinstance(wrapper, type) else wrapper
  code = getattr(call, '__code__', None)
  if code is not None and code.co_name == 'scoping_wrapper' and 'scope_components' in code.co_freevars:
    scopes = call.__closure__[code.co_freevars.index('scope_components')].cell_contents
    wrapper = wrapper.__bases__[0] if isinstance(wrapper, type) else wrapper.__wrapped__
  for _, configurable in gin.config._REGISTRY.items():
    if configurable.wrapper is wrapper and configurable.wrapper is not configurable.wrapped:
      return list(scopes), configurable
  return [], None


def _origin(configurable: Any) -> _Origin:
  wrapped = configurable.wrapped
  importable = wrapped.__module__ != '__main__' and '<locals>' not in wrapped.__qualname__
  return _Origin(configurable.selector, wrapped.__module__, wrapped.__qualname__, None if importable else wrapped)


def _register(origin: _Origin) -> None:
  if _is_registered(origin.selector):
    return
  target = origin.by_value
  if target is None:
    module = importlib.import_module(origin.module)
    if _is_registered(origin.selector):
      return
    target = operator.attrgetter(origin.name)(module)  # Something that another module registered.
  gin.external_configurable(target, name=origin.selector)


def _restore_wrapper(origin: _Origin, scopes: list[str]) -> Callable[..., Any]:
  _register(origin)
  with gin.config_scope(None):
    return gin.get_configurable('/'.join([*scopes, origin.selector]))


def _restore_reference(origin: _Origin, scopes: list[str], evaluate: bool) -> gin.config.ConfigurableReference:
  _register(origin)
  return gin.config.ConfigurableReference('/'.join([*scopes, origin.selector]), evaluate)


def _restore_macro(name: str, *value: Any) -> gin.config.ConfigurableReference:
  if value and (name, 'gin.macro') not in gin.config._CONFIG:
    gin.bind_parameter((name, 'gin.macro', 'value'), value[0])
  return gin.config.ConfigurableReference(f'{name}/gin.macro', True)


def _restore_constant(name: str, *value: Any) -> gin.config.ConfigurableReference:
  if value and name not in gin.config._CONSTANTS:
    gin.constant(name, value[0])
  return gin.config.ConfigurableReference(f'{name}/gin.constant', True)
