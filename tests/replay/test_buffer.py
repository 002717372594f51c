"""Tests of the buffer: which sequences come out, how often, and what memory it takes."""

import json
import time
import tracemalloc

from absl import logging
import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
from scipy import stats

import gin
from lambda_kit.replay import buffer as buffer_lib
from lambda_kit.replay import episodes
from tests.fakes import replay as fakes

_TIME_STEP = fakes.HEADER.bytes_per_time_step


def _make(lengths, **kwargs) -> buffer_lib.EpisodeBuffer:
  """A buffer with one episode of each number of steps."""
  buffer = buffer_lib.EpisodeBuffer(fakes.HEADER, **{'seed': 0, 'sequence_length': 3, **kwargs})
  for number, length in enumerate(lengths):
    buffer.add(fakes.make_episode(number, length))
  return buffer


def _surprising(episode, surprise) -> episodes.Episode:
  return episode._replace(surprise=None if surprise is None else np.asarray(surprise, np.float32))


@pytest.fixture
def warnings(monkeypatch) -> list[str]:
  found = []
  monkeypatch.setattr(logging, 'warning', lambda message, *args: found.append(message % args))
  return found


class TestSampling:
  @hypothesis.given(
    st.lists(st.integers(1, 15), min_size=1, max_size=8), st.integers(1, 10), st.integers(1, 6), st.integers(0, 2**32)
  )
  @hypothesis.settings(deadline=None)
  def test_sequences_are_consecutive_moments_of_one_episode(self, lengths, length, batch_size, seed):
    buffer = _make(lengths, sequence_length=length, seed=seed)
    if max(lengths) + 1 < length:
      with pytest.raises(buffer_lib.NotEnoughDataError):
        buffer.sample(batch_size)
      return
    batch = buffer.sample(batch_size)
    number, times = np.moveaxis(batch.observation['vector'], -1, 0)  # [B, L] each.
    assert number.shape == (batch_size, length)
    assert (number == number[:, :1]).all()
    assert (np.diff(times) == 1).all()
    assert (times >= 0).all() and (times <= np.asarray(lengths)[number.astype(int)]).all()
    np.testing.assert_array_equal(batch.episode, number)
    assert batch.episode.dtype == np.int32
    # All other arrays are of the same moments.
    where = 1000.0 * number + times
    np.testing.assert_array_equal(batch.observation['image'][..., 0, 1, 2], times)
    np.testing.assert_array_equal(batch.action, where[..., None])
    np.testing.assert_array_equal(batch.reward, where)
    np.testing.assert_array_equal(batch.cost, np.stack([where, -where], axis=-1))
    assert batch.observation['image'].dtype == np.uint8
    assert {array.dtype.name for name, array in episodes.flatten(batch).items() if 'image' not in name} == {'float32'}

  def test_all_sequences_are_equally_likely(self):
    # With L = 4, episodes of 7, 2, 3, 20, 1, 4 steps have 5, 0, 1, 18, 0, 2 sequences.
    counts = {0: 5, 2: 1, 3: 18, 5: 2}
    buffer = _make([7, 2, 3, 20, 1, 4], sequence_length=4, seed=1)
    first = np.concatenate([buffer.sample(100).observation['vector'][:, 0] for _ in range(260)])  # 1,000 of each.
    found, frequencies = np.unique(first, axis=0, return_counts=True)
    assert [tuple(row) for row in found] == [(number, start) for number in counts for start in range(counts[number])]
    assert stats.chisquare(frequencies).pvalue > 0.01

  def test_terminal_marks_only_true_ends(self):
    buffer = buffer_lib.EpisodeBuffer(fakes.HEADER, seed=0, sequence_length=4)
    buffer.add(fakes.make_episode(0, 6, terminal=True))
    buffer.add(fakes.make_episode(1, 6, terminal=False))
    batch = buffer.sample(200)
    ends = (batch.observation['vector'] == [0, 6]).all(-1)
    np.testing.assert_array_equal(batch.terminal, ends.astype(np.float32))
    assert 0 < ends.sum() < 200

  def test_a_batch_is_the_callers_own(self):
    buffer = _make([5])
    state = buffer.rng_state()
    first = buffer.sample(4)
    expected = first.reward.copy()
    first.reward[:] = -1.0
    buffer.set_rng_state(state)
    np.testing.assert_array_equal(buffer.sample(4).reward, expected)

  def test_a_share_of_each_batch_is_recent(self):
    # Of 8 sequences 2 are of the last two episodes, the others of all five: each of these is as likely as any other.
    buffer = _make([5] * 5, recent_share=0.25, recent_episodes=2)
    numbers = np.stack([buffer.sample(8).observation['vector'][:, 0, 0] for _ in range(500)])  # [500, 8]
    assert set(numbers[:, :2].flat) == {3.0, 4.0} and set(numbers[:, 2:].flat) == {0.0, 1.0, 2.0, 3.0, 4.0}
    for part in (numbers[:, :2], numbers[:, 2:]):
      assert stats.chisquare(np.unique(part, return_counts=True)[1]).pvalue > 0.01
    # Two episodes are all there are; and the last ones are too short to have any.
    assert set(_make([5, 5], recent_share=1.0, recent_episodes=3).sample(50).observation['vector'][:, 0, 0]) == {
      0.0,
      1.0,
    }
    assert set(_make([5, 5, 1], recent_share=1.0, recent_episodes=1).sample(50).observation['vector'][:, 0, 0]) == {
      0.0,
      1.0,
    }
    for wrong in (dict(recent_share=1.5), dict(recent_episodes=0)):
      with pytest.raises(ValueError, match=rf'EpisodeBuffer\.{next(iter(wrong))} = .* should be'):
        _make([5], **wrong)

  def test_a_share_of_each_batch_is_drawn_by_surprise(self):
    # L = 3. Sequences of the first episode begin at 0, ..., 3: their sums of [0, 0, 0, 1, 0, 3] are 0, 1, 1, 4; of the
    # third, whose sums of [2, 0, 0, 0, 0, 0] are 2, 0, 0, 0. Nothing is known of the second.
    surprises = {0: [0, 0, 0, 1, 0, 3], 2: [2, 0, 0, 0, 0, 0]}
    buffer = _make([], surprise_share=0.25, recent_share=0.5, recent_episodes=1)
    for number in range(3):
      buffer.add(_surprising(fakes.make_episode(number, 5), surprises.get(number)))
    first = np.stack([buffer.sample(8).observation['vector'][:, 0] for _ in range(1_000)])  # [1000, 8, 2]
    counts = lambda rows: {tuple(row): n for row, n in zip(*np.unique(rows.reshape(-1, 2), axis=0, return_counts=True))}
    drawn = counts(first[:, 6:])
    expected = {(0, 1): 1 / 8, (0, 2): 1 / 8, (0, 3): 4 / 8, (2, 0): 2 / 8}
    assert drawn.keys() == expected.keys()
    assert stats.chisquare(list(drawn.values()), [2_000 * expected[key] for key in drawn]).pvalue > 0.01
    # The others are as without: half of the batch from the last episode, and two rows from all.
    assert set(first[:, :4, 0].flat) == {2.0} and len(counts(first[:, 4:6])) == 12
    for rows in (first[:, :4], first[:, 4:6]):
      assert stats.chisquare(list(counts(rows).values())).pvalue > 0.01

  @pytest.mark.parametrize('surprise', [None, [0] * 6])
  def test_without_surprise_all_sequences_are_equally_likely(self, surprise):
    buffer = _make([], surprise_share=1.0)
    for number in range(2):
      buffer.add(_surprising(fakes.make_episode(number, 5), surprise))
    first = np.concatenate([buffer.sample(100).observation['vector'][:, 0] for _ in range(40)])
    frequencies = np.unique(first, axis=0, return_counts=True)[1]
    assert len(frequencies) == 8 and stats.chisquare(frequencies).pvalue > 0.01

  @pytest.mark.parametrize('wrong', [dict(surprise_share=-0.1), dict(surprise_share=0.6, recent_share=0.5)])
  def test_shares_are_of_one_batch(self, wrong):
    with pytest.raises(ValueError, match='surprise_share = .*(between 0 and 1|a whole batch)'):
      _make([], **wrong)
    assert _make([5], surprise_share=0.1, recent_share=0.9).sample(10).reward.shape == (10, 3)

  def test_the_buffer_draws_as_before_unless_asked(self):
    plain, known = _make([5, 9]), _make([])
    for number, length in enumerate((5, 9)):
      known.add(_surprising(fakes.make_episode(number, length), [1] * (length + 1)))
    fakes.assert_equal(plain.sample(20), known.sample(20))

  @pytest.mark.parametrize(
    'options', [{}, dict(recent_share=0.5, recent_episodes=1), dict(recent_share=0.3, surprise_share=0.4)]
  )
  def test_one_draw_of_many_batches_is_many_draws_of_one(self, options):
    many, one = _make([5, 9], **options), _make([5, 9], **options)
    for buffer in (many, one):
      buffer.add(_surprising(fakes.make_episode(2, 5), [0, 1, 2, 0, 0, 0]))
    draws = many.draw(7, batch_size=3)
    assert draws.num_batches == 7
    for i in range(7):
      fakes.assert_equal(draws.batch(i), one.sample(3))
    assert many.rng_state() == one.rng_state()

  def test_episodes_keep_their_numbers_when_others_are_dropped_and_when_all_are_restored(self):
    buffer = _make([5] * 4, max_episodes=2)
    assert set(buffer.sample(50).episode.flat) == {2, 3}
    restored = _make([])
    restored.rebuild(buffer.items())
    batch = restored.sample(50)
    np.testing.assert_array_equal(batch.episode, batch.observation['vector'][..., 0])
    assert set(batch.episode.flat) == {2, 3}

  def test_draws_outlive_changes_of_the_buffer(self):
    buffer, unchanged = _make([9, 9], max_bytes=20 * _TIME_STEP), _make([9, 9])
    draws = buffer.draw(2, batch_size=8)
    buffer.add(fakes.make_episode(7, 18))  # Drops both.
    assert buffer.num_episodes == 1
    for i in range(2):
      fakes.assert_equal(draws.batch(i), unchanged.sample(8))

  def test_seeds_matter(self):
    assert (_make([50], seed=0).sample(16).reward != _make([50], seed=1).sample(16).reward).any()

  def test_too_little_data_says_what_is_needed(self):
    for lengths, counted in (([], '0 finished episodes with 0'), ([30, 48], '2 finished episodes with 78')):
      with pytest.raises(
        buffer_lib.NotEnoughDataError,
        match=f'{counted} agent steps.*sequence_length = 50.*at least 49.*PeriodicUpdates.first',
      ):
        _make(lengths, sequence_length=50).sample(1)
    assert _make([49], sequence_length=50).sample(1).reward.shape == (1, 50)

  def test_short_episodes_are_kept_and_warned_of_once(self, warnings):
    buffer = _make([1, 1, 5], sequence_length=4)
    assert buffer.num_episodes == 3
    assert set(buffer.sample(50).observation['vector'][..., 0].flat) == {2.0}
    assert len(warnings) == 1 and 'Episode 0 has 2 time steps' in warnings[0] and 'never sampled' in warnings[0]

  def test_a_batch_of_the_papers_size_takes_milliseconds(self):
    header = episodes.Header('paper', {'image': episodes.Field((64, 64, 3), 'uint8')}, (2,), ('hazards',), 2)
    buffer = buffer_lib.EpisodeBuffer(header, seed=0)
    moments = 501
    for number in range(8):
      floats = np.zeros(moments, np.float32)
      buffer.add(
        episodes.Episode(
          {'image': np.full((moments, 64, 64, 3), number, np.uint8)},
          np.zeros((moments, 2), np.float32),
          floats,
          floats[:, None],
          floats,
        )
      )
    times = []
    for _ in range(15):
      started = time.perf_counter()
      batch = buffer.sample(32)
      times.append(time.perf_counter() - started)
    assert batch.observation['image'].shape == (32, 50, 64, 64, 3)
    print(f'B = 32, L = 50, 64x64 images: {1e3 * np.median(times):.1f} ms')
    assert min(times) < 0.05  # About 4 ms on an idle core.


