"""Writes the catalogue of components, everything that gin files may name, as Markdown from docstrings and defaults."""

import inspect
import pathlib
import re
import textwrap
from typing import Any

from lambda_kit.config import gin_internals

_INTRODUCTION = """# Components

Everything that a gin file may name, by folder, with the parameters that it may bind and their defaults. *Needs* lists
parameters without a default: the code passes most of them; a few, such as a task's id, have to be bound. `@Name` is a
class or function, `@Name()` an object made from it. The docstrings in the files explain the parameters.

Written by `lambda-kit components > docs/components.md`; a test compares the two.
"""


def markdown(package: str = 'lambda_kit') -> str:
  """The catalogue of a package's components, as far as they have been imported."""
  folders: dict[str, list[tuple[str, str]]] = {}
  for selector in gin_internals.selectors():
    component = gin_internals.wrapped(selector)
    module = component.__module__
    if module.split('.')[0] == package:
      folder = module.rpartition('.')[0].replace('.', '/')
      folders.setdefault(folder, []).append((gin_internals.short_name(selector), _entry(selector, component)))
  sections = [
    f'## {folder}/\n\n' + '\n'.join(entry for _, entry in sorted(entries))
    for folder, entries in sorted(folders.items())
  ]
  return '\n'.join([_INTRODUCTION, *sections])


def _entry(selector: str, component: Any) -> str:
  name = gin_internals.short_name(selector)
  signature = gin_internals.signature(selector)
  path = component.__module__.replace('.', '/') + '.py'
  text = f'{_first_sentence(component)} In [{pathlib.Path(path).name}](../{path}).'
  if signature.required:
    text += f' Needs {", ".join(f"`{parameter}`" for parameter in signature.required)}.'
  bindings = [
    f'{name}.{parameter} = {_gin_text(value)}' for parameter, value in signature.defaults.items() if parameter != 'name'
  ]  # Haiku's name of a module.
  lines = [_wrapped(text, '')] + ([''] if bindings else []) + [_wrapped(binding, '    ') for binding in bindings]
  return '\n'.join([f'### {name}', '', *lines, ''])


def _first_sentence(component: Any) -> str:
  """The first sentence of the docstring, on one line."""
  paragraph = ' '.join((inspect.getdoc(component) or '').split('\n\n')[0].split())
  return re.split(r'(?<=[.]) (?=[A-Z])', paragraph)[0]


def _wrapped(text: str, indent: str) -> str:
  return textwrap.fill(
    text,
    118,
    initial_indent=indent,
    subsequent_indent=indent and indent + '    ',
    break_long_words=False,
    break_on_hyphens=False,
  )


def _gin_text(value: Any) -> str:
  """A default as gin text."""
  if isinstance(value, (tuple, list)):
    items = ', '.join(map(_gin_text, value))
    return f'[{items}]' if isinstance(value, list) else f'({items},)' if len(value) == 1 else f'({items})'
  if value is None or isinstance(value, (bool, int, float, str)):
    return repr(value)
  if hasattr(value, '__name__'):
    return f'@{value.__name__}'
  return f'@{type(value).__name__}()'
