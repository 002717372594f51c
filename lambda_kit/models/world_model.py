"""The paper's world model: a recurrent state space model with heads for rewards, costs and terminals."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import chex
import haiku as hk
import jax
import jax.numpy as jnp

import gin
from lambda_kit import core
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.models import decoders
from lambda_kit.models import distributions
from lambda_kit.models import draws as draws_lib
from lambda_kit.models import encoders
from lambda_kit.models import heads as heads_lib
from lambda_kit.models import overshooting
from lambda_kit.models import rssm
from lambda_kit.models import sums

# The modules that imagination needs. Names of parameters begin with those of their modules; the others are 'encoder',
# 'inference' and 'decoder'.
IMAGINATION_MODULES = ('dynamics',) + heads_lib.Heads.NAMES


class Observed(NamedTuple):
  """What the model infers and predicts on a batch."""

  inferred: rssm.Inferred  # [B, L, ...]
  log_probs: dict[str, types.Array]  # By target, [B, L]; [B, K] for observations, [B, J, M] if imagined.
  decoded: dict[str, types.Array]  # Observations at K time steps, [B, K, ...].
  reconstruction: dict[str, types.Array]  # Their predicted means, [B, K, ...].
  predictions: types.Predictions  # [B, L, ...]


class Fitted(NamedTuple):
  """What a member of an ensemble expects of states that the model has inferred."""

  deterministic: types.Array  # [B, L, D], d_t from the inferred s_{t-1}.
  prior: distributions.Gaussian  # [B, L, S], p(z_t | d_t).
  log_probs: dict[str, types.Array]  # By target, [B, L]; [B, J, M] if imagined.


class _Functions(NamedTuple):
  """Functions of the model's parameters."""

  observe: Any
  fit: Any
  filter: Any
  imagine_step: Any
  predict: Any
  decode: Any
  log_likelihood: Any
  draw_costs: Any


