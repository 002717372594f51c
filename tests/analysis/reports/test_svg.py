"""SVGs of strangers lose what could run, load or lead elsewhere; those of runs keep what they show."""

from xml.etree import ElementTree

import numpy as np
import pytest

from lambda_kit import types
from lambda_kit.analysis import drawing
from lambda_kit.analysis import prediction_figures
from lambda_kit.analysis.reports import svg

_SVG = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">{}</svg>'


def _clean(inside):
  return svg.clean(_SVG.format(inside).encode()).decode()


def _shapes(content):
  return [
    (element.tag.rpartition('}')[2], {key.rpartition('}')[2]: value for key, value in element.attrib.items()})
    for element in ElementTree.fromstring(content).iter()
    if element.tag.startswith('{http://www.w3.org/2000/svg}') and not element.tag.endswith(('metadata', 'style'))
  ]


def test_pictures_of_runs_stay_as_they_are(tmp_path):
  parts = {'image': np.zeros((3, 4, 4, 3)), 'vector': np.zeros((3, 5))}
  figure = prediction_figures.strip(types.OpenLoop(parts, parts, parts), 5, 'A <title> & more')
  drawing.save(figure, tmp_path, 'strip')
  before = (tmp_path / 'strip.svg').read_bytes()
  after = svg.clean(before)
  assert _shapes(after) == _shapes(before) and b'A &lt;title&gt; &amp; more' in after
  assert svg.clean(after) == after


@pytest.mark.parametrize(
  'inside',
  [
    '<script>evil()</script>',
    '<script href="evil.js"/>',
    '<g onload="evil()"/>',
    '<g onclick="evil()"><path onmouseover="evil()"/></g>',
    '<foreignObject><body xmlns="http://www.w3.org/1999/xhtml">evil</body></foreignObject>',
    '<a xlink:href="javascript:evil()"><text>x</text></a>',
    '<image xlink:href="http://evil/a.png"/>',
    '<image href="file:///evil"/>',
    '<image xlink:href="data:image/svg+xml;base64,evil"/>',
    '<use xlink:href="http://evil/a.svg#x"/>',
    '<use href="data:image/svg+xml;base64,evil"/>',
    '<style>@import "http://evil"</style>',
    '<style>* {fill: url(http://evil)}</style>',
    r'<style>* {fill: \75rl(http://evil)}</style>',
    '<rect style="fill: image-set(\'http://evil\' 1x)"/>',
    '<rect fill="url(http://evil#a)"/>',
    '<animate attributeName="href" to="javascript:evil()"/>',
    '<set attributeName="onload" to="evil()"/>',
    '<x:script xmlns:x="http://www.w3.org/2000/svg">evil()</x:script>',
    '<h:script xmlns:h="http://www.w3.org/1999/xhtml">evil()</h:script>',
    '<g><g><g><iframe src="evil"/></g></g></g>',
    '<?xml-stylesheet href="evil.css"?><!-- evil -->',
    '<path class="evil" data-x="evil" xml:base="http://evil"/>',
  ],
)
def test_what_could_run_or_load_is_gone(inside):
  assert 'evil' not in _clean(inside)


def test_groups_are_not_used_again():
  """Of groups that use groups twice each, a file of forty lines could draw 2^40 shapes."""
  cleaned = _clean('<g id="a"><path id="p"/></g><use xlink:href="#a"/><use xlink:href="#p"/>')
  assert '#p' in cleaned and '#a' not in cleaned


@pytest.mark.parametrize(
  'content',
  [
    b'',
    b'GIF89a',
    b'\xff\xfe',
    b'<svg>',
    b'<html/>',
    b'<svg/>',
    _SVG.format('<g>' * 100_000 + '</g>' * 100_000).encode(),
    b'<!DOCTYPE s [<!ENTITY a "b">]>' + _SVG.format('<text>&a;</text>').encode(),
    f'<?xml version="1.0" encoding="utf-16"?>{_SVG}'.encode('utf-16'),
  ],
  ids=range(9),
)
def test_what_is_no_svg_is_refused(content):
  with pytest.raises(ValueError, match='it is no SVG of a figure'):
    svg.clean(content)
