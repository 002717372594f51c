"""Finds what a configuration fails to set, and what it sets without effect, before anything is built.

Gin ignores a misspelt scope, an unused macro and the parameters of an unused part. Here these are errors. The check is
static: a run can use what references lead to from one root configurable.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from lambda_kit.config import axes
from lambda_kit.config import gin_internals
from lambda_kit.config import kinds
from lambda_kit.config import layers
from lambda_kit.config import reach as reach_lib

ConfigurationError = axes.ConfigurationError
Config = reach_lib.Config
Key = gin_internals.Key
MACRO = gin_internals.MACRO
Node = reach_lib.Node
Reach = reach_lib.Reach


class Checker:
  """Checks a configuration read from files and flags."""

  def __init__(self, root: str, history: Sequence[layers.Binding], ends: Sequence[int]):
    self._root = root
    self._history = history
    self._ends = ends
    self._bindings = {binding.key: binding for binding in history}
    self._config = {key: binding.value for key, binding in self._bindings.items()}
    self._reach = Reach(root, self._config)

  def check(self) -> list[Key]:
    """Raises a `ConfigurationError` that lists all problems of the first kind found.

    Returns:
      Bindings that are not in use: from files on an axis, which also serve runs with other parts, and from the user's
      own files, if a later file or flag replaced their part.
    """
    self._raise(self._find_conflicts())
    self._raise(kinds.find_wrong(self._reach, self._config, self._source))
    # Missing values come before unused bindings: a missing one may be the reference that leads to the rest.
    self._raise(self._find_missing())
    self._raise(self._find_files_without_effect())
    unused = [key for key in self._config if key not in self._reach.alive]
    useless = [key for key in unused if self._bindings[key].is_typed and not self._was_alive(self._bindings[key])]
    self._raise(f'{self._source(key)}: {key} configures nothing: {self._explain(key)}' for key in useless)
    return unused

  def _raise(self, problems: Iterable[str]) -> None:
    problems = list(problems)
    if problems:
      raise ConfigurationError('\n'.join(problems))

  def _source(self, key: Key) -> str:
    return self._bindings[key].source

  def _show(self, key: Key) -> str:
    """'Critic.mlp = @Mlp (gin/base.gin:3)'."""
    return f'{key} = {shorten(self._config[key])} ({self._source(key)})'

  def _was_alive(self, binding: layers.Binding) -> bool:
    """Whether a binding was in use at the end of its file or of one that includes it, before a later one."""
    index = max(i for i, other in enumerate(self._history) if other is binding)
    return any(
      binding.key in Reach(self._root, {other.key: other.value for other in self._history[:end]}).alive
      for end in self._ends
      if index < end < len(self._history)
    )

  def _find_conflicts(self) -> list[str]:
    """Pairs of parts that bind a parameter to different values: parts have no order, so neither wins."""
    bound: dict[Key, tuple[axes.File, Any]] = {}
    problems: dict[tuple[str, str], str] = {}
    for key, value, _, file in self._history:
      if file is None or file.axis not in (axes.Axis.PART, axes.Axis.RUN):
        continue
      other, other_value = bound.setdefault(key, (file, value))
      if other is not file and repr(other_value) != repr(value):
        problems.setdefault(
          (other.name, file.name),
          f"{other.name} and {file.name} can't meet: they set {key} to {shorten(other_value)} and to {shorten(value)}. "
          'Choose one.',
        )
    return list(problems.values())

  def _find_files_without_effect(self) -> list[str]:
    """Parts that the chosen agent or task doesn't use."""
    by_file: dict[axes.File, list[Key]] = {}
    for binding in self._history:
      if binding.file is not None and binding.file.axis in (axes.Axis.PART, axes.Axis.RUN):
        by_file.setdefault(binding.file, []).append(binding.key)
    problems = []
    for file, keys in by_file.items():
      if not any(key in self._reach.alive for key in keys):
        key = next((key for key in keys if key.selector != MACRO), keys[0])
        axis = axes.Axis.TASK if '.environments.' in key.selector else axes.Axis.AGENT
        files = {binding.file.axis: binding.file.name for binding in self._history if binding.file is not None}
        other = files.get(axis) or files.get(axes.Axis.TASK, 'the rest')  # A saved configuration is a task alone.
        problems.append(
          f'{file.name} has no effect with {other}: nothing refers to {gin_internals.short_name(key.selector)}.'
        )
    return problems

  def _find_missing(self) -> list[str]:
    """Undefined macros, values left `%gin.REQUIRED`, and arguments that neither gin nor a caller supplies."""
    root = Node((), self._root)
    # Python calls the root, and may pass parameters without a default.
    problems = [
      f'{key} must be set. {_how_to_set(key)}'
      for key in (Key('', self._root, parameter) for parameter in gin_internals.signature(self._root).marked)
      if key.parameter not in self._reach.parameters(root)
    ]
    unused_macros = [key.scope for key in self._config if key.selector == MACRO and key not in self._reach.alive]
    for key in sorted(self._reach.alive):
      if gin_internals.is_required(self._config[key]):
        what, suggestion = f'{key} must be set', ''
        if key.selector == MACRO:
          users = [
            edge.holder
            for node, edges in self._reach.edges.items()
            for edge in edges
            if node.selector == MACRO and key in self._reach.parameters(node).values()
          ]
          what = f'the macro {key} must be set (used by {_join(users)})'
          suggestion = _did_you_misspell(key.scope, unused_macros)
        problems.append(f'{self._source(key)}: {what}. {_how_to_set(key)}{suggestion}')
    for node, edges in self._reach.edges.items():
      bound = self._reach.parameters(node)
      name = '/'.join(node.scope)
      if node.selector == MACRO and not bound:
        macro = Key(name, MACRO, 'value')
        problems.append(
          f'{self._source(edges[0].holder)}: the macro {name}, used by '
          f'{_join(edge.holder for edge in edges)}, is never defined. '
          f'{_how_to_set(macro)}{_did_you_misspell(name, unused_macros)}'
        )
      elif not node.selector.startswith('gin.'):
        called = [edge for edge in edges if edge.reference.evaluate]
        required = gin_internals.signature(node.selector).required if called else []
        problems.extend(
          f"{self._source(called[0].holder)}: {called[0].reference} has no value for '{parameter}'. "
          f'{_how_to_set(Key(name, node.selector, parameter))}'
          for parameter in required
          if parameter not in bound
        )
    return problems

  def _explain(self, key: Key) -> str:
    """Why a binding configures nothing, and what the user may have meant."""
    nodes = [node for node in self._reach.edges if node.selector == key.selector]
    name = gin_internals.short_name(key.selector)
    if key.selector == MACRO:
      used = [node.scope[0] for node in nodes]
      if gin_internals.matching_selectors(key.scope):
        return f'this defines a macro. To configure {key.scope}, name a parameter: {key.scope}.<parameter> = ...'
      return f'nothing uses the macro.{self._what_changed(key)}{axes.did_you_mean(key.scope, used)}'
    if not nodes:
      return f'nothing refers to {name}{self._what_is_there_instead(key)}'
    if key.scope not in self._reach.scopes():
      return f"no reference opens the scope '{key.scope}'.{axes.did_you_mean(key.scope, self._reach.scopes())}"
    if key.scope not in self._reach.scopes(key.selector):
      for edge in (edge for node in nodes for edge in self._reach.edges[node]):
        if key.scope == '/'.join(edge.holder_scope) and not edge.reference.scopes and not edge.reference.evaluate:
          return (
            f"{self._show(edge.holder)} has no parentheses: it is called later, outside the scope '{key.scope}'. "
            f'Write @{key.scope}/{name} there.'
          )
      scopes = ('/'.join(node.scope) for node in nodes)
      macro = next((scope for scope in scopes if Key(scope, MACRO, 'value') in self._config), None)
      hint = f' The macro {macro} is a scope of its own, which replaces others.' if macro else ''
      return f"{name} is not used in the scope '{key.scope}', only {_list_scopes(nodes)}.{hint}"
    depth = len(key.scope.split('/')) if key.scope else 0
    winners = {
      self._reach.parameters(node)[key.parameter] for node in nodes if '/'.join(node.scope[:depth]) == key.scope
    }
    return f'each use of {name} has a narrower binding: {", ".join(self._show(winner) for winner in sorted(winners))}.'

  def _what_changed(self, key: Key) -> str:
    """Names the binding that led to `key` before it was bound to something else."""
    for holder, value, source, _ in self._history:
      if _refers_to(value, key) and not _refers_to(self._config[holder], key):
        return (
          f' {holder} was {shorten(value)} ({source}), but is now {shorten(self._config[holder])} '
          f'({self._source(holder)}).'
        )
    return ''

  def _what_is_there_instead(self, key: Key) -> str:
    changed = self._what_changed(key)
    if changed:
      return f'.{changed}'
    holders = [holder for holder, value in self._config.items() if _refers_to(value, key)]
    if holders:
      return f' but {_join(holders)}, which configures nothing either.'
    package = gin_internals.package(key.selector)
    others = {
      f'{edge.holder} is {shorten(edge.reference)}'
      for node, edges in self._reach.edges.items()
      for edge in edges
      if edge.holder.selector != MACRO and gin_internals.package(node.selector) == package
    }
    return f': {", ".join(sorted(others)[:3])}.' if others else '.'


