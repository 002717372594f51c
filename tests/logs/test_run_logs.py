"""Logs of runs: what a checkpoint stands for is there after any damage to one of two files."""

import json
import os

from absl import logging
import hypothesis
from hypothesis import strategies as st
import pytest

from lambda_kit import files
from lambda_kit.logs import run_logs

_STEPS = (1000, 2000, 3000)


@pytest.fixture
def warnings(monkeypatch):
  messages = []
  monkeypatch.setattr(logging, 'warning', lambda message, *args: messages.append(message % args))
  return messages


def _open(folder) -> run_logs.RunLogs:
  return run_logs.RunLogs(folder, folder / 'checkpoints')


def _write(logs, steps, **values) -> None:
  for step in steps:
    logs.write('episode', {'environment_steps': step, **values})


def _checkpointed(folder):
  """The state of logs with three rows, and the bytes of the log. Two later rows follow in the file."""
  logs = _open(folder)
  logs.restore({})
  _write(logs, _STEPS)
  state = json.loads(json.dumps(logs.save()))
  content = (folder / 'episode.jsonl').read_bytes()
  _write(logs, (4000, 5000))
  logs.close()
  return state, content


def test_resuming_drops_rows_beyond_the_checkpoint(tmp_path, warnings):
  state, content = _checkpointed(tmp_path)
  logs = _open(tmp_path)
  logs.restore(state)
  assert (tmp_path / 'episode.jsonl').read_bytes() == content and not warnings
  assert logs.save() == state
  _write(logs, [4000], run='second')
  logs.close()
  rows = [json.loads(line) for line in (tmp_path / 'episode.jsonl').read_text().splitlines()]
  assert [(row['environment_steps'], row.get('run')) for row in rows] == [
    *((step, None) for step in _STEPS),
    (4000, 'second'),
  ]
  assert sorted(os.listdir(tmp_path)) == ['checkpoints', 'episode.jsonl']


def test_a_run_without_a_checkpoint_begins_with_empty_logs_of_its_own(tmp_path):
  _checkpointed(tmp_path)
  (tmp_path / 'notes.jsonl').write_text('mine')
  _open(tmp_path).restore({})
  assert sorted(os.listdir(tmp_path)) == ['checkpoints', 'notes.jsonl']
  assert (tmp_path / 'notes.jsonl').read_text() == 'mine' and not os.listdir(tmp_path / 'checkpoints')


def _flip_key(path):
  path.write_bytes(path.read_bytes().replace(b'environment_steps', b'environment_stepr', 1))


def _flip_digit(path):
  path.write_bytes(path.read_bytes().replace(b'2000', b'2001', 1))


def _invalid_json(path):
  path.write_bytes(path.read_bytes().replace(b'{', b'[', 2))


def _wrong_type(path):
  path.write_bytes(path.read_bytes().replace(b'1000', b'"no"', 1))


def _drop_line(path):
  path.write_bytes(b''.join(path.read_bytes().splitlines(keepends=True)[1:]))


def _tear(path):
  os.truncate(path, 7)


def _delete(path):
  path.unlink()


@pytest.mark.parametrize('damage', [_flip_key, _flip_digit, _invalid_json, _wrong_type, _drop_line, _tear, _delete])
@pytest.mark.parametrize('name', ['episode.jsonl', 'checkpoints/episode.rows'])
def test_a_damaged_file_is_written_again_and_told_once(damage, name, tmp_path, warnings):
  state, content = _checkpointed(tmp_path)
  damage(tmp_path / name)
  logs = _open(tmp_path)
  logs.restore(state)
  assert (tmp_path / 'episode.jsonl').read_bytes() == content == (tmp_path / 'checkpoints/episode.rows').read_bytes()
  assert logs.save() == state
  assert len(warnings) == 1 and f'{tmp_path / name} was ' in warnings[0] and 'the 3 rows' in warnings[0]
  _open(tmp_path).restore(state)
  assert len(warnings) == 1


