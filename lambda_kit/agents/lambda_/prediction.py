"""Open-loop prediction: the model sees how an episode begins, and then only what was done."""

from typing import Any

import chex
import jax
import jax.numpy as jnp

from lambda_kit import core
from lambda_kit import types
from lambda_kit.agents.lambda_ import imagination
from lambda_kit.models import decoders
from lambda_kit.models import normalizer


def make_predictor(world_model: core.WorldModel, filtering: Any, key: core.Key) -> core.Predictor:
  """Predicts with the variables that an actor filters its beliefs with: one model, the posterior's mean.

  Args:
    world_model: p(s' | s, a, theta).
    filtering: The learner's variables 'belief'.
    key: Noise of the belief.
  """

  def predictor(observation: types.Observation, action: types.Array, num_seen: int) -> types.OpenLoop:
    if not 1 <= num_seen <= len(action):
      raise ValueError(
        f'Of {len(action) + 1} observations some have to be seen and some predicted: num_seen = {num_seen}.'
      )
    compiled = jax.jit(predict, static_argnums=(0, 5))
    return jax.device_get(compiled(world_model, filtering, key, observation, action, num_seen))

  return predictor


def predict(
  world_model: core.WorldModel,
  filtering: Any,
  key: core.Key,
  observation: types.Observation,
  action: types.Array,
  num_seen: int,
) -> types.OpenLoop:
  """Infers s_{n-1} from the first n observations, and takes s_n, ..., s_T to be the means of what then follows.

  Args:
    world_model: p(s' | s, a, theta).
    filtering: theta as 'model', and the state of the 'normalizer'.
    key: Noise of inference. Prediction has none.
    observation: o_0, ..., o_T, [T + 1, ...].
    action: a_0, ..., a_{T-1}, [T, A].
    num_seen: n.

  Returns:
    Of the time steps n, ..., T.
  """
  chex.assert_rank(action, 2)
  chex.assert_tree_shape_prefix(dict(observation), (action.shape[0] + 1,))
  params = filtering['model']
  seen = jax.tree.map(lambda x: x[:num_seen], dict(observation))
  states = infer_states(world_model, filtering, key, seen, action[: num_seen - 1])
  belief = jax.tree.map(lambda x: x[-1:], states)
  given = action[num_seen - 1 :, None]  # [m, 1, A].
  no_noise = jnp.zeros((*given.shape[:2], world_model.noise_size))
  features = imagination.follow_actions(world_model, params, given, belief, no_noise)[1:, 0]  # [m, F].
  truth = decoders.targets(normalizer.normalize(filtering['normalizer'], observation))
  return types.OpenLoop(
    truth=jax.tree.map(lambda x: x[num_seen:], truth),
    model=world_model.decode(params, features),
    last_seen=jax.tree.map(lambda x: x[num_seen - 1], truth),
  )


def infer_states(
  world_model: core.WorldModel, filtering: Any, key: core.Key, observation: types.Observation, action: types.Array
) -> types.Nest:
  """States s_0, ..., s_T [T + 1, ...], each inferred from observations o_0, ..., o_t and actions before it.

  Args:
    world_model: q(s_t | s_{t-1}, a_{t-1}, o_t, theta).
    filtering: theta as 'model', and the state of the 'normalizer'.
    key: Noise of inference.
    observation: [T + 1, ...]
    action: [T, A]
  """

  def look(state, inputs):
    observation, previous_action, key = inputs
    batch = jax.tree.map(lambda x: x[None], (previous_action, observation))
    state = world_model.filter(filtering['model'], state, *batch, key)
    return state, jax.tree.map(lambda x: x[0], state)

  normalized = normalizer.normalize(filtering['normalizer'], observation)
  previous_actions = jnp.concatenate([jnp.zeros((1, *action.shape[1:]), action.dtype), action])
  keys = jax.random.split(key, len(previous_actions))
  return jax.lax.scan(look, world_model.initial_state(1), (normalized, previous_actions, keys))[1]
