"""What a run can use of a configuration: everything that references lead to from one root configurable.

Which scope a reference opens (the tests compare each rule with gin itself):

  in a configurable that runs in scope `a`:   the configurable referred to runs in
  `@b/X()`, `@b/X`                            `b`: a reference's scope replaces the surrounding one
  `@X()`                                      `a`
  `@X`                                        none, assuming that X is called later. If the constructor called it, it
                                              would be `a`; to be independent of that, write `@a/X`.
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
  """A configurable and a scope in which it runs."""

  scope: tuple[str, ...]
  selector: str


class Edge(NamedTuple):
  """A reference that leads to a node."""

  holder: Key  # The binding whose value it is in.
  holder_scope: tuple[str, ...]  # The scope in which the holder runs.
  reference: gin_internals.Reference


class Reach:
  """Everything that references lead to from the root.

  Attributes:
    alive: Bindings that supply a parameter of some node.
    edges: The nodes, each with the references that lead to it.
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
    """For each bound parameter of the node, the binding that applies."""
    prefixes = ('/'.join(node.scope[:i]) for i in range(len(node.scope) + 1))
    return {key.parameter: key for prefix in prefixes for key in self._parameters_of.get((prefix, node.selector), ())}

  def scopes(self, selector: str | None = None) -> set[str]:
    """The scopes in which a configurable (by default, any) runs, and the scopes around them."""
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