def test_a_warning_names_the_line(tmp_path, warnings):
  state, _ = _checkpointed(tmp_path)
  _flip_digit(tmp_path / 'episode.jsonl')
  _open(tmp_path).restore(state)
  assert 'was damaged from line 2 on' in warnings[0]


def test_rows_stay_that_can_be_read_if_both_files_are_damaged(tmp_path, warnings):
  state, content = _checkpointed(tmp_path)
  _flip_key(tmp_path / 'episode.jsonl')
  _tear(tmp_path / 'checkpoints/episode.rows')
  logs = _open(tmp_path)
  logs.restore(state)
  kept = b''.join(content.splitlines(keepends=True)[1:])
  assert (tmp_path / 'episode.jsonl').read_bytes() == kept == (tmp_path / 'checkpoints/episode.rows').read_bytes()
  assert 'both damaged: 2 of 3 rows could be read' in warnings[0]
  told = len(warnings)
  again = _open(tmp_path)
  again.restore(logs.save())
  assert len(warnings) == told


def test_logs_of_older_versions_are_taken_over(tmp_path, warnings):
  _, content = _checkpointed(tmp_path)
  (tmp_path / 'checkpoints' / 'episode.rows').unlink()
  logs = _open(tmp_path)
  logs.adopt(3000)
  assert (tmp_path / 'episode.jsonl').read_bytes() == content == (tmp_path / 'checkpoints/episode.rows').read_bytes()
  assert not warnings and not (tmp_path / 'learner.jsonl').exists()
  logs.restore(logs.save())
  assert not warnings


@hypothesis.given(
  st.lists(st.integers(0, 20), max_size=12), st.integers(0, 12), st.booleans(), st.floats(0, 1), st.binary(max_size=40)
)
@hypothesis.settings(max_examples=60, deadline=None)
def test_any_damage_to_one_file_is_repaired(tmp_path_factory, steps, num_saved, hurts_copy, share, rubbish):
  """Rows up to the checkpoint come back to the byte, whatever happens to the file behind any of its bytes."""
  folder = tmp_path_factory.mktemp('logs')
  steps = sorted(steps)
  logs = _open(folder)
  logs.restore({})
  _write(logs, steps[:num_saved])
  state = logs.save()
  log, copy = folder / 'episode.jsonl', folder / 'checkpoints' / 'episode.rows'
  kept = log.read_bytes() if log.exists() else b''
  _write(logs, steps[num_saved:])
  logs.close()
  hurt = copy if hurts_copy else log
  content = hurt.read_bytes() if hurt.exists() else b''
  hurt.write_bytes(content[: int(share * len(content))] + rubbish)
  logs = _open(folder)
  logs.restore(state)
  assert [path.read_bytes() if path.exists() else b'' for path in (log, copy)] == [kept, kept]
  _write(logs, [21])
  logs.close()
  assert log.read_bytes() == copy.read_bytes() and log.read_bytes().startswith(kept)
  assert [json.loads(line)['environment_steps'] for line in log.read_text().splitlines()] == [*steps[:num_saved], 21]


def test_a_full_disk_has_room_for_dropping_rows(tmp_path):
  state, content = _checkpointed(tmp_path)
  path = tmp_path / 'episode.jsonl'
  inode = path.stat().st_ino
  _open(tmp_path).restore(state)
  assert path.read_bytes() == content and path.stat().st_ino == inode  # No copy was made.


def test_links_are_refused_by_name_and_their_targets_stay(tmp_path):
  state, _ = _checkpointed(tmp_path)
  target = tmp_path / 'diary'
  target.write_text('dear')
  (tmp_path / 'learner.jsonl').symlink_to(target)
  with pytest.raises(files.NotPlainError, match='learner.jsonl is a symbolic link'):
    _open(tmp_path).restore(state)
  assert target.read_text() == 'dear'


def test_what_is_no_file_is_refused_by_name(tmp_path):
  os.mkfifo(tmp_path / 'episode.jsonl')
  with pytest.raises(files.NotPlainError, match='episode.jsonl is neither a file'):
    _open(tmp_path).restore({})
