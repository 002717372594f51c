"""The measurement at tiny size; `launchers/benchmark.py --parts=replay` runs it with the paper's batches."""

import pytest

from benchmarks import replay_speed
from tests.benchmarks import tiny_sizes


@pytest.mark.slow
def test_the_figures_fit_together():
  result = replay_speed.measure(
    tiny_sizes.ROOT,
    tiny_sizes.VECTORS,
    num_episodes=2,
    episode_steps=20,
    updates=3,
    rounds=2,
    paper=tiny_sizes.VECTORS,
    paper_seconds=10.0,
  )
  # B L = 12 moments of 2 numbers, an action of 2, reward, cost and terminal, 4 bytes each.
  assert result['batch_bytes'] == 12 * (2 + 2 + 3) * 4
  assert result['share'] == pytest.approx(result['sample_ms'] / result['update_ms'])
  assert result['share_of_paper_update'] == pytest.approx(result['sample_ms'] / 1e3 / 10)
  assert result['share_of_paper_floor'] > result['share_of_paper_update']
  assert 0 <= result['in_shadow'] <= 1
  assert all(name.startswith('replay_prefetch') for name in result['threads'])
  _, headings, rows = replay_speed.table(result)
  assert len(rows) == 6 and all(len(row) == len(headings) for row in rows)


class _Updates:
  def __init__(self, answer):
    self._answer = answer

  def is_ready(self):
    if self._answer is None:
      raise RuntimeError('Array has been deleted.')
    return self._answer


@pytest.mark.parametrize('answer, in_shadow', [(True, False), (False, True), (None, True)])
def test_a_batch_is_in_the_shadow_of_an_update_that_is_not_complete(answer, in_shadow):
  watched = replay_speed._WatchedReplay(None)

  class Learner:
    def save(self):
      return self

    updates = _Updates(answer)

  watched.learner = Learner()
  watched.record(begin=0.0)
  assert [record.in_shadow for record in watched.records] == [in_shadow]