@gin.register
@ranges.checked
class RecurrentWorldModel(core.WorldModel):
  """A recurrent state space model, trained on the evidence lower bound (ELBO) of sequences from replay.

  States are `rssm.State`s. The state before the first observation is 0, in episodes and in sampled sequences alike.
  """

  def __init__(
    self,
    observation_spec: Mapping[str, Any],
    action_spec: Any,
    num_constraints: int,
    action_repeat: int,
    encoder_factory: encoders.EncoderFactory = encoders.ObservationEncoder,
    decoder_factory: decoders.DecoderFactory = decoders.ObservationDecoder,
    reward_factory: heads_lib.HeadFactory = heads_lib.NormalHead,
    cost_factory: heads_lib.CostHeadFactory = heads_lib.BernoulliCost,
    terminal_factory: heads_lib.HeadFactory = heads_lib.BernoulliHead,
    stochastic_size: ranges.Count = 30,
    deterministic_size: ranges.Count = 200,
    hidden_size: ranges.Count = 200,
    min_stddev: ranges.Positive = 0.1,
    kl_balance: ranges.Share = 0.8,
    free_nats: ranges.NotNegative = 3.0,
    kl_scale: ranges.NotNegative = 1.0,
    reward_scale: ranges.NotNegative = 1.0,
    observation_scale: ranges.NotNegative = 1.0,
    decoded_steps: ranges.Count | None = None,
    overshooting_steps: ranges.Whole = 0,
    overshooting_starts: ranges.Count = 4,
    memory_stddev: ranges.Positive = 0.1,
  ):
    """Makes the functions of the model.

    Args:
      observation_spec: of 'image', 'vector' or both.
      action_spec: of actions [A].
      num_constraints: C.
      action_repeat: simulator steps of an agent step.
      encoder_factory: makes the network from observations to embeddings.
      decoder_factory: makes the network from features to observations.
      reward_factory: makes the head for rewards.
      cost_factory: makes the head for costs.
      terminal_factory: makes the head for terminals.
      stochastic_size: S, of z_t.
      deterministic_size: D, of d_t.
      hidden_size: of the layers in between.
      min_stddev: the minimum standard deviation of z_t.
      kl_balance: the fraction of the KL's gradient that trains the prior; the rest trains the posterior.
      free_nats: the KL is not reduced below this.
      kl_scale: weight of the KL.
      reward_scale: weight of the rewards' log likelihood.
      observation_scale: weight of the observations' log likelihood. Vectors of a few numbers need more weight than
        images with thousands of pixels; otherwise the KL keeps the state from resolving small differences.
      decoded_steps: K, how many observations of each sequence to decode, drawn at random in each update; None for all.
        The estimate of the ELBO stays unbiased and gets cheaper: with small networks, the image decoder is half the
        cost of an update.
      overshooting_steps: J, how many steps the model imagines in training under recorded actions, supervised by the
        recorded rewards, costs and terminals; see `models/overshooting.py`. 0 for none, as in the paper; at most L - 1.
      overshooting_starts: M, the number of states in each sequence that imagination starts from, at most L - J.
      memory_stddev: how closely the members of an ensemble have to follow d_t, as a standard deviation.
    """
    encoders.check_names(observation_spec)
    self._action_size = action_spec.shape[0]
    self._num_constraints = num_constraints
    self._stochastic_size = self.noise_size = stochastic_size
    self._deterministic_size = deterministic_size
    self._kl_balance = kl_balance
    self._free_nats = free_nats
    self._kl_scale = kl_scale
    self._reward_scale = reward_scale
    self._observation_scale = observation_scale
    self._decoded_steps = decoded_steps
    self._overshooting_steps, self._overshooting_starts = overshooting_steps, overshooting_starts
    self._memory_stddev = memory_stddev

    def functions():
      encoder = encoder_factory(name='encoder')
      inference = rssm.Inference(stochastic_size, hidden_size, min_stddev, name='inference')
      dynamics = rssm.Dynamics(stochastic_size, deterministic_size, hidden_size, min_stddev, name='dynamics')
      decoder = decoder_factory(spec=observation_spec, name='decoder')
      heads = heads_lib.Heads(num_constraints, action_repeat, reward_factory, cost_factory, terminal_factory)

      def observe(batch, draws):
        initial = rssm.initial_state(batch.action.shape[0], stochastic_size, deterministic_size)
        inferred = rssm.infer_sequences(
          dynamics, inference, initial, batch.action, encoder(batch.observation), draws.noise
        )
        features = rssm.features(inferred.states)
        log_probs, predictions = heads.evaluate(features, batch)
        if draws.overshooting is not None:
          imagined = overshooting.overshoot(dynamics, inferred.states, batch, draws.overshooting)
          log_probs |= {f'imagined_{name}': value for name, value in heads.evaluate(*imagined)[0].items()}
        decoded, features = (
          (batch.observation, features)
          if draws.decoded is None
          else draws_lib.take((batch.observation, features), draws.decoded)
        )
        reconstruction = decoder(features)
        log_probs |= decoders.log_probs(reconstruction, decoded)
        return Observed(inferred, log_probs, dict(decoded), reconstruction, predictions)

      def fit(batch, states, overshooting_draws):
        initial = rssm.initial_state(batch.action.shape[0], stochastic_size, deterministic_size)
        before = jax.tree.map(lambda first, x: jnp.concatenate([first[:, None], x[:, :-1]], axis=1), initial, states)
        deterministic = dynamics.advance(before, dynamics.project_action(batch.action))
        # The heads learn from what the member will feed them: the latent it shares, and its own memory.
        log_probs, _ = heads.evaluate(rssm.features(states._replace(deterministic=deterministic)), batch)
        if overshooting_draws is not None:
          imagined = overshooting.overshoot(dynamics, states, batch, overshooting_draws)
          log_probs |= {f'imagined_{name}': value for name, value in heads.evaluate(*imagined)[0].items()}
        return Fitted(deterministic, dynamics.prior(deterministic), log_probs)

      def filter_(state, action, observation, noise):
        projected_embedding = inference.project_embedding(encoder(observation))
        projected_action = dynamics.project_action(action)
        return rssm.infer_step(dynamics, inference, state, projected_action, projected_embedding, noise)[0]

      def log_likelihood(features, came):
        log_probs = heads.log_likelihood(features, came)
        log_probs['reward'] *= reward_scale
        if came.observation:
          decoded = decoders.log_probs(decoder(features), came.observation)
          log_probs |= {part: observation_scale * value for part, value in decoded.items()}
        return log_probs

      return observe, _Functions(
        observe, fit, filter_, dynamics.step, heads.predict, decoder, log_likelihood, heads.draw_costs
      )

    transformed = hk.without_apply_rng(hk.multi_transform(functions))
    self._init = jax.jit(transformed.init)  # Compiled, it draws parameters without a forward pass.
    self._functions = _Functions(*map(sums.over_sums, transformed.apply))

  def init(self, key: core.Key, batch: types.Trajectory) -> core.Params:
    one_step = jax.tree.map(lambda x: x[:1, :1], batch)  # Parameter shapes don't depend on B and L.
    return self._init(key, one_step, draws_lib.Draws(jnp.zeros((1, 1, self._stochastic_size))))

  def loss(
    self,
    params: core.Params,
    batch: types.Trajectory,
    key: core.Key,
    over_batch: core.OverBatch = lambda function: function,
  ) -> tuple[types.Array, types.ModelOutput]:
    """See `negative_elbo`."""
    batch_size, length = batch.reward.shape
    chex.assert_shape(batch.action, (batch_size, length, self._action_size))
    chex.assert_shape(batch.cost, (batch_size, length, self._num_constraints))
    draws = draws_lib.draw(
      key,
      batch_size,
      length,
      self._stochastic_size,
      self._decoded_steps,
      self._overshooting_steps,
      self._overshooting_starts,
    )
    observed = over_batch(self._functions.observe)(params, batch, draws)
    loss, metrics = negative_elbo(
      observed, batch, self._kl_balance, self._free_nats, self._kl_scale, self._reward_scale, self._observation_scale
    )
    return loss, types.ModelOutput(observed.inferred.states, metrics, observed.inferred.posterior)

  def member_loss(
    self,
    theta: core.Params,
    output: types.ModelOutput,
    batch: types.Trajectory,
    key: core.Key,
    over_batch: core.OverBatch = lambda function: function,
  ) -> types.Array:
    """See `misfit`. Recurrence, prior and heads are all the member's own."""
    batch_size, length = batch.reward.shape
    overshooting_draws = draws_lib.draw(
      key, batch_size, length, self._stochastic_size, None, self._overshooting_steps, self._overshooting_starts
    ).overshooting
    fitted = over_batch(self._functions.fit)(theta, batch, output.states, overshooting_draws)
    return misfit(
      fitted, output.states.deterministic, output.latents, self._memory_stddev, self._kl_scale, self._reward_scale
    )

  def initial_state(self, batch_size: int) -> rssm.State:
    return rssm.initial_state(batch_size, self._stochastic_size, self._deterministic_size)

  def filter(
    self, params: core.Params, state: rssm.State, action: types.Array, observation: types.Observation, key: core.Key
  ) -> rssm.State:
    noise = jax.random.normal(key, state.stochastic.shape)
    return self._functions.filter(params, state, action, observation, noise)

  def imagine_step(self, params: core.Params, state: rssm.State, action: types.Array, noise: types.Array) -> rssm.State:
    return self._functions.imagine_step(params, state, action, noise)

  def features(self, state: rssm.State) -> types.Array:
    return rssm.features(state)

  def predict(self, params: core.Params, features: types.Array) -> types.Predictions:
    return self._functions.predict(params, features)

  def decode(self, params: core.Params, features: types.Array) -> dict[str, types.Array]:
    return self._functions.decode(params, features)

  def log_likelihood(
    self, params: core.Params, features: types.Array, came: types.Trajectory
  ) -> dict[str, types.Array]:
    """Rewards and observations as the ELBO weighs them: a weight is a precision."""
    return self._functions.log_likelihood(params, features, came)

  def draw_costs(self, params: core.Params, features: types.Array, factors: types.Array, key: core.Key) -> types.Array:
    return self._functions.draw_costs(params, features, factors, key)

  def imagination_params(self, params: core.Params) -> core.Params:
    return hk.data_structures.filter(lambda module, *_: module.split('/')[0] in IMAGINATION_MODULES, params)


