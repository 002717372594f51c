"""Tests of the schema of scores."""

import dataclasses
import json
import pathlib

import pytest

from lambda_kit.analysis.metrics import protocols
from lambda_kit.analysis.metrics import records

_SCORE = records.SeedScore(
  'PointGoal1',
  'LAMBDA',
  3,
  protocols.paper_protocol('PointGoal1'),
  1_000_500,
  18.8,
  (11.2,),
  (0.034,),
  3600.0,
  'abc',
  'runs/3',
  '3.3.7',
)


def _write(path, text):
  path.write_text(text)
  return path


def test_scores_survive_the_round_trip(tmp_path):
  other = dataclasses.replace(
    _SCORE,
    task='Grid',
    cost_return=(1.0, 30.0),
    cost_regret=(0.1, 0.2),
    protocol=(protocols.Protocol('Grid', 5000, 2, (5.0, 25.0), (('slip', '0.1'),))),
  )
  path = _write(tmp_path / 'scores.json', records.dump_scores([_SCORE, other]))
  assert records.load_scores(path) == [_SCORE, other]
  assert _SCORE.safe and not other.safe  # 30 is over the second limit, 25.
  assert records.load_scores(_write(path, records.dump_scores([]))) == []


def test_rows_of_another_protocol_are_refused(tmp_path):
  longer = dataclasses.replace(_SCORE, protocol=dataclasses.replace(_SCORE.protocol, environment_steps=2_000_000))
  path = _write(tmp_path / 'scores.json', records.dump_scores([_SCORE, longer]))
  with pytest.raises(records.ProtocolError, match='score 2 .*environment_steps is 2,000,000 instead of 1,000,000'):
    records.load_scores(path)
  with pytest.raises(records.ProtocolError, match='score 1 .*1,000,000 instead of 2,000,000'):
    records.load_scores(path, [longer.protocol])
  with pytest.raises(records.ProtocolError, match='no protocol for the task'):
    records.load_scores(path, [])


def test_rows_of_another_physics_are_refused(tmp_path):
  same = dataclasses.replace(_SCORE, seed=4, mujoco='3.3.5')
  path = _write(tmp_path / 'scores.json', records.dump_scores([_SCORE, same]))
  assert records.load_scores(path) == [_SCORE, same]
  for version, name in (('3.4.0', 'MuJoCo 3.4'), (None, 'no MuJoCo')):
    other = dataclasses.replace(_SCORE, seed=4, mujoco=version)
    _write(path, records.dump_scores([_SCORE, other]))
    with pytest.raises(records.ProtocolError, match=f'score 2 .*seed 4.* physics: {name} instead of MuJoCo 3.3'):
      records.load_scores(path)
    _write(path, records.dump_scores([_SCORE, dataclasses.replace(other, algorithm='PPO')]))
    assert len(records.load_scores(path)) == 2


def test_scores_of_the_first_version_were_measured_under_233(tmp_path):
  grid = dataclasses.replace(_SCORE, task='GridCmdp', protocol=protocols.Protocol('GridCmdp', 5000, 2, (5.0,)))
  document = json.loads(records.dump_scores([_SCORE, grid]))
  document['version'] = 1
  for row in document['scores']:
    del row['mujoco']
  scores = records.load_scores(_write(tmp_path / 'scores.json', json.dumps(document)))
  assert [score.mujoco for score in scores] == ['2.3.3', None]


def test_the_projects_own_scores_can_be_read():
  paths = sorted((pathlib.Path(__file__).resolve().parents[3] / 'results').glob('*/scores.json'))
  assert paths
  for path in paths:
    assert records.load_scores(path)


@pytest.mark.parametrize(
  'change, message',
  [
    (lambda document: document.update(version=3), 'has version 3 of the schema; this reads versions 1, 2'),
    (lambda document: document['scores'][0].pop('mujoco'), "score 1: KeyError: 'mujoco'"),
    (lambda document: document['scores'][0].update(mujoco=3.3), 'score 1: ValueError: 3.3 is not a version'),
    (lambda document: document.update(schema='other'), 'not a file of scores'),
    (lambda document: document['scores'][0].pop('cost_regret'), "score 1: KeyError: 'cost_regret'"),
    (lambda document: document['scores'][0].update(episode_return='high'), 'not a finite number'),
    (lambda document: document['scores'][0].update(cost_return=[None]), 'score 1'),
    (lambda document: document['scores'].append(7), 'score 2'),
  ],
)
def test_bad_files_are_refused(tmp_path, change, message):
  document = json.loads(records.dump_scores([_SCORE]))
  change(document)
  with pytest.raises(records.ScoresError, match=message):
    records.load_scores(_write(tmp_path / 'scores.json', json.dumps(document)))


def test_text_that_is_not_json_is_refused(tmp_path):
  with pytest.raises(records.ScoresError, match='is not JSON'):
    records.load_scores(_write(tmp_path / 'scores.json', '{'))
