"""Copies an SVG without anything that could run, load or lead elsewhere.

What is kept is what figures of runs have (`drawing.save`): shapes, text and embedded PNGs. A browser that opens an SVG
file by itself would run its scripts and load what it names.
"""

import re
from xml.etree import ElementTree

_NAMESPACE = 'http://www.w3.org/2000/svg'
_XLINK = 'http://www.w3.org/1999/xlink'
_ELEMENTS = frozenset(
  ('svg', 'g', 'defs', 'style', 'path', 'use', 'clipPath', 'rect', 'image', 'text', 'tspan', 'line', 'circle')
)
_ATTRIBUTES = frozenset(
  ('id', 'd', 'style', 'transform', 'clip-path', 'viewBox', 'version', 'width', 'height', 'opacity', 'fill')
  + ('x', 'y', 'x1', 'y1', 'x2', 'y2', 'cx', 'cy', 'r', 'preserveAspectRatio', 'stroke', 'font-size', 'text-anchor')
)
# No functions but these, and no escapes: CSS could load a file by url(), image-set() or @import.
_HARMLESS = re.compile(r"""(?:[\w\s#%.,:;*{}'"+-]|(?:translate|rotate|scale|matrix)\([\d\s.,e+-]*\)|url\(#[\w-]+\))*""")
_PNG = re.compile(r'data:image/png;base64,[A-Za-z0-9+/=\s]*')


def clean(content: bytes) -> bytes:
  """Returns the SVG with the elements and attributes that are known to be harmless. Raises a ValueError for others."""
  try:
    text = content.decode('utf-8')
    if '<!ENTITY' in text:  # Entities of entities grow without limit.
      raise ValueError('it defines entities')
    root = ElementTree.fromstring(text)
    if root.tag != f'{{{_NAMESPACE}}}svg':
      raise ValueError(f'its root is {root.tag[:80]!r}')
    # Only paths are used again: of groups that use groups, a small file could draw any number.
    paths = {f'#{path.get("id")}' for path in root.iter(f'{{{_NAMESPACE}}}path')}
    copied = _copy(root, paths)
    copied.attrib |= {'xmlns': _NAMESPACE, 'xmlns:xlink': _XLINK}
    return ElementTree.tostring(copied, 'utf-8', xml_declaration=True)
  except (ElementTree.ParseError, RecursionError, ValueError) as error:
    raise ValueError(f'it is no SVG of a figure ({error})') from error


def _copy(element: ElementTree.Element, paths: set[str]) -> ElementTree.Element:
  name = element.tag.removeprefix(f'{{{_NAMESPACE}}}')
  copied = ElementTree.Element(name)
  for key, value in element.attrib.items():
    if key in _ATTRIBUTES and _HARMLESS.fullmatch(value):
      copied.set(key, value)
  link = element.get(f'{{{_XLINK}}}href', element.get('href', ''))
  if (name == 'use' and link in paths) or (name == 'image' and _PNG.fullmatch(link)):
    copied.set('xlink:href', link)
  if name in ('text', 'tspan') or _HARMLESS.fullmatch(element.text or ''):
    copied.text = element.text
  copied.tail = element.tail if name == 'tspan' else None
  for child in element:
    if child.tag in (f'{{{_NAMESPACE}}}{known}' for known in _ELEMENTS):
      copied.append(_copy(child, paths))
  return copied
