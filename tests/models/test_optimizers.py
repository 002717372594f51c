"""Clipping, and gradients that are not finite."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lambda_kit.models import optimizers


def _params():
  return _constant(1.0)


def _constant(value):
  return {'w': np.full((2, 3), value, np.float32), 'b': np.full((3,), value, np.float32)}


def _norm(tree):
  return np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(tree)))


def test_the_first_step_is_the_rate():
  # Adam's corrected moments of a constant gradient g are g and g^2: the step is rate * g / (g + eps).
  optimizer = optimizers.make_adam(0.01, clip_norm=100.0, eps=1.0)
  updates, _ = optimizer.update(_constant(3.0), optimizer.init(_params()), _params())
  np.testing.assert_allclose(updates['w'], np.full((2, 3), -0.01 * 3 / (3 + 1)), rtol=1e-5)


def test_a_schedule_is_called_with_the_number_of_updates_so_far():
  optimizer = optimizers.make_adam(lambda count: 0.1 * (count + 1), clip_norm=100.0, eps=1e-8)
  state = optimizer.init(_params())
  steps = []
  for _ in range(3):
    updates, state = optimizer.update(_constant(1.0), state, _params())
    steps.append(-float(updates['b'][0]))
  np.testing.assert_allclose(steps, [0.1, 0.2, 0.3], rtol=1e-4)


def test_gradients_are_clipped_by_their_global_norm():
  optimizer = optimizers.make_adam(0.01, clip_norm=7.0)
  _, state = optimizer.update(_constant(1e6), optimizer.init(_params()), _params())
  # Adam's first moment is (1 - 0.9) times what it is given.
  assert _norm(optax.tree.get(state, 'mu')) == pytest.approx(0.1 * 7.0, rel=1e-5)


@pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_changes_nothing_and_is_counted(bad):
  optimizer = optimizers.make_adam(0.01, clip_norm=7.0)
  _, before = optimizer.update(_constant(1.0), optimizer.init(_params()), _params())
  gradients = _constant(1.0)
  gradients['w'][1, 2] = bad  # One entry is enough.
  updates, after = jax.jit(optimizer.update)(gradients, before, _params())
  for leaf in jax.tree.leaves(updates):
    np.testing.assert_array_equal(leaf, np.zeros_like(leaf))
  jax.tree.map(np.testing.assert_array_equal, before.inner_state, after.inner_state)
  assert optimizers.skipped_updates(after) == 1 and optimizers.consecutive_skips(after) == 1
  _, after = optimizer.update(_constant(1.0), after, _params())
  assert optimizers.skipped_updates(after) == 1 and optimizers.consecutive_skips(after) == 0


def test_no_number_of_bad_gradients_gets_one_through():
  optimizer = optimizers.make_adam(0.01, clip_norm=7.0)
  state = optimizer.init(_params())
  largest = np.iinfo(np.int32).max
  state = state._replace(notfinite_count=jnp.asarray(largest), total_notfinite=jnp.asarray(largest))
  updates, state = optimizer.update(_constant(np.nan), state, _params())
  np.testing.assert_array_equal(updates['w'], np.zeros((2, 3)))
  assert optimizers.skipped_updates(state) == largest


def test_counters_are_found_in_any_tree_of_states():
  optimizer = optimizers.make_adam(0.01, clip_norm=7.0)
  good = optimizer.init(_params())
  bad = good
  for _ in range(2):
    _, bad = optimizer.update(_constant(np.nan), bad, _params())
  states = {'model': bad, 'critics': (good, [bad, optax.EmptyState()]), 'step': jnp.zeros(())}
  assert optimizers.skipped_updates(states) == 4 and optimizers.consecutive_skips(states) == 2
  with pytest.raises(ValueError, match='make_adam'):
    optimizers.skipped_updates(optax.adam(0.1).init(_params()))


def test_a_clip_of_zero_is_refused():
  with pytest.raises(ValueError, match='clip_norm = 0 should be a number, more than 0'):
    optimizers.make_adam(0.1, clip_norm=0)