class TestMemory:
  @hypothesis.given(st.lists(st.integers(1, 19), max_size=20), st.integers(20, 60))
  @hypothesis.settings(deadline=None)
  def test_the_oldest_episodes_make_room(self, lengths, max_moments):
    buffer = _make([], max_bytes=max_moments * _TIME_STEP)
    for number, length in enumerate(lengths):
      assert buffer.add(fakes.make_episode(number, length)) == number
      # What is kept is as many of the newest as fit.
      kept, room = [], max_moments
      for candidate in reversed(range(number + 1)):
        room -= lengths[candidate] + 1
        if room < 0:
          break
        kept.insert(0, candidate)
      items = list(buffer.items())
      assert [stored for stored, _ in items] == kept
      assert buffer.num_episodes == len(kept)
      assert buffer.num_steps == sum(lengths[stored] for stored in kept)
      assert buffer.num_bytes == sum(episode.num_bytes for _, episode in items) <= max_moments * _TIME_STEP
      for stored, episode in items:
        fakes.assert_equal(episode, fakes.make_episode(stored, lengths[stored]))

  def test_dropped_episodes_are_never_sampled(self):
    buffer = _make([9, 9, 9], max_bytes=20 * _TIME_STEP)
    assert set(buffer.sample(100).observation['vector'][..., 0].flat) == {1.0, 2.0}
    buffer.add(fakes.make_episode(3, 9))
    assert set(buffer.sample(100).observation['vector'][..., 0].flat) == {2.0, 3.0}

  def test_the_last_episodes_are_kept_by_number(self):
    buffer = _make([9, 4, 9, 9], max_episodes=2)
    assert [number for number, _ in buffer.items()] == [2, 3] and buffer.num_steps == 18
    assert buffer.num_bytes == 20 * _TIME_STEP
    buffer.rebuild(list(buffer.items()))
    assert [number for number, _ in buffer.items()] == [2, 3]
    with pytest.raises(ValueError, match='max_episodes = 0'):
      _make([], max_episodes=0)

  def test_the_ceiling_holds_for_memory_as_the_interpreter_counts_it(self):
    moments, max_bytes = 20_000, 10 * 20_000 * _TIME_STEP
    given = fakes.make_episode(0, moments - 1)
    buffer = _make([], max_bytes=max_bytes)
    tracemalloc.start()
    try:
      for _ in range(35):
        buffer.add(given)
        buffer.sample(1)  # Builds the index, which must not keep what is dropped.
      held, peak = tracemalloc.get_traced_memory()
    finally:
      tracemalloc.stop()
    assert buffer.num_bytes == max_bytes
    assert 0.99 * max_bytes < held < 1.01 * max_bytes and peak < 1.02 * max_bytes

  def test_a_view_does_not_keep_its_array(self):
    whole = fakes.make_episode(0, 999)
    part = episodes.Episode(**episodes.unflatten({name: array[:5] for name, array in episodes.flatten(whole).items()}))
    buffer = _make([])
    buffer.add(part)
    ((_, stored),) = buffer.items()
    for array in episodes.flatten(stored).values():
      assert array.base is None and array.flags.c_contiguous

  def test_nobody_can_change_what_is_stored(self):
    given = fakes.make_episode(0, 5)
    buffer = _make([])
    buffer.add(given)
    given.reward[:] = -1.0
    ((_, stored),) = buffer.items()
    fakes.assert_equal(stored, fakes.make_episode(0, 5))
    with pytest.raises(ValueError, match='read-only'):
      stored.reward[0] = 1.0

  def test_an_episode_beyond_the_ceiling_is_refused_and_nothing_is_dropped(self):
    buffer = _make([3], max_bytes=10 * _TIME_STEP)
    with pytest.raises(ValueError, match=r'10 agent steps takes 440 bytes.*max_bytes = 400 \(400 bytes\)'):
      buffer.add(fakes.make_episode(1, 10))
    assert [number for number, _ in buffer.items()] == [0]

  def test_the_first_drop_is_warned_of_once(self, warnings):
    _make([4] * 9, max_bytes=15 * _TIME_STEP)
    assert len(warnings) == 1 and 'max_bytes = 600 (600 bytes). From now on, the oldest' in warnings[0]

  def test_estimate_is_what_the_episodes_take(self):
    # 2,000 environment steps under action repeat 2: 1,000 agent steps in 4 episodes of 250, each with 251 moments.
    header = episodes.Header('', fakes.HEADER.observations, (1,), ('first', 'second'), action_repeat=2)
    assert buffer_lib.estimate_bytes(header, 2000, episode_length=500) == 4 * fakes.make_episode(0, 250).num_bytes

  def test_a_run_that_does_not_fit_is_warned_of(self, warnings, monkeypatch):
    monkeypatch.setattr(buffer_lib, '_machine_bytes', lambda: 10**6)
    # 1,000 steps in one episode have 1,001 moments of 40 bytes.
    assert _make([], max_bytes=40_040).warn_if_short(1000, episode_length=None) == 1.0
    assert not warnings
    assert _make([], max_bytes=20_020).warn_if_short(1000, episode_length=None) == 0.5
    assert warnings == [
      'The 1000 environment steps of this run make 39.1 KiB of replay data. EpisodeBuffer.max_bytes = 20020 '
      '(19.55 KiB) keeps the newest 50 % of them.'
    ]

  def test_a_machine_that_is_too_small_is_warned_of(self, warnings, monkeypatch):
    monkeypatch.setattr(buffer_lib, '_machine_bytes', lambda: 2**30)
    assert _make([]).warn_if_short(100_000_000, episode_length=1000) == 1.0
    assert len(warnings) == 1 and 'grow to 3.729 GiB, but this machine has 1 GiB' in warnings[0]

  def test_memory_of_this_machine(self):
    assert buffer_lib._machine_bytes() is None or buffer_lib._machine_bytes() > 2**27


