"""Sends an environment factory to another process, with the gin configuration that it needs.

For `@make_environment` or `@train/make_environment`, gin hands out a wrapper that looks up its bindings in its own
process and can't be pickled. It is sent as the name of its configurable and its scope, with the bindings beside it.
The other process imports the module of each configurable that it receives, and takes over the bindings of those it
knows. It doesn't need the rest (networks, learners), and so doesn't import it.

Closures and lambdas are sent by value, with cloudpickle.
"""
# Gin has no public names for its dictionaries of bindings.

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
Bindings = dict[BindingKey, bytes | None]  # Pickled one by one, since few are needed. None: can't be pickled.


class Package(NamedTuple):
  """A factory, ready to be pickled and called in another process."""

  factory: bytes
  scope: list[str]  # The gin scope in which the factory was packed.
  bindings: Bindings


class Used(NamedTuple):
  """What gin recorded while an environment was made."""

  calls: list[tuple[str, str]]  # Scopes and complete selectors.
  bindings: Bindings  # With defaults.


def pack(factory: core.EnvironmentFactory) -> Package:
  """Prepares `factory` and this process's gin configuration for another process."""
  try:
    pickled = _dumps(factory)
  except Exception as error:  # Pickling an object can raise anything.
    raise ValueError(
      f'The environment factory {factory!r} cannot be sent to another process ({error}). Define it at the top level '
      'of a module, or let it hold only what can be pickled.'
    ) from error
  # Macros are sent with the references to them.
  bindings = {key: value for key, value in _dump_bindings(gin.config._CONFIG).items() if key[1] != 'gin.macro'}
  return Package(pickled, gin.current_scope(), bindings)


def build(package: Package, seed: int) -> tuple[core.Environment, Used]:
  """Makes the environment, in the process where it will run."""
  factory = pickle.loads(package.factory)
  waiting = _bind(package.bindings)
  with gin.config_scope(list(package.scope)):
    environment = factory(seed=seed)
  late = sorted({selector for _, selector, _ in waiting if _is_registered(selector)})
  if late:
    raise ValueError(
      f'Bindings of {late} came too late: their modules were imported while the environment was being made. Import '
      'them in the module of the environment factory.'
    )
  operative = gin.config._OPERATIVE_CONFIG
  return environment, Used(list(operative), _dump_bindings(operative))


def add_to_operative_config(used: Used) -> None:
  """Records what another process has used as if it had been used here.

  Otherwise the bindings of an environment that runs only in other processes would seem to configure nothing.
  """
  parameters: dict[tuple[str, str], dict[str, Any]] = {key: {} for key in used.calls if _is_registered(key[1])}
  for (scope, selector, parameter), value in used.bindings.items():
    if value is not None and (scope, selector) in parameters:
      parameters[scope, selector][parameter] = pickle.loads(value)
  with gin.config._OPERATIVE_CONFIG_LOCK:
    for key, values in parameters.items():
      gin.config._OPERATIVE_CONFIG.setdefault(key, {}).update(values)


def _bind(bindings: Bindings) -> Bindings:
  """Applies the bindings of known configurables, and returns those of unknown ones."""
  waiting = dict(bindings)
  # Unpickling a value may import modules, and so make more configurables known.
  while known := [key for key in waiting if _is_registered(key[1])]:
    for key in known:
      value = waiting.pop(key)
      if value is None:
        scope, selector, parameter = key
        raise ValueError(f'The value bound to {scope}/{selector}.{parameter} cannot be sent to another process.')
      gin.bind_parameter(key, pickle.loads(value))
  return waiting


def _dump_bindings(config: dict[tuple[str, str], dict[str, Any]]) -> Bindings:
  bindings: Bindings = {}
  for (scope, selector), parameters in list(config.items()):
    for parameter, value in parameters.items():
      try:
        bindings[scope, selector, parameter] = _dumps(value)
      except Exception:  # As above. It is an error only if the value is needed.
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
  name: str  # In the module; dotted if it is nested.
  by_value: Callable[..., Any] | None  # The configurable itself, if other processes can't import it.


class _Pickler(cloudpickle.Pickler):
  """Also pickles gin's references to configurables, and its wrappers around them."""

  def reducer_override(self, obj: Any) -> Any:
    if isinstance(obj, gin.config.ConfigurableReference):
      scope = '/'.join(obj.scopes)
      if obj.configurable.selector == 'gin.macro':
        bound = gin.config._CONFIG.get((scope, 'gin.macro'), {})
        return _restore_macro, (scope, *bound.values())
      if obj.configurable.selector == 'gin.constant':
        value = gin.config._CONSTANTS[scope]
        # gin.REQUIRED is compared by identity, so the other process must use its own.
        return _restore_constant, ((scope,) if value is gin.REQUIRED else (scope, value))
      return _restore_reference, (_origin(obj.configurable), obj.scopes, obj.evaluate)
    if isinstance(obj, (type, types.FunctionType)) and (found := _find_configurable(obj)):
      configurable, scopes = found
      return _restore_wrapper, (_origin(configurable), scopes)
    return super().reducer_override(obj)


def _find_configurable(wrapper: Any) -> tuple[Any, list[str]] | None:
  """The configurable and the scopes of a wrapper made by gin; None for anything else."""
  for _, configurable in gin.config._REGISTRY.items():
    if configurable.wrapper is wrapper and configurable.wrapper is not configurable.wrapped:
      return configurable, []
  # The wrapper for a scoped reference is one of its own, known to the reference alone.
  for reference in gin.config.iterate_references(gin.config._CONFIG):
    if reference.scopes and reference.scoped_configurable_fn is wrapper:
      return reference.configurable, reference.scopes
  return None


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
    target = operator.attrgetter(origin.name)(module)  # Another module registered it.
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
