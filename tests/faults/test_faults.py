"""Sixty of the faults that `make faults` injects by the hundred: runs are exact, repaired or refused, never wrong."""

import os

import pytest

from tests.faults import damages
from tests.faults import harness
from tests.faults import interruptions
from tests.faults import neighbours
from tests.faults import outcomes
from tests.faults import scarcity

# Without runs that learn, which take seconds to compile: tests/faults/test_resume.py kills these.
_CASES = {
  'damages': (
    20,
    lambda made: damages.cases(made('random'), made('random').stop('stopped', 0.75), made.other('random'), 1, 0),
  ),
  'damaged episodes': (8, lambda made: _of_episodes(made('gather'), made.other('gather'))),
  'interruptions': (12, lambda made: interruptions.at_every_change(made('random'), step=1)),
  'signals': (5, lambda made: interruptions.by_signals(made('long-random'), 5, seed=0)),
  'environments': (2, lambda made: neighbours.faulty_environments(made('random').folder, times=1)),
  'disks': (2, lambda made: scarcity.full_disks(made('random'), [0.1, 0.5])),
  'clocks': (1, lambda made: scarcity.jumping_clocks(made('random'), 1)),
  'writers': (2, lambda made: neighbours.two_writers(made('long-random'), 2, seed=0)),
  'reports': (8, lambda made: neighbours.damaged_for_reports(made('random'), made.other('random'), tries=1, seed=0)),
}


def _of_episodes(run, other):
  cases = damages.cases(run, run.stop('stopped', 0.75), other, tries=1, seed=0)
  return (case for case in cases if case[0].startswith('episode'))


@pytest.mark.parametrize('family', _CASES)
def test_a_sample_of_faults(family, tmp_path):
  if family == 'disks' and os.geteuid():
    pytest.skip('Small file systems can only be mounted by root.')
  count, make_cases = _CASES[family]
  found = harness.inject(harness.evenly(list(make_cases(harness.Runs(tmp_path))), count), jobs=2)
  assert len(found) == count
  assert not [result for result in found if not result[2].outcome.is_good]


def test_there_are_sixty():
  assert sum(count for count, _ in _CASES.values()) == 60


def test_another_outcome_is_noticed(tmp_path):
  """The judge itself: a run that ends as another one, without a word, is silent damage."""
  made = harness.Runs(tmp_path)
  run, stopped = made('random'), made('random').stop('stopped', 0.5)
  run.reference = made.other('random')
  assert run.judge(stopped).outcome is outcomes.Outcome.SILENT


@pytest.mark.slow
def test_many_kills_while_learning(tmp_path):
  found = harness.inject(list(interruptions.at_any_time(harness.Runs(tmp_path)('lambda'), 3, seed=2)), jobs=2)
  assert all(result[2].outcome is outcomes.Outcome.EXACT for result in found), found
