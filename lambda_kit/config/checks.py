"""Finds what a configuration fails to set, and what it sets to no effect, before anything is built.

Gin ignores a misspelt scope, an unused macro and the parameters of a part that nothing uses. Here these are errors.
The argument is static: what a run can use is what references lead to from one root configurable.

Which scope a reference opens (each of these is compared with gin itself in the tests):

  in a configurable that runs in scope `a`:   the configurable referred to runs in
  `@b/X()`, `@b/X`                            `b`: the scope of a reference replaces the one it stands in
  `@X()`                                      `a`
  `@X`                                        none. True if X is called later; it would be `a` if the constructor
                                              called it, which is not for gin files to know: write `@a/X`.
  `%M`                                        `M`: a macro is a scope of its own

In the scope `a/b` the bindings of `X`, `a/X` and `a/b/X` apply, and the narrowest wins. Those of `b/X` do not apply.
"""

import collections
import functools
from typing import Any, Collection, Iterable, Mapping, NamedTuple, Sequence

from lambda_kit.config import gin_internals
from lambda_kit.config import layers

ConfigurationError = layers.ConfigurationError
Config = Mapping[gin_internals.Key, Any]
Key = gin_internals.Key
MACRO = gin_internals.MACRO


class Node(NamedTuple):
  """A configurable, and a scope that it runs in."""
  scope: tuple[str, ...]
  selector: str


class Edge(NamedTuple):
  """A reference that leads to a node."""
  holder: Key  # whose value it is in
  holder_scope: tuple[str, ...]  # in which the holder runs
  reference: gin_internals.Reference


class Reach:
  """All that references lead to from the root.

  Attributes:
    alive: bindings that supply a parameter of some node.
    edges: the nodes, each with the references that lead to it.
  """

  def __init__(self, root: str, config: Config, barriers: Collection[str] = ()):
    """Follows references from the selector `root`, without entering the selectors in `barriers`."""
    self._config = config
    self.alive: set[Key] = set()
    self.edges: dict[Node, list[Edge]] = {Node((), root): []}
    queue = collections.deque(self.edges)
    while queue:
      node = queue.popleft()
      for key in self.parameters(node).values():
        self.alive.add(key)
        for reference in gin_internals.references(config[key]):
          child = Node(_child_scope(node, reference), gin_internals.target(reference))
          if child.selector in barriers:
            continue
          if child not in self.edges:
            self.edges[child] = []
            queue.append(child)
          self.edges[child].append(Edge(key, node.scope, reference))

  @functools.cached_property
  def _parameters_of(self) -> dict[tuple[str, str], list[Key]]:
    grouped = collections.defaultdict(list)
    for key in self._config:
      grouped[key.scope, key.selector].append(key)
    return grouped

  def parameters(self, node: Node) -> dict[str, Key]:
    """For each parameter of the node that is bound, the binding that applies."""
    prefixes = ('/'.join(node.scope[:i]) for i in range(len(node.scope) + 1))
    return {key.parameter: key for prefix in prefixes for key in self._parameters_of.get((prefix, node.selector), ())}

  def scopes(self, selector: str | None = None) -> set[str]:
    """Scopes, and the scopes around them, that a configurable (by default, any) runs in."""
    nodes = [node for node in self.edges if node.selector == selector or
             selector is None and node.selector not in (MACRO, gin_internals.CONSTANT)]
    return {'/'.join(node.scope[:i]) for node in nodes for i in range(len(node.scope) + 1)}


def _child_scope(node: Node, reference: gin_internals.Reference) -> tuple[str, ...]:
  if reference.scopes:
    return tuple(reference.scopes)
  # A singleton calls its constructor itself, in its own scope.
  return node.scope if reference.evaluate or node.selector == gin_internals.SINGLETON else ()


