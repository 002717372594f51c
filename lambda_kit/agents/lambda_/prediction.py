"""Open-loop prediction: the model sees the beginning of an episode, and after that only the actions."""

from typing import Any

import chex
import jax
import jax.numpy as jnp

from lambda_kit import core
from lambda_kit import types
from lambda_kit.agents.lambda_ import imagination
from lambda_kit.models import decoders
from lambda_kit.models import normalizer


def make_predictor(world_model: core.WorldModel, filtering: Any, key: core.Key) -> types.Predictor:
  """Predicts with the weights that actors filter beliefs with; see `LambdaAgent.filter_with_mean`.

  Args:
    world_model: p(s' | s, a, theta).
    filtering: The learner's variables 'belief'.
    key: For the noise of inference.
  """

  def predictor(observation: types.Observation, action: types.Array, num_seen: int) -> types.OpenLoop:
    if not 1 <= num_seen <= len(action):
      raise ValueError(
        f'Of {len(action) + 1} observations at least one must be seen and one predicted, got num_seen = {num_seen}.'
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
  """Infers s_{n-1} from the first n observations, then imagines s_n, ..., s_T without noise.

  Args:
    world_model: p(s' | s, a, theta).
    filtering: theta as 'model', and the state of the 'normalizer'.
    key: For the noise of inference. Prediction has none.
    observation: o_0, ..., o_T, [T + 1, ...].
    action: a_0, ..., a_{T-1}, [T, A].
    num_seen: n.

  Returns:
    Truth and predictions for the time steps n, ..., T.
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
  """Infers states s_0, ..., s_T [T + 1, ...], each from the observations o_0, ..., o_t and the actions in between.

  Args:
    world_model: q(s_t | s_{t-1}, a_{t-1}, o_t, theta).
    filtering: theta as 'model', and the state of the 'normalizer'.
    key: For the noise of inference.
    observation: [T + 1, ...]
    action: [T, A]
  """

  def infer(state, inputs):
    *inputs, key = inputs
    action, observation = jax.tree.map(lambda x: x[None], inputs)
    state = world_model.filter(filtering['model'], state, action, observation, key)
    return state, jax.tree.map(lambda x: x[0], state)

  normalized = normalizer.normalize(filtering['normalizer'], observation)
  previous_actions = jnp.concatenate([jnp.zeros((1, *action.shape[1:]), action.dtype), action])
  keys = jax.random.split(key, len(previous_actions))
  return jax.lax.scan(infer, world_model.initial_state(1), (previous_actions, normalized, keys))[1]
