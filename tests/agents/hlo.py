"""What devices tell each other, read from a compiled program's text."""

import re
from typing import NamedTuple

import numpy as np

_COMPUTATION = re.compile(r'^(?:ENTRY )?%?([\w.\-]+) .*\{$')
_COLLECTIVE = re.compile(r'= (.*?) (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(')
_CALLED = re.compile(r'(?:condition|body|calls|to_apply|true_computation|false_computation)=%?([\w.\-]+)')
_BRANCHES = re.compile(r'branch_computations=\{(.*?)\}')
_SHAPE = re.compile(r'\w+\[([\d,]*)\]')


class Collective(NamedTuple):
  kind: str
  size: int  # Numbers, of all of its results.
  in_loop: bool


def collectives(text: str) -> list[Collective]:
  """All exchanges of a program between devices."""
  lines_of: dict[str, list[str]] = {}
  for line in text.splitlines():
    if found := _COMPUTATION.match(line):
      lines = lines_of.setdefault(found[1], [])
    elif line.startswith('  '):
      lines.append(line)
  looped: set[str] = set()
  pending = [name for lines in lines_of.values() for line in lines if ' while(' in line for name in _called(line)]
  while pending:
    name = pending.pop()
    if name not in looped:
      looped.add(name)
      pending += [called for line in lines_of[name] for called in _called(line)]
  return [
    Collective(found[2], _size(found[1]), name in looped)
    for name, lines in lines_of.items()
    for line in lines
    if (found := _COLLECTIVE.search(line))
  ]


def _called(line: str) -> list[str]:
  names = _CALLED.findall(line)
  for branches in _BRANCHES.findall(line):
    names += [name.strip().lstrip('%') for name in branches.split(',')]
  return names


def _size(shapes: str) -> int:
  return sum(int(np.prod([int(n) for n in dims.split(',') if n])) for dims in _SHAPE.findall(shapes))
