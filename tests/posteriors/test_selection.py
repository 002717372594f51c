"""Leaves that are picked, put back and named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.posteriors import selection
from tests.fakes import posteriors as fakes


def test_merging_what_was_selected_changes_nothing_else():
  params = fakes.init_params(jax.random.key(0))
  positions = selection.selected_positions(params, fakes.select)
  jax.tree.map(np.testing.assert_array_equal, selection.merge(params, fakes.select(params), positions), params)
  merged = selection.merge(params, jax.tree.map(jnp.zeros_like, fakes.select(params)), positions)
  np.testing.assert_array_equal(merged['encoder']['w'], params['encoder']['w'])
  assert all(not np.any(leaf) for leaf in jax.tree.leaves(fakes.select(merged)))


def test_selections_may_look_at_names_and_shapes_of_haiku_parameters():
  network = fakes.haiku_network()
  params = network.init(jax.random.key(0), jnp.zeros((2, 3)))
  matrices = lambda params: [leaf for leaf in jax.tree.leaves(params) if leaf.ndim == 2]
  assert len(selection.selected_positions(params, matrices)) == 4
  names = selection.module_names(params)
  picked = {names[position] for position in selection.selected_positions(params, fakes.select_haiku)}
  assert picked == {'prior', 'reward/~/linear_0', 'reward/~/linear_1'}


def test_a_selection_that_computes_is_refused():
  params = fakes.init_params(jax.random.key(0))
  with pytest.raises(ValueError, match='pick leaves'):
    selection.selected_positions(params, lambda params: {'encoder': jnp.zeros((4, 3))})
  with pytest.raises(ValueError, match='at least one'):
    selection.selected_positions(params, lambda params: {})
