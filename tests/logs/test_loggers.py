"""Tests of loggers: what was written is read back."""

import errno
import io
import json
import os
import time

from absl import logging
import jax.numpy as jnp
import numpy as np
from PIL import Image
import pytest
from tensorboard.backend.event_processing import event_accumulator

from lambda_kit import core
from lambda_kit.analysis import rows as rows_lib
from lambda_kit.logs import loggers


def _lines(path) -> list[str]:
  return path.read_text().splitlines()


class TestJsonl:
  def test_rows_come_back_with_their_time(self, tmp_path):
    before = time.time()
    logger = loggers.JsonlLogger(tmp_path / 'new' / 'logs')
    logger.write('episode', {'environment_steps': 1000, 'episode_return': 1.5, 'cost_return': [25.0, 0.0]})
    logger.write('learner', {'environment_steps': 1000, 'loss': 0.25})
    logger.close()
    (episode,) = rows_lib.read_jsonl(tmp_path / 'new' / 'logs' / 'episode.jsonl')
    (learner,) = rows_lib.read_jsonl(tmp_path / 'new' / 'logs' / 'learner.jsonl')
    assert before <= episode.pop('time') <= time.time()
    assert episode == {'environment_steps': 1000, 'episode_return': 1.5, 'cost_return': [25.0, 0.0]}
    assert learner['loss'] == 0.25

  def test_arrays_become_lists_and_scalars_numbers(self, tmp_path):
    logger = loggers.JsonlLogger(tmp_path)
    logger.write(
      'evaluation',
      {
        'environment_steps': np.int64(7),
        'safe': np.bool_(True),
        'episode_return': np.float32(0.5),
        'cost_return': np.array([1.0, 2.0], np.float32),
        'loss': jnp.asarray(0.75),
        'note': 'text',
        'cost_returns': [np.array([1.0, 2.0]), np.array([3.0, 4.0])],
      },
    )
    (row,) = rows_lib.read_jsonl(tmp_path / 'evaluation.jsonl')
    del row['time']
    assert row == {
      'environment_steps': 7,
      'safe': True,
      'episode_return': 0.5,
      'cost_return': [1.0, 2.0],
      'loss': 0.75,
      'note': 'text',
      'cost_returns': [[1.0, 2.0], [3.0, 4.0]],
    }

  def test_numbers_that_are_not_finite_are_null_in_strict_json(self, tmp_path):
    logger = loggers.JsonlLogger(tmp_path)
    logger.write(
      'learner', {'environment_steps': 1, 'a': float('nan'), 'b': np.float32('inf'), 'c': np.array([1.0, -np.inf])}
    )

    def reject(constant):
      raise AssertionError(f'{constant} is no JSON.')

    row = json.loads((tmp_path / 'learner.jsonl').read_text(), parse_constant=reject)
    assert (row['a'], row['b'], row['c']) == (None, None, [1.0, None])
    np.testing.assert_array_equal(np.asarray(row['c'], float), [1.0, np.nan])

  def test_each_row_is_on_disk_before_close(self, tmp_path):
    logger = loggers.JsonlLogger(tmp_path)
    for steps in (1, 2, 3):
      logger.write('episode', {'environment_steps': steps})
      assert len(rows_lib.read_jsonl(tmp_path / 'episode.jsonl')) == steps

  def test_continues_a_file_after_cutting_its_torn_line(self, tmp_path):
    path = tmp_path / 'episode.jsonl'
    path.write_bytes(b'{"environment_steps": 1}\n{"environment_steps": 2}\n{"environment_st')
    loggers.JsonlLogger(tmp_path).write('episode', {'environment_steps': 3})
    assert [row['environment_steps'] for row in map(json.loads, _lines(path))] == [1, 2, 3]

  def test_a_file_of_one_torn_line_starts_anew(self, tmp_path):
    (tmp_path / 'episode.jsonl').write_bytes(b'{"environment_st')
    loggers.JsonlLogger(tmp_path).write('episode', {'environment_steps': 3})
    assert [json.loads(line)['environment_steps'] for line in _lines(tmp_path / 'episode.jsonl')] == [3]

  def test_reader_skips_corrupt_lines_and_names_them(self, tmp_path, monkeypatch):
    path = tmp_path / 'episode.jsonl'
    deep, other = b'[' * 100_000, b'{"environment_stepr": 2}\n{"environment_steps": "2"}\n{"environment_steps": 1e999}'
    path.write_bytes(
      b'{"environment_steps": 1}\n\xff\x00rubbish\n3\n%s\n%s\n{"environment_steps": 4}\n{"envir' % (deep, other)
    )
    warnings = []
    monkeypatch.setattr(logging, 'warning', lambda message, *args: warnings.append(message % args))
    assert [row['environment_steps'] for row in rows_lib.read_jsonl(path)] == [1, 4]
    assert len(warnings) == 7
    for warning, line in zip(warnings, (2, 3, 4, 5, 6, 7, 9)):
      assert warning.startswith(f'{path}, line {line}:')

  def test_full_disk_names_the_file(self, tmp_path, monkeypatch):
    monkeypatch.setattr(loggers, 'open', lambda path, mode: open('/dev/full', mode), raising=False)
    logger = loggers.JsonlLogger(tmp_path)
    for _ in range(2):  # The second time as well: nothing is left in a buffer that would raise without the name.
      with pytest.raises(OSError, match='The log can not be written.*free some space.*episode.jsonl') as info:
        logger.write('episode', {'environment_steps': 1})
      assert info.value.errno == errno.ENOSPC
    logger.close()

  def test_a_directory_that_can_not_be_made_is_named(self, tmp_path):
    (tmp_path / 'file').touch()
    with pytest.raises(OSError, match='The log can not be written.*file/logs'):
      loggers.JsonlLogger(tmp_path / 'file' / 'logs')

  def test_what_is_no_number_is_refused_before_the_file_is_touched(self, tmp_path):
    logger = loggers.JsonlLogger(tmp_path)
    with pytest.raises(TypeError, match='got a object'):
      logger.write('learner', {'environment_steps': 1, 'loss': object()})
    assert not os.listdir(tmp_path)


