"""What a start costs, measured with small modules."""

from benchmarks import start_cost


def test_time_and_memory_are_those_of_the_new_process():
  held = b'x' * 300_000_000  # Of this process: it must not count.
  small, slow, large = start_cost.measure(
    rounds=1, starts={'small': 'pass', 'slow': 'import time; time.sleep(0.5)', 'large': 'x = b"x" * 100_000_000'}
  )
  assert (small['name'], slow['name'], large['name']) == ('small', 'slow', 'large')
  assert slow['seconds'] > 0.5 > slow['cpu_seconds'] > 0
  assert small['peak_rss_bytes'] < 50_000_000 < large['peak_rss_bytes'] - small['peak_rss_bytes'] < 150_000_000
  assert len(held) == 300_000_000
  _, headings, lines = start_cost.table([small, slow, large])
  assert [line[0] for line in lines] == ['small', 'slow', 'large']
  assert all(len(line) == len(headings) for line in lines)
