"""A small version of the benchmark."""

from benchmarks import posterior_speed


def test_the_figures_are_there_and_memory_adds_up():
  result = posterior_speed.memory(num_parameters=10_000, num_models=6, num_samples=3)
  size = 4 * 50 * 50 + 50  # Four matrices of 50 x 50 and a vector.
  # Parameters, two moments of Adam and one of SWAG, variance, columns; the rest are counters.
  assert 0 <= result['state_bytes'] - 4 * size * (5 + 6) < 100
  assert 0 <= result['samples_bytes'] - 4 * size * 3 < 100
  assert result['update_temporary_bytes'] < 4 * size * 6


def test_it_runs():
  assert posterior_speed.swag_updates(num_parameters=100, num_models=3, period=1)(0) == 20
  assert posterior_speed.plain_samples(num_parameters=100, num_models=3, num_samples=2)(0) == 1
