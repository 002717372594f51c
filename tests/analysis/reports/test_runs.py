"""Tests of how workdirs become records, and of what becomes of bad ones."""

import dataclasses
import gc
import json
import tracemalloc

import numpy as np
import pytest

from benchmarks import synthetic_runs
from lambda_kit.analysis import run_record
from lambda_kit.analysis import streams
from lambda_kit.analysis.metrics import protocols
from lambda_kit.analysis.metrics import records
from lambda_kit.analysis.reports import collection
from lambda_kit.analysis.reports import problems as problems_lib
from lambda_kit.analysis.reports import run_logs
from lambda_kit.analysis.reports import runs

_TEXTS = ('task', 'algorithm', 'config_hash')  # Of a run.json.
_OTHERS = (
  'parts',
  'seed',
  'protocol',
  'configuration',
  'environment_steps',
  'evaluate_every',
  'versions',
  'earlier',
  'seconds',
  'finished',
)


def _collect(folder):
  return collection.collect(*runs.read_runs(folder))


def _kinds(collected):
  return sorted({problem.kind for problem in collected.problems})


class TestReading:
  def test_a_run_becomes_a_score(self, tmp_path):
    synthetic_runs.write_run(tmp_path / 'a' / 'b', seed=3, diagnoses=['KL jumped'])
    (run,), problems = runs.read_runs(tmp_path)
    assert not problems
    # Return 10 + seed. The first episode ends at 1001 s, the fourth evaluation at 1400 s.
    assert run.score == records.SeedScore(
      'PointGoal1',
      'LAMBDA',
      3,
      protocols.paper_protocol('PointGoal1'),
      1_000_000,
      13.0,
      (20.0,),
      (0.03,),
      399.0,
      run.identity.config_hash,
      'a/b',
      '3.3.7',
    )
    assert run.score.safe
    np.testing.assert_allclose(run.curves['episode_return'].values, [3.25, 6.5, 9.75, 13.0])
    np.testing.assert_allclose(run.curves['multiplier'].values[[0, -1]], [0.01, 0.2])
    np.testing.assert_allclose(run.curves['realised_cost'].values, 30.0 / 500)
    assert run.diagnoses == (run_logs.Diagnosis(1_000_000, 'exploding_kl', 'KL jumped'),)

  def test_a_longer_run_is_scored_at_the_papers_steps(self, tmp_path):
    synthetic_runs.write_run(tmp_path / 'run', steps=2_000_000)  # Evaluated at 0.5, 1, 1.5, 2M; its score is 1M's.
    (run,), _ = runs.read_runs(tmp_path)
    assert run.score.environment_steps == 1_000_000 and run.score.episode_return == 5.0
    assert run.identity.protocol == protocols.paper_protocol('PointGoal1')

  def test_the_end_of_a_run_counts_however_late_its_epoch_ends(self, tmp_path):
    folder = synthetic_runs.write_run(tmp_path / 'run', evaluations=40)
    lines = (folder / 'evaluation.jsonl').read_text().splitlines()
    late = json.dumps({**json.loads(lines[-1]), 'environment_steps': 1_050_000})  # Evaluations are 25,000 apart.
    (folder / 'evaluation.jsonl').write_text('\n'.join([*lines[:-1], late]))
    (run,), problems = runs.read_runs(tmp_path)
    assert run.score.environment_steps == 1_050_000 and not problems

  def test_folders_inside_a_workdir_are_no_runs(self, tmp_path):
    synthetic_runs.write_run(tmp_path / 'run')
    synthetic_runs.write_run(tmp_path / 'run' / 'checkpoints' / 'copy')
    assert [run.workdir for run in runs.read_runs(tmp_path)[0]] == ['run']
    assert [run.workdir for run in runs.read_runs(tmp_path / 'run')[0]] == ['run']  # The folder itself may be one.

  def test_memory_does_not_grow_with_logs(self, tmp_path):
    peaks = []
    for rows in (1_000, 8_000):
      synthetic_runs.write_run(tmp_path / str(rows) / 'run', learner_rows=rows)
      gc.collect()
      tracemalloc.start()
      (run,), _ = runs.read_runs(tmp_path / str(rows))
      peaks.append(tracemalloc.get_traced_memory()[1])
      tracemalloc.stop()
      assert 128 <= len(run.curves['multiplier']) <= 258 and run.curves['multiplier'].steps[-1] == 1_000_000
    # Eight times the rows. What is kept, and what Python has not collected yet, differs a little.
    assert peaks[1] < 1.5 * peaks[0], peaks


