"""What a run can use of a configuration: all that references lead to from one root configurable.

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
from collections.abc import Collection, Mapping
import functools
from typing import Any, NamedTuple

from lambda_kit.config import gin_internals

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
    nodes = [
      node
      for node in self.edges
      if node.selector == selector or (selector is None and node.selector not in (MACRO, gin_internals.CONSTANT))
    ]
    return {'/'.join(node.scope[:i]) for node in nodes for i in range(len(node.scope) + 1)}


def _child_scope(node: Node, reference: gin_internals.Reference) -> tuple[str, ...]:
  if reference.scopes:
    return tuple(reference.scopes)
  # A singleton calls its constructor itself, in its own scope.
  return node.scope if reference.evaluate or node.selector == gin_internals.SINGLETON else ()