def negative_elbo(
  observed: Observed,
  batch: types.Trajectory,
  kl_balance: float,
  free_nats: float,
  kl_scale: float,
  reward_scale: float,
  observation_scale: float = 1.0,
) -> tuple[types.Array, dict[str, types.Array]]:
  """The loss that trains the model, and metrics.

    -E [observation_scale log p(o_t | s_t) + reward_scale log p(r_t | s_t) + log p(c_t | s_t) + log p(terminal_t | s_t)]
      + kl_scale KL

  With overshooting, the last three log likelihoods are added once more, for imagined states.

  Args:
    observed: what the model infers and predicts on the batch.
    batch: the batch.
    kl_balance: see `balanced_kl`, which is the KL term.
    free_nats: likewise.
    kl_scale: weight of the KL.
    reward_scale: weight of the rewards' log likelihood.
    observation_scale: weight of the observations' log likelihood.

  Returns:
    The loss [], a mean over B and L and a sum over all else; and metrics, all [].
  """
  inferred = observed.inferred
  kl_loss, kl = balanced_kl(inferred.posterior, inferred.prior, kl_balance, free_nats)
  log_probs = {name: value.mean() for name, value in observed.log_probs.items()}
  weights = {
    'reward': reward_scale,
    'imagined_reward': reward_scale,
    **dict.fromkeys(batch.observation, observation_scale),
  }
  loss = kl_scale * kl_loss - sum(weights.get(name, 1.0) * value for name, value in log_probs.items())
  errors = decoders.mean_squared_errors(observed.reconstruction, observed.decoded)
  metrics = {
    'loss': loss,
    'kl': kl,
    'prior_entropy': inferred.prior.entropy().mean(),
    'posterior_entropy': inferred.posterior.entropy().mean(),
    **{f'{name}_log_prob': value for name, value in log_probs.items()},
    **{f'{name}_mse': value for name, value in errors.items()},
    **heads_lib.metrics(observed.predictions, batch),
  }
  return loss, metrics


