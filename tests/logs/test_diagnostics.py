"""Tests of diagnostics: made-up runs with and without each symptom."""

import json
import re

import numpy as np
import pytest

import gin
from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit.analysis import rows as rows_lib
from lambda_kit.config import gin_internals
from lambda_kit.logs import diagnostics as diagnostics_lib
from lambda_kit.logs import loggers
from lambda_kit.logs import symptoms

_ROWS = 120

# Episodes of 100 agent steps cost 4, within the limit of 5, and the model imagines 0.05 for each step instead of 0.04.
_LEARNER = {
  'updates': lambda k: 500 + 20 * k,
  'entropy': lambda k: 1.5 - 0.01 * k,
  'kl': lambda k: 1.5,
  'loss': lambda k: 12.0,
  'multiplier/0': lambda k: 0.1 + 0.004 * k,
  'imagined_cost/0': lambda k: 0.05,
  'cost_value/0': lambda k: 1.0,
  'cost_mean': lambda k: 0.04,
  'cost_expected': lambda k: 0.05,
  'held_out_forecast/0': lambda k: 0.35,
  'held_out_cost/0': lambda k: 0.4,
  'skipped_updates': lambda k: 0.0,
  'gradient_norm': lambda k: 1.0,
  'policy_gradient_norm': lambda k: 1.0,
  'critic_gradient_norm': lambda k: 1.0,
}

# What makes a healthy run ill with each symptom. 'cost' is the cost return of an episode.
_ILL = {
  'entropy_collapse': {'entropy': lambda k: -4.02},  # 2 action dimensions.
  'multiplier_saturation/0': {
    'multiplier/0': lambda k: 0.2 * 1.05**k,
    'cost': lambda k: 10.0,
    'imagined_cost/0': lambda k: 0.1,
  },  # 1.05^49 is 10.9.
  'idle_multiplier/0': {'multiplier/0': lambda k: 0.0 if k else 1e-3, 'cost': lambda k: 6.1},
  'silent_cost_head/0': {'imagined_cost/0': lambda k: 0.0019},
  'cost_mismatch/0': {'imagined_cost/0': lambda k: 0.13},
  'held_out_mismatch/0': {'held_out_forecast/0': lambda k: 0.26},
  'exploding_kl': {'kl': lambda k: 16.0 if k == 60 else 1.5},
  'replay_starvation': {'updates': lambda k: 3001 + 101 * k},  # For 3000 + 100 k steps.
  'non_finite_gradients': {'skipped_updates': lambda k: 1.0 if k >= 60 else 0.0},
}

# The same, just not far enough.
_ALMOST = {
  'entropy_collapse': {'entropy': lambda k: -3.98},
  'entropy that recovers': {'entropy': lambda k: -5.0 if k % 10 else -3.9},
  'multiplier_saturation by factor': {
    'multiplier/0': lambda k: 0.2 * 1.04**k,
    'cost': lambda k: 10.0,
    'imagined_cost/0': lambda k: 0.1,
  },  # 1.04^49 is 6.8.
  'multiplier_saturation of small ones': {
    'multiplier/0': lambda k: 1e-6 * 1.1**k,
    'cost': lambda k: 10.0,
    'imagined_cost/0': lambda k: 0.1,
  },
  'multiplier_saturation within the limit': {'multiplier/0': lambda k: 0.2 * 1.05**k},
  'multiplier_saturation with falling cost': {
    'multiplier/0': lambda k: 0.2 * 1.05**k,
    'cost': lambda k: 20.0 * 0.99**k,
    'imagined_cost/0': lambda k: 0.2 * 0.99**k,
  },
  'idle_multiplier at a small excess': {'multiplier/0': lambda k: 0.0 if k else 1e-3, 'cost': lambda k: 5.9},
  'idle_multiplier on its way': {'multiplier/0': lambda k: 1e-6 * 1.1 ** min(k, 49), 'cost': lambda k: 7.0},
  'no solver': {'multiplier/0': lambda k: 0.0, 'cost': lambda k: 10.0},
  'silent_cost_head': {'imagined_cost/0': lambda k: 0.015},
  'silent_cost_head without costs': {'imagined_cost/0': lambda k: 0.0, 'cost': lambda k: 0.4},
  'cost_mismatch': {'imagined_cost/0': lambda k: 0.119},
  'cost_mismatch, once within': {'imagined_cost/0': lambda k: 0.13 if k % 20 else 0.1},
  'cost_mismatch that is small': {'imagined_cost/0': lambda k: 0.02, 'cost': lambda k: 0.0},
  'held_out_mismatch': {'held_out_forecast/0': lambda k: 0.59},
  'held_out_mismatch, once within': {'held_out_forecast/0': lambda k: 0.26 if k % 20 else 0.3},
  'held_out_mismatch that is small': {'held_out_forecast/0': lambda k: 0.26, 'cost': lambda k: 2.4},
  'exploding_kl by factor': {'kl': lambda k: 149.0 if k == 60 else 15.0},
  'exploding_kl of small ones': {'kl': lambda k: 9.9 if k == 60 else 0.1},
  'replay_starvation': {'updates': lambda k: 3000 + 100 * k},
  'non_finite_gradients': {'skipped_updates': lambda k: 0.9 if k >= 60 else 0.0},
}