class Checker:
  """Checks a configuration that was read in layers."""

  def __init__(self, root: str, history: Sequence[layers.Binding], snapshots: Sequence[layers.Snapshot]):
    self._root = root
    self._history = history
    self._snapshots = snapshots
    self._config = snapshots[-1].config
    self._reach = Reach(root, self._config)
    self._last_read = {binding.key: i for i, binding in enumerate(history)}

  def check(self) -> list[Key]:
    """Raises a `ConfigurationError` that lists all that is wrong.

    Returns:
      Superseded bindings: they have no effect now, but had one in the layers up to some point after their own. That is
      how one line of a later layer swaps a part for another.
    """
    # What is missing comes first: it may hold the reference that leads to the rest.
    self._raise(self._find_missing())
    dead = [key for key in self._config if key not in self._reach.alive]
    superseded = [key for key in dead if self._was_alive(key)]
    useless = [key for key in dead if key not in superseded]
    self._raise([f'{self._source(key)}: {key} configures nothing: {self._explain(key)}' for key in useless])
    return superseded

  def _raise(self, problems: Iterable[str]) -> None:
    problems = list(problems)
    if problems:
      raise ConfigurationError('\n'.join(problems))

  def _source(self, key: Key) -> str:
    return self._history[self._last_read[key]].source

  def _show(self, key: Key) -> str:
    """'Critic.mlp = @Mlp (gin/base.gin:3)'."""
    return f'{key} = {shorten(self._config[key])} ({self._source(key)})'

  def _was_alive(self, key: Key) -> bool:
    return any(num_read > self._last_read[key] and key in alive for num_read, alive in self._earlier)

  @functools.cached_property
  def _earlier(self) -> list[tuple[int, set[Key]]]:
    return [(snapshot.num_read, Reach(self._root, snapshot.config).alive) for snapshot in self._snapshots[:-1]]

  def _find_missing(self) -> list[str]:
    """Macros without a value, values left `%gin.REQUIRED`, arguments that neither gin nor a caller supplies."""
    root = Node((), self._root)
    # Python calls the root, and may pass what has no default at all.
    problems = [f'{key} must be set. {_how_to_set(key)}' for key in
                (Key('', self._root, parameter) for parameter in gin_internals.signature(self._root).marked)
                if key.parameter not in self._reach.parameters(root)]
    unused_macros = [key.scope for key in self._config if key.selector == MACRO and key not in self._reach.alive]
    for key in sorted(self._reach.alive):
      if gin_internals.is_required(self._config[key]):
        what, suggestion = f'{key} must be set', ''
        if key.selector == MACRO:
          users = [edge.holder for node, edges in self._reach.edges.items() for edge in edges
                   if node.selector == MACRO and key in self._reach.parameters(node).values()]
          what = f'the macro {key} must be set (used by {_join(users)})'
          suggestion = _did_you_misspell(key.scope, unused_macros)
        problems.append(f'{self._source(key)}: {what}. {_how_to_set(key)}{suggestion}')
    for node, edges in self._reach.edges.items():
      bound = self._reach.parameters(node)
      name = '/'.join(node.scope)
      if node.selector == MACRO and not bound:
        macro = Key(name, MACRO, 'value')
        problems.append(f'{self._source(edges[0].holder)}: the macro {name}, used by '
                        f'{_join(edge.holder for edge in edges)}, is never defined. '
                        f'{_how_to_set(macro)}{_did_you_misspell(name, unused_macros)}')
      elif not node.selector.startswith('gin.'):
        called = [edge for edge in edges if edge.reference.evaluate]
        required = gin_internals.signature(node.selector).required if called else []
        problems.extend(f"{self._source(called[0].holder)}: {called[0].reference} has no value for '{parameter}'. "
                        f'{_how_to_set(Key(name, node.selector, parameter))}'
                        for parameter in required if parameter not in bound)
    return problems

  def _explain(self, key: Key) -> str:
    """Why a binding configures nothing, and what may have been meant."""
    nodes = [node for node in self._reach.edges if node.selector == key.selector]
    name = gin_internals.short_name(key.selector)
    if key.selector == MACRO:
      used = [node.scope[0] for node in nodes]
      if gin_internals.matching_selectors(key.scope):
        return f'this defines a macro. To configure {key.scope}, name a parameter: {key.scope}.<parameter> = ...'
      return f'nothing uses the macro.{self._what_changed(key)}{layers.did_you_mean(key.scope, used)}'
    if not nodes:
      return f'nothing refers to {name}{self._what_is_there_instead(key)}'
    if key.scope not in self._reach.scopes():
      return f"no reference opens the scope '{key.scope}'.{layers.did_you_mean(key.scope, self._reach.scopes())}"
    if key.scope not in self._reach.scopes(key.selector):
      for edge in (edge for node in nodes for edge in self._reach.edges[node]):
        if key.scope == '/'.join(edge.holder_scope) and not edge.reference.scopes and not edge.reference.evaluate:
          return (f"{self._show(edge.holder)} has no parentheses: it is called later, outside the scope '{key.scope}'. "
                  f'Write @{key.scope}/{name} there.')
      scopes = ('/'.join(node.scope) for node in nodes)
      macro = next((scope for scope in scopes if Key(scope, MACRO, 'value') in self._config), None)
      hint = f' The macro {macro} is a scope of its own, which replaces others.' if macro else ''
      return f"{name} is not used in the scope '{key.scope}', only {_list_scopes(nodes)}.{hint}"
    depth = len(key.scope.split('/')) if key.scope else 0
    winners = {self._reach.parameters(node)[key.parameter] for node in nodes
               if '/'.join(node.scope[:depth]) == key.scope}
    return f'each use of {name} has a narrower binding: {", ".join(self._show(winner) for winner in sorted(winners))}.'

  def _what_changed(self, key: Key) -> str:
    """Names the binding that led to `key` until it was bound to something else."""
    for holder, value, source in self._history:
      if _refers_to(value, key) and not _refers_to(self._config[holder], key):
        return f' {holder} was {shorten(value)} ({source}), but is now {shorten(self._config[holder])} ' \
               f'({self._source(holder)}).'
    return ''

  def _what_is_there_instead(self, key: Key) -> str:
    changed = self._what_changed(key)
    if changed:
      return f'.{changed}'
    holders = [holder for holder, value in self._config.items() if _refers_to(value, key)]
    if holders:
      return f' but {_join(holders)}, which configures nothing either.'
    package = gin_internals.package(key.selector)
    others = {f'{edge.holder} is {shorten(edge.reference)}' for node, edges in self._reach.edges.items()
              for edge in edges if edge.holder.selector != MACRO and gin_internals.package(node.selector) == package}
    return f': {", ".join(sorted(others)[:3])}.' if others else '.'


