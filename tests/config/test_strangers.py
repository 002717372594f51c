"""Configurations of strangers: they import nothing, and cost little to refuse."""

import pathlib
import sys
import time

import pytest

from lambda_kit.config import axes
from lambda_kit.config import configuration
from lambda_kit.config import gin_text

_ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def module(tmp_path, monkeypatch):
  """The name of a module that is not imported yet."""
  (tmp_path / 'their_code.py').write_text('')
  monkeypatch.syspath_prepend(tmp_path)
  yield 'their_code'
  sys.modules.pop('their_code', None)


class TestImports:
  def _parse(self, folder, *files, **options):
    configuration.parse(files, [], search_paths=[str(folder.path)], root='toy_run', **options)

  @pytest.mark.parametrize('statement', ['import {}', 'import {} as np', 'from {} import a'])
  def test_are_refused_where_a_stranger_wrote_them(self, folder, module, statement):
    folder.write('config.gin', f'toy_run.steps = 1\n{statement.format(module)}\n')
    with pytest.raises(configuration.ConfigurationError, match=r'config.gin:2: .*their_code.* would run code.*--trust'):
      self._parse(folder, 'config.gin', with_imports=False)
    assert module not in sys.modules

  @pytest.mark.parametrize('text', ["include 'gin/parts/their.gin'", "A = '''\ninclude 'gin/parts/their.gin'\n'''"])
  def test_are_refused_in_files_that_theirs_includes(self, folder, module, text):
    folder.write('gin/parts/their.gin', f'import {module}\ntoy_run.steps = 1\n')
    folder.write('config.gin', f'{axes.SAVED}\n{text}\n')
    with pytest.raises(configuration.ConfigurationError, match='would run code'):
      self._parse(folder, 'config.gin', with_imports=False)
    assert module not in sys.modules

  def test_are_done_for_the_user(self, folder, module):
    folder.write('mine.gin', f'import {module}\ntoy_run.steps = 1\n')
    self._parse(folder, 'mine.gin')
    assert module in sys.modules


def _chain(count, items):
  return [f'M{i} = [{", ".join([f"%M{i + 1}"] * items)}]' for i in range(count)] + [f'M{count} = 1']


class TestMacros:
  @pytest.mark.parametrize(
    'lines, message',
    [
      (_chain(40, 2), 'M[0-9]+ stands for more than 100,000 values'),
      (_chain(2, 1000), 'M0 stands for more than 100,000 values'),
      (_chain(3000, 1), 'M[0-9]+ leads back to itself, or through too many macros'),
      (['M0 = %M1', 'M1 = (1, %M0)'], 'M[01] leads back to itself'),
      (['M0 = %M0'], 'M0 leads back to itself'),
    ],
    ids=['doubled', 'thousandfold', 'deep', 'circle', 'self'],
  )
  def test_that_stand_for_too_much_are_refused(self, folder, lines, message):
    started = time.monotonic()
    with pytest.raises(configuration.ConfigurationError, match=message):
      folder.parse('\n'.join([*lines, 'toy_run.parts = %M0', '']))
    assert time.monotonic() - started < 5.0

  def test_of_macros_are_fine(self, folder):
    folder.parse('\n'.join([*_chain(8, 2), 'toy_run.parts = %M0', '']))


class TestText:
  @pytest.mark.parametrize('text', ['A = [', 'A = "a', 'A = {[]: 1}', f'A = {"[" * 5000}', 'A = 0x', '\x00', '\\'])
  def test_that_is_no_gin_is_refused(self, folder, text):
    assert folder.error(text)
    with pytest.raises(gin_text.GinTextError):
      gin_text.read_bindings(text)

  def test_that_is_not_utf8_or_too_large_is_refused(self, folder):
    for content in (b'A = "\xff"', b'#' * (1 << 20)):
      (folder.path / '1.gin').write_bytes(content)
      with pytest.raises(ValueError, match='1.gin is not'):
        configuration.parse(['1.gin'], [], search_paths=[str(folder.path)], root='toy_run')


class TestDifferences:
  """By `difflib.ndiff`, these would take hours."""

  _BEFORE = [f'A.abc = {i}' for i in range(3000)]
  _AFTER = [f'A.abd = {i}' for i in range(3000)]

  def test_of_texts(self):
    started = time.monotonic()
    found = configuration.differing_lines('\n'.join(self._BEFORE), '\n'.join(self._AFTER))
    assert sorted(found) == sorted([f'- {line}' for line in self._BEFORE] + [f'+ {line}' for line in self._AFTER])
    assert time.monotonic() - started < 5.0

  def test_of_material_lines(self):
    started = time.monotonic()
    assert len(gin_text.differing_lines(self._BEFORE, self._AFTER)) == 6000
    assert gin_text.differing_lines(['A.b = 1', 'A.c = 2', 'A.e = 1'], ['A.b = 0', 'A.c = 2', 'A.d = 3']) == [
      '- A.b = 1',
      '+ A.b = 0',
      '+ A.d = 3',
      '- A.e = 1',
    ]
    assert time.monotonic() - started < 5.0

  def test_are_those_of_lines(self):
    assert configuration.differing_lines('A = 1  # a.gin:1\nB = 2\n# no\n', 'A = 2  # b.gin:1\nB = 2\nC = 3\n') == [
      '- A = 1',
      '+ A = 2',
      '+ C = 3',
    ]
    assert configuration.differing_lines('A = 1\n', 'A = 1  # --gin_bindings\n') == []