def find_unused(root: str, config: Config, later: Collection[str]) -> dict[Key, str]:
  """Bindings that the static check accepts, but that no call has used so far, each with the reason.

  Args:
    root: Selector of the root configurable.
    config: The configuration.
    later: Selectors of configurables that are called later. What only they lead to is not checked.
  """
  calls = {Node(tuple(filter(None, scope.split('/'))), selector) for scope, selector in gin_internals.operative_calls()}
  supplied = gin_internals.operative_bindings()
  reach = Reach(root, config, barriers=later)
  reasons = {}
  for key in sorted(reach.alive):
    nodes = [node for node in calls if node.selector == key.selector]
    inside = [node for node in nodes if reach.parameters(node).get(key.parameter) == key]
    if any(Key('/'.join(node.scope), *key[1:]) in supplied for node in inside):
      continue
    name = gin_internals.short_name(key.selector)
    if key.selector == MACRO:
      reasons[key] = 'the macro was never read'
    elif not nodes:
      reasons[key] = f'{name} was never called'
    elif not inside:
      reasons[key] = f'{name} was only called {_list_scopes(nodes)}'
    else:
      reasons[key] = f"the code that calls {name} passes its own '{key.parameter}'"
  return reasons


def shorten(value: Any, length: int = 60) -> str:
  text = repr(value)
  return text if len(text) <= length else f'{text[: length - 3]}...'


def _refers_to(value: Any, key: Key) -> bool:
  """Whether the value refers to the macro, or to the configurable in any scope, that `key` configures."""
  return any(
    gin_internals.target(reference) == key.selector
    and (key.selector != MACRO or '/'.join(reference.scopes) == key.scope)
    for reference in gin_internals.references(value)
  )


def _join(keys: Iterable[Key]) -> str:
  return ' and '.join(dict.fromkeys(str(key) for key in keys))


def _list_scopes(nodes: Iterable[Node]) -> str:
  scopes = sorted({'/'.join(node.scope) for node in nodes})
  return ', '.join(f"in the scope '{scope}'" if scope else 'outside any scope' for scope in scopes)


def _how_to_set(key: Key) -> str:
  return f'Write {key} = ... in a gin file, or pass {layers.FLAG}="{key} = ...".'


def _did_you_misspell(name: str, unused: Iterable[str]) -> str:
  near = axes.nearest(name, unused)
  return f' ({near} is defined but not used: is {name} meant?)' if near else ''