def find_unused(root: str, config: Config, later: Collection[str]) -> dict[Key, str]:
  """Bindings that the static check lets pass, but that no call has taken so far, each with the reason.

  Args:
    root: selector of the root configurable.
    config: the configuration.
    later: selectors of configurables that were not due yet. What only they lead to is not judged.
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
  return text if len(text) <= length else f'{text[:length - 3]}...'


def _refers_to(value: Any, key: Key) -> bool:
  """True if the value holds a reference to the macro, or to the configurable in any scope, that `key` configures."""
  return any(gin_internals.target(reference) == key.selector and
             (key.selector != MACRO or '/'.join(reference.scopes) == key.scope)
             for reference in gin_internals.references(value))


def _join(keys: Iterable[Key]) -> str:
  return ' and '.join(dict.fromkeys(str(key) for key in keys))


def _list_scopes(nodes: Iterable[Node]) -> str:
  scopes = sorted({'/'.join(node.scope) for node in nodes})
  return ', '.join(f"in the scope '{scope}'" if scope else 'outside any scope' for scope in scopes)


def _how_to_set(key: Key) -> str:
  return f'Write {key} = ... in a gin file, or pass {layers.FLAG}="{key} = ...".'


def _did_you_misspell(name: str, unused: Iterable[str]) -> str:
  near = layers.nearest(name, unused)
  return f' ({near} is defined but not used: is {name} meant?)' if near else ''