class _Memory:
  """Keeps rows."""

  def __init__(self):
    self.rows = []

  def write(self, kind, row):
    self.rows.append((kind, row))

  def names(self):
    return [row['name'] for _, row in self.rows]


def _rows(changes=None, count=_ROWS, without=()):
  """The rows of a run: random episodes, then a row of the learner before the end of each episode."""
  metrics = {**_LEARNER, 'cost': lambda k: 4.0, **(changes or {})}
  for k in range(-30, count):
    steps = 3000 + 100 * k
    if k >= 0:
      values = {name: metric(k) for name, metric in metrics.items() if name != 'cost' and name not in without}
      yield 'learner', {'environment_steps': steps, **values}
      if k % 20 == 0:
        yield 'evaluation', {'environment_steps': steps, 'episode_return': 20.0, 'cost_return': [50.0]}
    yield (
      'episode',
      {
        'environment_steps': steps,
        'episode_return': 20.0,
        'length': 100,
        'cost_return': [metrics['cost'](k) if k >= 0 else 60.0],
      },
    )


def _diagnostics(memory, report=lambda name, message: None, **kwargs):
  diagnostics = diagnostics_lib.Diagnostics(
    **{'cost_limits': (5.0,), 'num_actions': 2, 'constraint_names': ('hazards',), **kwargs}
  )
  diagnostics.connect(memory, report)
  return diagnostics


def _diagnose(rows, **kwargs):
  memory = _Memory()
  diagnostics = _diagnostics(memory, **kwargs)
  for kind, row in rows:
    diagnostics.write(kind, row)
  return memory