def _read_events(directory) -> event_accumulator.EventAccumulator:
  return event_accumulator.EventAccumulator(str(directory)).Reload()


class TestTensorBoard:
  def test_scalars_and_arrays_at_their_steps(self, tmp_path):
    logger = loggers.TensorBoardLogger(tmp_path / 'new')
    logger.write('episode', {'environment_steps': 1000, 'episode_return': 1.5, 'cost_return': [25.0, 0.5]})
    logger.write(
      'episode',
      {
        'environment_steps': np.int64(2000),
        'episode_return': np.float32(2.5),
        'cost_return': np.array([20.0, 1.5]),
        'note': 'text',
        'nothing': None,
      },
    )
    logger.write('learner', {'environment_steps': 2000, 'loss': jnp.asarray(0.25), 'ratio': float('nan')})
    logger.close()
    events = _read_events(tmp_path / 'new')
    assert set(events.Tags()['scalars']) == {
      'episode/episode_return',
      'episode/cost_return/0',
      'episode/cost_return/1',
      'learner/loss',
      'learner/ratio',
    }
    assert [(event.step, event.value) for event in events.Scalars('episode/episode_return')] == [
      (1000, 1.5),
      (2000, 2.5),
    ]
    assert [(event.step, event.value) for event in events.Scalars('episode/cost_return/1')] == [
      (1000, 0.5),
      (2000, 1.5),
    ]
    assert np.isnan(events.Scalars('learner/ratio')[0].value)

  def test_pictures_and_videos(self, tmp_path):
    picture, video = io.BytesIO(), io.BytesIO()
    Image.new('RGB', (30, 20), (255, 0, 0)).save(picture, format='PNG')
    frames = [Image.new('RGB', (8, 6), (0, 0, 60 * i)) for i in range(4)]
    frames[0].save(video, format='GIF', save_all=True, append_images=frames[1:])
    logger = loggers.TensorBoardLogger(tmp_path)
    logger.write_image('evaluation/curve', picture.getvalue(), 1000)
    logger.write_image('evaluation/video', video.getvalue(), 2000)
    logger.close()
    events = _read_events(tmp_path)
    assert set(events.Tags()['images']) == {'evaluation/curve', 'evaluation/video'}
    (event,) = events.Images('evaluation/curve')
    assert (event.step, event.width, event.height, event.encoded_image_string) == (1000, 30, 20, picture.getvalue())
    (event,) = events.Images('evaluation/video')
    assert (event.step, event.width, event.height) == (2000, 8, 6)
    with Image.open(io.BytesIO(event.encoded_image_string)) as image:
      assert image.format == 'GIF' and image.n_frames == 4

  def test_evaluation_episodes_are_histograms(self, tmp_path):
    logger = loggers.TensorBoardLogger(tmp_path)
    logger.write(
      'evaluation',
      {
        'environment_steps': 10,
        'episode_return': 2.0,
        'episode_returns': [1.0, 3.0, np.nan],
        'cost_returns': [[0.0, 7.0], [2.0, 7.0], [4.0, 7.0]],
      },
    )
    logger.close()
    events = _read_events(tmp_path)
    assert set(events.Tags()['histograms']) == {
      'evaluation/episode_returns',
      'evaluation/cost_returns/0',
      'evaluation/cost_returns/1',
    }
    assert events.Tags()['scalars'] == ['evaluation/episode_return']
    (event,) = events.Histograms('evaluation/cost_returns/0')
    value = event.histogram_value
    assert (event.step, value.min, value.max, value.num, value.sum) == (10, 0.0, 4.0, 3, 6.0)
    assert events.Histograms('evaluation/episode_returns')[0].histogram_value.num == 2

  def test_rows_can_be_read_before_close(self, tmp_path):
    loggers.TensorBoardLogger(tmp_path).write('learner', {'environment_steps': 1, 'loss': 1.0})
    assert len(_read_events(tmp_path).Scalars('learner/loss')) == 1

  def test_resuming_hides_what_lies_beyond_the_checkpoint(self, tmp_path):
    logger = loggers.TensorBoardLogger(tmp_path)
    for steps in (1000, 2000, 3000):
      logger.write('learner', {'environment_steps': steps, 'loss': 1.0})
    logger.close()
    logger = loggers.TensorBoardLogger(tmp_path, resume_from=2000)
    logger.write('learner', {'environment_steps': 2500, 'loss': 2.0})
    logger.close()
    assert len(os.listdir(tmp_path)) == 2
    assert [(event.step, event.value) for event in _read_events(tmp_path).Scalars('learner/loss')] == [
      (1000, 1.0),
      (2000, 1.0),
      (2500, 2.0),
    ]

  def test_full_disk_names_the_directory(self, tmp_path, monkeypatch):
    logger = loggers.TensorBoardLogger(tmp_path)

    def fail():
      raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(logger._writer, 'flush', fail)
    with pytest.raises(OSError, match=f'free some space.*{tmp_path}'):
      logger.write('learner', {'environment_steps': 1, 'loss': 1.0})


class _Recorder(core.Logger):
  def __init__(self, error: Exception | None = None):
    self.rows, self.closed, self.error = [], False, error

  def write(self, kind, row):
    self.rows.append((kind, row))

  def close(self):
    self.closed = True
    if self.error:
      raise self.error


class TestGroup:
  def test_every_logger_gets_every_row(self):
    members = [_Recorder(), _Recorder()]
    group = loggers.LoggerGroup(members)
    group.write('learner', {'environment_steps': 1})
    assert all(member.rows == [('learner', {'environment_steps': 1})] for member in members)

  def test_all_are_closed_when_some_raise(self, monkeypatch):
    members = [_Recorder(), _Recorder(OSError('first')), _Recorder(), _Recorder(ValueError('second'))]
    errors = []
    monkeypatch.setattr(logging, 'error', lambda message, *args: errors.append(message % args))
    with pytest.raises(OSError, match='first'):
      loggers.LoggerGroup(members).close()
    assert all(member.closed for member in members)
    assert errors == ['_Recorder could not be closed either: second']
