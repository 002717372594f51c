"""A simpler world model: feed-forward Gaussian dynamics of vector observations.

It has no latent variables and nothing to infer, so it learns fast where vectors determine the state. Agents use it like
the recurrent one: any differentiable p(s_{t+1} | s_t, a_t, theta) will do.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import chex
import haiku as hk
import jax
import jax.numpy as jnp

import gin
from lambda_kit import core
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.models import activations
from lambda_kit.models import distributions
from lambda_kit.models import heads as heads_lib
from lambda_kit.models import networks
from lambda_kit.models import sums


class State(NamedTuple):
  """A vector observation and the step that led to it: rewards belong to steps, and can depend on both ends."""

  vector: types.Array  # [..., D], x_t.
  change: types.Array  # [..., D], x_t - x_{t-1}.
  action: types.Array  # [..., A], a_{t-1}.


class _Functions(NamedTuple):
  """Functions of the model's parameters."""

  evaluate: Any
  change: Any
  predict: Any
  log_likelihood: Any
  draw_costs: Any


@gin.register
@ranges.checked
class FeedForwardWorldModel(core.WorldModel):
  """x_{t+1} = x_t + change, where a network of x_t and a_t gives a diagonal Gaussian over the change."""

  display_name = 'feed-forward model'

  def __init__(
    self,
    observation_spec: Mapping[str, Any],
    action_spec: Any,
    num_constraints: int,
    action_repeat: int,
    reward_factory: heads_lib.HeadFactory = heads_lib.NormalHead,
    cost_factory: heads_lib.CostHeadFactory = heads_lib.BernoulliCost,
    terminal_factory: heads_lib.HeadFactory = heads_lib.BernoulliHead,
    hidden_sizes: Sequence[ranges.Count] = (400, 400),
    activation: activations.Activation = activations.elu,
    min_stddev: ranges.Positive = 0.01,
    reward_scale: ranges.NotNegative = 1.0,
  ):
    """Makes the functions of the model.

    Args:
      observation_spec: of 'vector', and nothing else.
      action_spec: of actions [A].
      num_constraints: C.
      action_repeat: simulator steps of an agent step.
      reward_factory: makes the head for rewards.
      cost_factory: makes the head for costs.
      terminal_factory: makes the head for terminals.
      hidden_sizes: of the dynamics' network.
      activation: of the dynamics' network.
      min_stddev: the minimum standard deviation of a change.
      reward_scale: weight of the rewards' log likelihood.
    """
    if set(observation_spec) != {'vector'}:
      raise errors.SetupError(
        "FeedForwardWorldModel models the observation 'vector' and nothing else, got "
        f'{sorted(observation_spec)}. Use RecurrentWorldModel, or bind the observations.'
      )
    self._size = self.noise_size = observation_spec['vector'].shape[0]
    self._action_size = action_spec.shape[0]
    self._num_constraints = num_constraints
    self._reward_scale = reward_scale
    self._weights = {'reward': reward_scale}

    def functions():
      dynamics = networks.Mlp(2 * self._size, hidden_sizes, activation, name='dynamics')
      heads = heads_lib.Heads(num_constraints, action_repeat, reward_factory, cost_factory, terminal_factory)

      def change(vector, action):
        return distributions.gaussian(dynamics(jnp.concatenate([vector, action], axis=-1)), min_stddev)

      def evaluate(features, batch):
        """On `batch` from its second time step on, with the features of its states."""
        vector = batch.observation['vector']
        log_probs, predictions = heads.evaluate(features[:, 1:], jax.tree.map(lambda x: x[:, 1:], batch))
        changes = change(vector[:, :-1], batch.action[:, 1:])
        log_probs['vector'] = changes.log_prob(vector[:, 1:] - vector[:, :-1])
        return log_probs, predictions, changes.mean

      return evaluate, _Functions(evaluate, change, heads.predict, heads.log_likelihood, heads.draw_costs)

    transformed = hk.without_apply_rng(hk.multi_transform(functions))
    self._init = jax.jit(transformed.init)  # Compiled, it draws parameters without a forward pass.
    self._functions = _Functions(*map(sums.over_sums, transformed.apply))

  def init(self, key: core.Key, batch: types.Trajectory) -> core.Params:
    two_steps = jax.tree.map(lambda x: x[:1, :2], batch)  # Parameter shapes don't depend on B and L.
    return self._init(key, self.features(self._states(two_steps)), two_steps)

  def loss(
    self,
    params: core.Params,
    batch: types.Trajectory,
    key: core.Key,
    over_batch: core.OverBatch = lambda function: function,
  ) -> tuple[types.Array, types.ModelOutput]:
    """The negative log likelihood of all steps but the first, which began before the batch; a mean over B and L."""
    del key, over_batch  # States are observed, and there is no loop over time.
    batch_size, length = batch.reward.shape
    if length < 2:
      raise errors.SetupError('FeedForwardWorldModel learns from steps: sequences must have at least 2 observations.')
    chex.assert_shape(batch.observation['vector'], (batch_size, length, self._size))
    chex.assert_shape(batch.action, (batch_size, length, self._action_size))
    chex.assert_shape(batch.cost, (batch_size, length, self._num_constraints))
    states = self._states(batch)
    log_probs, predictions, changes = self._functions.evaluate(params, self.features(states), batch)
    log_probs = {name: value.mean() for name, value in log_probs.items()}
    loss = -sum(self._weights.get(name, 1.0) * value for name, value in log_probs.items())
    metrics = {
      'loss': loss,
      **{f'{name}_log_prob': value for name, value in log_probs.items()},
      'vector_mse': jnp.mean((states.change[:, 1:] - changes) ** 2),
      **heads_lib.metrics(predictions, jax.tree.map(lambda x: x[:, 1:], batch)),
    }
    return loss, types.ModelOutput(states, metrics)

  def member_loss(
    self,
    theta: core.Params,
    output: types.ModelOutput,
    batch: types.Trajectory,
    key: core.Key,
    over_batch: core.OverBatch = lambda function: function,
  ) -> types.Array:
    """The same loss for each sequence: states are observed, and so common to all models."""
    del key, over_batch
    log_probs, _, _ = self._functions.evaluate(theta, self.features(output.states), batch)
    return -sum(self._weights.get(name, 1.0) * jnp.mean(value, axis=1) for name, value in log_probs.items())

  def initial_state(self, batch_size: int) -> State:
    vector = jnp.zeros((batch_size, self._size))
    return State(vector, vector, jnp.zeros((batch_size, self._action_size)))

  def filter(
    self, params: core.Params, state: State, action: types.Array, observation: types.Observation, key: core.Key
  ) -> State:
    del params, key
    vector = observation['vector']
    return State(vector, vector - state.vector, action)

  def imagine_step(self, params: core.Params, state: State, action: types.Array, noise: types.Array) -> State:
    chex.assert_rank([state.vector, action], 2)
    change = self._functions.change(params, state.vector, action).sample(noise)
    return State(state.vector + change, change, action)

  def features(self, state: State) -> types.Array:
    return jnp.concatenate(state, axis=-1)

  def predict(self, params: core.Params, features: types.Array) -> types.Predictions:
    return self._functions.predict(params, features)

  def decode(self, params: core.Params, features: types.Array) -> dict[str, types.Array]:
    del params
    return {'vector': features[..., : self._size]}

  def log_likelihood(
    self, params: core.Params, features: types.Array, came: types.Trajectory
  ) -> dict[str, types.Array]:
    """States are drawn, and have no likelihood of observations themselves."""
    log_probs = self._functions.log_likelihood(params, features, came)
    return log_probs | {'reward': self._reward_scale * log_probs['reward']}

  def draw_costs(self, params: core.Params, features: types.Array, factors: types.Array, key: core.Key) -> types.Array:
    return self._functions.draw_costs(params, features, factors, key)

  def imagination_params(self, params: core.Params) -> core.Params:
    return params

  def _states(self, batch: types.Trajectory) -> State:
    """What `filter` returns along sequences that begin in the initial state, [B, L, ...]."""
    vector = batch.observation['vector']
    previous = jnp.pad(vector[:, :-1], ((0, 0), (1, 0), (0, 0)))
    return State(vector, vector - previous, batch.action)