class TestSymptoms:
  def test_a_healthy_run_has_none(self):
    assert not _diagnose(_rows()).rows

  @pytest.mark.parametrize('name', _ILL)
  def test_each_is_reported_once_by_its_name(self, name):
    ((kind, row),) = _diagnose(_rows(_ILL[name])).rows
    assert kind == 'diagnosis' and row.keys() == {'environment_steps', 'name', 'message'}
    assert row['name'] == name

  @pytest.mark.parametrize('name', _ALMOST)
  def test_none_just_below_the_threshold(self, name):
    assert not _diagnose(_rows(_ALMOST[name])).rows

  @pytest.mark.parametrize(
    'name, number',
    [
      ('entropy_collapse', '-2.01'),
      ('idle_multiplier/0', 'episodes cost 6.1 at a limit of 5'),
      ('silent_cost_head/0', '0.0019 in imagination and 0.04 in episodes'),
      ('exploding_kl', 'to 16, from a median of 1.5'),
      ('cost_mismatch/0', 'the head expects 0.05; the true mean over constraints is 0.04'),
      ('replay_starvation', '3001 updates'),
    ],
  )
  def test_messages_have_the_numbers(self, name, number):
    ((_, row),) = _diagnose(_rows(_ILL[name])).rows
    assert number in row['message']

  @pytest.mark.parametrize('name', _ILL)
  def test_messages_name_bindings_that_exist(self, name):
    ((_, row),) = _diagnose(_rows(_ILL[name])).rows
    bindings = re.findall(r'\b([A-Z]\w+)\.(\w+)', row['message'])
    assert bindings
    for component, parameter in bindings:
      (selector,) = gin_internals.matching_selectors(component)
      assert parameter in gin_internals.signature(selector).parameters, f'{component}.{parameter}'
    for component in re.findall(r'@(\w+)', row['message']):
      assert gin_internals.matching_selectors(component)

  def test_symptoms_begin_when_their_window_is_full(self):
    # Row k = 9 is the tenth, at 3000 + 9 * 100 steps.
    ((_, row),) = _diagnose(_rows(_ILL['entropy_collapse'])).rows
    assert row['environment_steps'] == 3900

  def test_costs_that_are_underestimated_are_a_mismatch_until_they_are_none(self):
    memory = _diagnose(_rows({'imagined_cost/0': lambda k: 0.012, 'cost': lambda k: 4.5}))
    assert memory.names() == ['cost_mismatch/0']
    assert 'will exceed the limit' in memory.rows[0][1]['message']

  def test_a_multiplier_beyond_the_bound_needs_no_factor(self):
    ill = {'multiplier/0': lambda k: 100.0 + 0.01 * k, 'cost': lambda k: 10.0, 'imagined_cost/0': lambda k: 0.1}
    assert _diagnose(_rows(ill)).names() == ['multiplier_saturation/0']

  @pytest.mark.parametrize('value', [float('nan'), float('inf'), None, np.float32('nan')])
  def test_non_finite_gradient_norms_of_policy_and_critics_are_reported(self, value):
    memory = _diagnose(_rows({'policy_gradient_norm': lambda k: value if k == 7 else 1.0}))
    assert memory.names() == ['non_finite_gradients']
    assert 'policy_gradient_norm was not finite' in memory.rows[0][1]['message']

  def test_skips_in_the_first_row_count(self):
    memory = _diagnose(_rows({'skipped_updates': lambda k: 3.0}))
    assert [row['environment_steps'] for _, row in memory.rows] == [3000]

  def test_updates_before_the_first_step_do_not_starve_the_replay(self):
    rows = [('learner', {'environment_steps': 100 * k, 'updates': 900.0 + 50 * k}) for k in range(30)]
    assert not _diagnose(rows).rows
    assert _diagnose(rows[1:]).names() == ['replay_starvation']

  def test_each_constraint_has_its_own(self):
    changes = {
      'multiplier/0': lambda k: 0.5,
      'multiplier/1': lambda k: 0.0 if k else 1e-3,
      'imagined_cost/1': lambda k: 0.08,
    }
    rows = [(kind, {**row, 'cost_return': [4.0, 9.0]} if kind == 'episode' else row) for kind, row in _rows(changes)]
    memory = _diagnose(rows, cost_limits=(5.0, 7.0), constraint_names=('hazards', 'vases'))
    assert memory.names() == ['idle_multiplier/1']
    assert "The multiplier of 'vases'" in memory.rows[0][1]['message']
    assert not _diagnose(rows, cost_limits=(5.0, 8.0)).rows

  @pytest.mark.parametrize('name', _ILL)
  def test_silent_without_the_metric(self, name):
    missing = [metric for metric in _ILL[name] if metric in _LEARNER]
    assert not _diagnose(_rows(_ILL[name], without=missing)).rows

  def test_silent_about_agents_with_few_metrics_or_no_episode(self):
    rows = list(_rows({'cost': lambda k: 50.0}))
    assert not _diagnose(
      (kind, {'environment_steps': row['environment_steps'], 'actor_loss': 1.0}) if kind == 'learner' else (kind, row)
      for kind, row in rows
    ).rows
    assert not _diagnose((kind, row) for kind, row in rows if kind == 'learner').rows