class TestBadInput:
  def test_unfinished_runs_and_missing_seeds(self, tmp_path):
    for seed in range(3):
      synthetic_runs.write_run(tmp_path / f'lambda-{seed}', seed=seed)
      synthetic_runs.write_run(tmp_path / f'ppo-{seed}', seed=seed, algorithm='PPO', stop_after=None if seed else 2)
    collected = _collect(tmp_path)
    assert _kinds(collected) == [problems_lib.MISSING_SEED, problems_lib.UNFINISHED]
    ppo, ours = collected.of_task('PointGoal1')
    assert [run.identity.seed for run in ppo.scored] == [1, 2] and len(ours.scored) == 3
    assert 'at step 500,000 of 1,000,000' in str(collected.problems[0])
    assert 'seed 0: its numbers are over 2 of 3 seeds' in str(collected.problems[1])

  def test_mixed_protocols_are_refused(self, tmp_path):
    synthetic_runs.write_run(tmp_path / 'paper')
    synthetic_runs.write_run(tmp_path / 'short', seed=1, steps=40_000)
    synthetic_runs.write_run(tmp_path / 'limit', seed=2, limit=10.0)
    collected = _collect(tmp_path)
    (group,) = collected.groups
    assert [run.workdir for run in group.runs] == ['paper'] and len(collected.refused) == 2
    messages = {problem.where: problem.message for problem in collected.problems}
    assert 'environment_steps is 40,000 instead of 1,000,000' in messages['short']
    assert 'cost_limit is [10.0] instead of [25.0]' in messages['limit']

  def test_configurations_are_kept_apart(self, tmp_path):
    for seed, decay in ((0, 0.8), (1, 0.8), (2, 0.5)):
      synthetic_runs.write_run(tmp_path / str(seed), seed=seed, bindings=f'Swag.decay = {decay}\n')
    collected = _collect(tmp_path)
    assert {group.algorithm: len(group.runs) for group in collected.groups} == {
      'LAMBDA [decay=0.8]': 2,
      'LAMBDA [decay=0.5]': 1,
    }
    assert problems_lib.SEVERAL_CONFIGURATIONS in _kinds(collected)

  def test_physics_are_kept_apart(self, tmp_path):
    for seed, version in enumerate(('3.3.7', '3.3.5', '3.4.0')):
      synthetic_runs.write_run(tmp_path / str(seed), seed=seed, versions={'mujoco': version})
    synthetic_runs.write_run(tmp_path / 'old', seed=3, versions={'mujoco': '2.3.3'})
    synthetic_runs.write_run(tmp_path / 'ppo', seed=0, algorithm='PPO')
    collected = _collect(tmp_path)
    assert {group.algorithm: [run.mujoco for run in group.runs] for group in collected.groups} == {
      'LAMBDA [MuJoCo 3.3]': ['3.3.7', '3.3.5'],
      'LAMBDA [MuJoCo 3.4]': ['3.4.0'],
      'LAMBDA [MuJoCo 2.3]': ['2.3.3'],
      'PPO': ['3.3.7'],
    }
    (problem,) = [problem for problem in collected.problems if problem.kind == problems_lib.SEVERAL_PHYSICS]
    assert str(problem) == (
      'several versions of MuJoCo: PointGoal1: its runs have different physics, and those of one algorithm are kept '
      'apart: MuJoCo 2.3 (LAMBDA) and MuJoCo 3.3 (PPO, LAMBDA) and MuJoCo 3.4 (LAMBDA)'
    )
    assert [score.mujoco for score in collected.scores()] == ['3.3.7', '2.3.3', '3.3.7', '3.3.5', '3.4.0']

  def test_different_physics_of_different_algorithms_are_told(self, tmp_path):
    synthetic_runs.write_run(tmp_path / 'lambda', versions={'mujoco': '3.4.0'})
    synthetic_runs.write_run(tmp_path / 'ppo', algorithm='PPO')
    collected = _collect(tmp_path)
    assert [group.algorithm for group in collected.of_task('PointGoal1')] == ['PPO', 'LAMBDA']
    assert _kinds(collected) == [problems_lib.SEVERAL_PHYSICS]

  def test_configurations_and_physics_at_once(self, tmp_path):
    for seed, (decay, version) in enumerate(((0.8, '3.3.7'), (0.5, '3.3.7'), (0.5, '3.4.0'))):
      synthetic_runs.write_run(
        tmp_path / str(seed), seed=seed, bindings=f'Swag.decay = {decay}\n', versions={'mujoco': version}
      )
    assert [group.algorithm for group in _collect(tmp_path).groups] == [
      'LAMBDA [decay=0.8, MuJoCo 3.3]',
      'LAMBDA [decay=0.5, MuJoCo 3.3]',
      'LAMBDA [decay=0.5, MuJoCo 3.4]',
    ]

  def test_a_run_of_two_physics_is_told(self, tmp_path):
    synthetic_runs.write_run(tmp_path / 'same' / 'run', earlier=[{'mujoco': '3.3.5'}])
    assert not _collect(tmp_path / 'same').problems
    synthetic_runs.write_run(tmp_path / 'other' / 'run', earlier=[{'mujoco': '2.3.3'}])
    (problem,) = _collect(tmp_path / 'other').problems
    assert problem.kind == problems_lib.CHANGED_CONFIGURATION
    assert problem.message == 'it was resumed under another physics: MuJoCo 2.3.3, then 3.3.7'

  def test_a_run_of_unknown_physics_is_left_out(self, tmp_path):
    synthetic_runs.write_run(tmp_path / 'run', versions={'jax': '0.10.2'})
    collected = _collect(tmp_path)
    assert _kinds(collected) == [problems_lib.UNREADABLE] and not collected.groups
    assert 'nobody knows under which MuJoCo' in str(collected.problems[0])

  def test_a_seed_counts_once(self, tmp_path):
    synthetic_runs.write_run(tmp_path / 'a', stop_after=1)
    synthetic_runs.write_run(tmp_path / 'b')
    synthetic_runs.write_run(tmp_path / 'c')
    collected = _collect(tmp_path)
    assert [run.workdir for run in collected.groups[0].runs] == ['b']
    duplicates = [problem.where for problem in collected.problems if problem.kind == problems_lib.DUPLICATE_SEED]
    assert duplicates == ['c', 'a']

  def test_corrupt_lines_are_told_and_skipped(self, tmp_path):
    folder = synthetic_runs.write_run(tmp_path / 'run')
    good = (folder / 'evaluation.jsonl').read_bytes()
    bad = b'\xff\xfe\n[1]\n{"environment_steps": "x"}\nnull\n{"environment_steps": 1, "episode_return": "high"}\n'
    (folder / 'evaluation.jsonl').write_bytes(b'{"a": \n' + bad + good + b'{"environment_steps": 5}\n{"environ')
    (run,), problems = runs.read_runs(tmp_path)
    assert run.score.episode_return == 10.0 and len(run.curves['episode_return']) == 4
    told = '\n'.join(map(str, problems))
    assert 'evaluation.jsonl: line 1, skipped: not JSON' in told and '7 lines were skipped in all' in told
    assert 'has no return' in told and {problem.kind for problem in problems} == {problems_lib.CORRUPT_LINE}

  def test_an_endless_line_is_skipped(self, tmp_path):
    path = tmp_path / 'log.jsonl'
    path.write_bytes(b'x' * (3 << 20) + b'\n{"environment_steps": 1}\n')
    told = []
    assert list(streams.read_rows(path, lambda *bad: told.append(bad))) == [(2, {'environment_steps': 1})]
    assert told == [(1, 'longer than 1048576 bytes')]

  def test_numbers_are_told_from_text(self, tmp_path):
    path = tmp_path / 'log.jsonl'
    path.write_bytes(
      b'{"environment_steps": 2e3, "a": [0.5, null, 3], "b": "0.5", "c": true, "d": 1e999, "e": 1'
      + b'0' * 400
      + b'}\n{"environment_steps": "5"}\n'
    )
    told = []
    ((_, row),) = streams.read_rows(path, lambda *bad: told.append(bad))
    assert row['environment_steps'] == 2000 and [number for number, _ in told] == [2]
    np.testing.assert_array_equal(streams.vector(row['a']), [0.5, np.nan, 3.0])
    assert streams.number(row['a'][0]) == 0.5
    for name in ('b', 'c', 'd', 'e', 'missing'):  # Text, truth, and numbers beyond the range of floats.
      assert streams.number(row.get(name)) is None
    assert streams.vector(row['b']) is None and streams.vector(row['c']) is None
    assert streams.vector(row['e']).tolist() == [np.inf]

  def test_a_score_that_is_not_finite_is_left_out(self, tmp_path):
    folder = synthetic_runs.write_run(tmp_path / 'run')
    rows = [json.loads(line) for line in (folder / 'evaluation.jsonl').read_text().splitlines()]
    rows[-1]['cost_return'] = [None]
    (folder / 'evaluation.jsonl').write_text('\n'.join(map(json.dumps, rows)))
    collected = _collect(tmp_path)
    assert _kinds(collected) == [problems_lib.NOT_FINITE] and not collected.scores()

  def test_a_run_that_went_on_with_another_configuration_is_told(self, tmp_path):
    folder = synthetic_runs.write_run(tmp_path / 'run')
    record = run_record.read(folder)
    earlier = (run_record.Earlier('0123', record.versions),)
    run_record.write(folder, dataclasses.replace(record, earlier=earlier))
    (problem,) = _collect(tmp_path).problems
    assert problem.kind == problems_lib.CHANGED_CONFIGURATION
    assert problem.message == f'it was resumed with another configuration: #0123, then #{record.identity.config_hash}'

  def test_a_run_without_a_record_is_one_sentence(self, tmp_path):
    folder = synthetic_runs.write_run(tmp_path / 'run')
    (folder / 'run.json').unlink()
    (problem,) = _collect(tmp_path).problems
    assert str(problem) == 'unreadable: run: there is no run.json, so nobody knows what ran'

  @pytest.mark.parametrize('text', ['', '{', '[]', '{}', 'null', '"run"', '\xff', '[' * 100_000])
  def test_a_damaged_record_costs_one_row(self, tmp_path, text):
    synthetic_runs.write_run(tmp_path / 'good')
    folder = synthetic_runs.write_run(tmp_path / 'run', seed=1)
    (folder / 'run.json').write_text(text, 'latin-1')
    self._assert_one_row_is_lost(tmp_path)

  @pytest.mark.parametrize('name', _TEXTS + _OTHERS)
  def test_an_incomplete_record_costs_one_row(self, tmp_path, name):
    self._change_record(tmp_path, lambda record: record.pop(name))
    self._assert_one_row_is_lost(tmp_path)

  @pytest.mark.parametrize(
    'name, value',
    [
      *((name, value) for name in _TEXTS + _OTHERS for value in (True, [0], {'a': 0}, 1e999, -1, 10**30)),
      *((name, 'text') for name in _OTHERS),
      ('task', 'PointGoal2'),
    ],
  )
  def test_a_wrong_record_costs_one_row(self, tmp_path, name, value):
    self._change_record(tmp_path, lambda record: record.update({name: value}))
    self._assert_one_row_is_lost(tmp_path)

  def _change_record(self, folder, change):
    synthetic_runs.write_run(folder / 'good')
    path = synthetic_runs.write_run(folder / 'run', seed=1) / 'run.json'
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))

  def _assert_one_row_is_lost(self, folder):
    collected = _collect(folder)
    assert [run.workdir for group in collected.groups for run in group.runs] == ['good']
    (problem,) = collected.problems
    assert problem.kind == problems_lib.UNREADABLE and problem.where == 'run'
    assert 'run.json is damaged' in problem.message and '\n' not in problem.message

  def test_limits_that_do_not_fit_the_costs(self, tmp_path):
    folder = synthetic_runs.write_run(tmp_path / 'run')
    record = run_record.read(folder)
    protocol = dataclasses.replace(record.identity.protocol, cost_limit=(25.0, 25.0))
    identity = dataclasses.replace(record.identity, protocol=protocol)
    run_record.write(folder, dataclasses.replace(record, identity=identity))
    collected = _collect(tmp_path)
    assert 'has 2 cost limits, and its evaluations have 1 costs' in str(collected.problems[0])
    assert not collected.scores()

  def test_nothing_at_all(self, tmp_path):
    assert _kinds(_collect(tmp_path)) == [problems_lib.NO_RUNS]
    assert _kinds(_collect(tmp_path / 'missing')) == [problems_lib.NO_RUNS]
    assert problems_lib.summarize([]) == 'No problems found.'
