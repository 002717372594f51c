"""Tests of the seals of rows: they say which run wrote a row, and that nobody changed it."""

import json

import pytest

from lambda_kit.analysis import rows as rows_lib
from lambda_kit.analysis import streams

_ROW = {'environment_steps': 120, 'cost_return': [25.5, None], 'name': 'exploding_kl", "seal": "x'}
_LINE = rows_lib.seal(json.dumps(_ROW), 'abc') + '\n'


def test_a_sealed_row_is_a_row_that_names_its_run():
  row = rows_lib.parse(_LINE.encode())
  assert row.pop('seal').startswith('abc-') and row == _ROW
  assert rows_lib.run_of(_LINE.encode()) == 'abc'
  assert rows_lib.run_of(b'{"environment_steps": 1}\n') is None
  assert rows_lib.parse(b'{"environment_steps": 1}\n') == {'environment_steps': 1}


def test_no_flipped_bit_changes_a_value():
  content = _LINE.encode()
  for position in range(len(content) * 8):
    flipped = bytearray(content)
    flipped[position // 8] ^= 1 << position % 8
    row = rows_lib.parse(bytes(flipped))
    # A seal under another name is none. The rest of the row is as it was.
    assert row is None or {name: row[name] for name in _ROW} == _ROW, bytes(flipped)
    assert row is None or rows_lib.run_of(bytes(flipped)) in (None, 'abc')


@pytest.mark.parametrize('change', [('120', '121'), ('abc-', 'abd-'), ('25.5', '25.50')])
def test_readers_report_a_changed_row(tmp_path, change):
  path, told = tmp_path / 'episode.jsonl', []
  path.write_text(_LINE + _LINE.replace(*change) + _LINE)
  found = list(streams.read_rows(path, lambda number, reason: told.append((number, reason))))
  assert [number for number, _ in found] == [1, 3]
  assert len(told) == 1 and told[0][0] == 2 and 'its checksum does not match' in told[0][1]
  assert len(rows_lib.read_jsonl(path)) == 2