class TestResuming:
  @hypothesis.given(st.lists(st.integers(2, 19), min_size=1, max_size=12), st.integers(0, 20), st.integers(1, 4))
  @hypothesis.settings(deadline=None)
  def test_a_rebuilt_buffer_goes_on_in_the_same_way(self, lengths, draws, more):
    make = lambda: _make([], max_bytes=50 * _TIME_STEP, sequence_length=2, seed=5)
    buffer, rebuilt = make(), make()
    for number, length in enumerate(lengths):
      buffer.add(fakes.make_episode(number, length))
    for _ in range(draws):
      buffer.sample(3)
    rebuilt.add(fakes.make_episode(99, 3))  # Whatever was there is replaced.
    rebuilt.rebuild(buffer.items())
    rebuilt.set_rng_state(json.loads(json.dumps(buffer.rng_state())))
    for _ in range(more):
      fakes.assert_equal(rebuilt.sample(5), buffer.sample(5))
      assert rebuilt.add(fakes.make_episode(1, 18)) == buffer.add(fakes.make_episode(1, 18))
    assert [number for number, _ in rebuilt.items()] == [number for number, _ in buffer.items()]
    assert (rebuilt.num_bytes, rebuilt.num_steps) == (buffer.num_bytes, buffer.num_steps)

  def test_numbers_increase(self):
    buffer = _make([])
    assert buffer.add(fakes.make_episode(0, 3), number=5) == 5
    assert buffer.add(fakes.make_episode(0, 3)) == 6
    with pytest.raises(ValueError, match='Episode 6 comes after episode 6'):
      buffer.add(fakes.make_episode(0, 3), number=6)


def test_episodes_of_other_shapes_are_refused():
  buffer = _make([])
  with pytest.raises(ValueError, match='cost'):
    buffer.add(fakes.make_episode(0, 3)._replace(cost=np.zeros((4, 1), np.float32)))
  assert not buffer.num_episodes


@pytest.mark.parametrize('kwargs', [dict(sequence_length=0), dict(max_bytes=0)])
def test_senseless_settings_are_refused(kwargs):
  with pytest.raises(ValueError, match=f'{next(iter(kwargs))} = 0'):
    _make([], **kwargs)


def test_gin_binds_the_ceiling_and_the_length():
  try:
    gin.parse_config('EpisodeBuffer.max_bytes = 2_000\nEpisodeBuffer.sequence_length = 7')
    buffer = gin.get_configurable('EpisodeBuffer')(header=fakes.HEADER, seed=0)
  finally:
    gin.clear_config()
  assert buffer.sequence_length == 7
  with pytest.raises(ValueError, match='max_bytes = 2000'):
    buffer.add(fakes.make_episode(0, 50))