class TestDiagnostics:
  @pytest.mark.parametrize('healthy_rows, times', [(9, 1), (10, 2)])
  def test_reported_again_only_after_a_whole_window_without_it(self, healthy_rows, times):
    # The window is 10 rows.
    memory = _diagnose(_rows({'kl': lambda k: 16.0 if k in (40, 41 + healthy_rows) else 1.5}))
    assert memory.names() == ['exploding_kl'] * times

  def test_reports_what_it_writes(self):
    reports = []
    memory = _diagnose(_rows(_ILL['exploding_kl']), report=lambda *report: reports.append(report))
    assert reports == [(row['name'], row['message']) for _, row in memory.rows] and len(reports) == 1

  @pytest.mark.parametrize('split', [5, 40, 75, 150, 151, 190])
  def test_a_restored_one_continues_exactly(self, split):
    changes = {
      'entropy': lambda k: 1.0 if 40 <= k < 60 else -5.0,
      'kl': lambda k: 1.5 if k % 35 else 100.0,
      'multiplier/0': lambda k: 0.0 if k else 1e-3,
      'cost': lambda k: 50.0,
      'imagined_cost/0': lambda k: 0.1,
      'policy_gradient_norm': lambda k: float('nan') if k == 50 else 1.0,
      'updates': lambda k: 5000 + 20 * k,
    }
    rows = list(_rows(changes))
    expected = _diagnose(rows)
    assert len(expected.rows) > 6
    memory = _Memory()
    first, second = _diagnostics(memory), _diagnostics(memory)
    for kind, row in rows[:split]:
      first.write(kind, row)
    state = json.dumps(first.save(), allow_nan=False)
    second.restore(json.loads(state))
    for kind, row in rows[split:]:
      second.write(kind, row)
    assert memory.rows == expected.rows

  def test_the_saved_state_is_small_and_a_copy(self):
    diagnostics = _diagnostics(_Memory())
    rows = list(_rows(count=1000))
    for kind, row in rows:
      diagnostics.write(kind, row)
    state = diagnostics.save()
    before = json.dumps(state)
    diagnostics.write(*rows[-1])
    diagnostics.write('learner', {'environment_steps': 10**6, 'entropy': -9.0})
    assert json.dumps(state) == before and len(before) < 50_000

  def test_works_in_a_group_that_gets_its_rows(self, tmp_path):
    jsonl = loggers.JsonlLogger(tmp_path)
    diagnostics = _diagnostics(jsonl)
    group = loggers.LoggerGroup([jsonl, loggers.TensorBoardLogger(tmp_path / 'tensorboard'), diagnostics])
    for kind, row in _rows(_ILL['exploding_kl']):
      group.write(kind, row)
    group.write('diagnosis', {'environment_steps': 1, 'name': 'other', 'message': 'text'})
    group.close()
    assert [row['name'] for row in rows_lib.read_jsonl(tmp_path / 'diagnosis.jsonl')] == ['exploding_kl', 'other']

  def test_refuses_windows_and_symptoms_that_make_no_sense(self):
    with pytest.raises(ValueError, match='at least 1'):
      _diagnostics(_Memory(), symptoms=[symptoms.ExplodingKl(window=0)])
    with pytest.raises(ValueError, match='twice'):
      _diagnostics(_Memory(), symptoms=[symptoms.ExplodingKl(), symptoms.ExplodingKl(factor=2.0)])

  def test_thresholds_come_from_gin(self):
    gin.clear_config()
    try:
      gin.parse_config("""
          EntropyCollapse.floor = 0.0
          EntropyCollapse.window = 3
      """)
      memory = _Memory()
      configured = _diagnostics(
        memory, symptoms=[gin.get_configurable('EntropyCollapse')(), gin.get_configurable('CostMismatch')()]
      )
      for kind, row in _rows({'entropy': lambda k: -0.1, 'kl': lambda k: 16.0 if k == 60 else 1.5}):
        configured.write(kind, row)
      assert memory.names() == ['entropy_collapse']
      assert memory.rows[0][1]['environment_steps'] == 3200
    finally:
      gin.clear_config()