def misfit(
  fitted: Fitted,
  deterministic: types.Array,
  posterior: distributions.Gaussian,
  memory_stddev: float,
  kl_scale: float,
  reward_scale: float,
) -> types.Array:
  """The loss that trains a member of an ensemble on inferred states, a mean over the L steps of each sequence.

    |d_t - d'_t|^2 / (2 memory_stddev^2) + kl_scale KL(q(z_t) || p'(z_t | d'_t))
      - [reward_scale log p'(r_t | d'_t, z_t) + log p'(c_t | d'_t, z_t) + log p'(terminal_t | d'_t, z_t)]

  where p' and d'_t are the member's, d_t and q those of the model that inferred z_t ~ q. The first term makes d_t mean
  the same to all, so that they can start from each other's states. With overshooting, the last three log likelihoods
  are added once more, for imagined states.

  Args:
    fitted: what the member expects, [B, L, ...].
    deterministic: the inferred d_t, [B, L, D].
    posterior: q, [B, L, S].
    memory_stddev: how closely d'_t follows d_t.
    kl_scale: weight of the KL.
    reward_scale: weight of the rewards' log likelihood.

  Returns:
    The loss of each sequence, [B].
  """
  chex.assert_equal_shape([fitted.deterministic, deterministic])
  over_steps = lambda x: jnp.mean(x, axis=tuple(range(1, x.ndim)))
  distance = jnp.sum(jnp.square(fitted.deterministic - deterministic), axis=-1)
  kl = distributions.kl_divergence(posterior, fitted.prior)
  weights = {'reward': reward_scale, 'imagined_reward': reward_scale}
  log_probs = sum(weights.get(name, 1.0) * over_steps(value) for name, value in fitted.log_probs.items())
  return over_steps(distance) / (2 * memory_stddev**2) + kl_scale * over_steps(kl) - log_probs


def balanced_kl(
  posterior: distributions.Gaussian, prior: distributions.Gaussian, balance: float, free_nats: float
) -> tuple[types.Array, types.Array]:
  """The KL term of the ELBO with KL balancing (Hafner et al., 2021, algorithm 2).

    balance * max(E KL(sg(q) || p), free_nats) + (1 - balance) * max(E KL(q || sg(p)), free_nats)

  Free nats apply to the mean E over all elements, as in DreamerV2: below them, nothing has a gradient.

  Args:
    posterior: q, [..., S].
    prior: p, [..., S].
    balance: weight of the part that trains the prior.
    free_nats: information about the observation that the posterior may hold at no cost.

  Returns:
    The term [], whose value doesn't depend on `balance`, and the mean KL [].
  """
  stop = jax.lax.stop_gradient
  train_prior = distributions.kl_divergence(stop(posterior), prior).mean()
  train_posterior = distributions.kl_divergence(posterior, stop(prior)).mean()
  loss = balance * jnp.maximum(train_prior, free_nats) + (1.0 - balance) * jnp.maximum(train_posterior, free_nats)
  return loss, train_prior
