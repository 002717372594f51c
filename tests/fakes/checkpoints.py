"""A learner's state in the small, with all that makes one difficult to store."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lambda_kit.training.checkpoints import store as store_lib


class State(NamedTuple):
  params: Any
  optimizer: Any
  updates: Any  # []
  key: Any  # [2] uint32


def make_state(seed: int) -> State:
  """States of different seeds have the same structure and no value in common."""
  rng = np.random.default_rng(seed)
  weights = rng.normal(size=(4, 3)).astype(np.float32)
  return State(
    params={'mlp/~/linear_0': {'w': weights, 'b': np.full(3, np.nan, np.float32)}},
    optimizer=((weights + 1).astype(jnp.bfloat16), [np.zeros((0, 3), np.float32)], None, {'skipped': np.array(False)}),
    updates=np.array(seed, np.int32),
    key=np.array([seed, 7], np.uint32),
  )


def save(store: store_lib.CheckpointStore, step: int, **kwargs):
  """Saves what `assert_complete` recognises."""
  return store.save(step, {'learner': make_state(step), 'policy': {'w': np.full(2, step)}}, {'step': step}, **kwargs)


def score(episode_return: float, cost: float, limit: float = 25.0) -> dict[str, Any]:
  return {'episode_return': episode_return, 'cost_return': [0.0, cost], 'cost_limit': [limit, limit]}


def assert_identical(found: Any, expected: Any) -> None:
  """Same structure, dtypes, shapes and bits."""
  assert jax.tree.structure(found) == jax.tree.structure(expected)
  for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    theirs = np.asarray(theirs)
    assert isinstance(ours, np.ndarray)
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    assert ours.tobytes() == theirs.tobytes()


def assert_complete(checkpoint: store_lib.Checkpoint, step: int) -> None:
  """All that `save` wrote at a step is there."""
  assert (checkpoint.step, checkpoint.state) == (step, {'step': step})
  assert_identical(checkpoint.load('learner', make_state(0)), make_state(step))
  assert_identical(checkpoint.load('policy', {'w': np.zeros(2, int)}), {'w': np.full(2, step)})
