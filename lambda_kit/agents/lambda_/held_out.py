"""Scores of episodes that no model has learned from: what posterior samples predicted of them, and what came.

From states along the episode, models look H steps ahead without seeing more of it. Likelihoods are those of what came,
given the recorded actions. Forecasts and bounds of costs are of what models imagine the policy to do, as where it
learns: it does what they expect little cost of, and real episodes cost more. Whatever is chosen by these scores, or
reported of them, is about data that the models have not seen, under the policy as it is.

Letters beside the common legend: K scales of the posterior's covariance, S start states, G bins of forecasts.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lambda_kit import core
from lambda_kit import types
from lambda_kit.agents.lambda_ import imagination
from lambda_kit.agents.lambda_ import prediction
from lambda_kit.models import normalizer
from lambda_kit.posteriors import selection
from lambda_kit.safety import bounds

# Between bins of expected costs of an agent step.
BIN_EDGES = np.array([0.01, 0.03, 0.1, 0.3], np.float32)
MEMORY = 20.0  # Episodes over which scores are averaged.
NUM_SAMPLES = 4  # At each scale, of the mixture whose likelihood is compared.


class Scores(NamedTuple):
  """Of an episode, or averaged over the last ones. All but `log_likelihood` are about the posterior's own width."""

  log_likelihood: dict[str, types.Array]  # [K], of a step, by what is predicted.
  log_loss: types.Array  # [], minus the log likelihood of the costs of a step.
  raw_forecast: types.Array  # [H, C], cost expected of each step ahead, before it is multiplied by factors.
  forecast: types.Array  # [H, C], as it is used.
  came: types.Array  # [H, C]
  disagreement: types.Array  # [C], standard deviation over samples of the cost expected of H steps.
  bound: types.Array  # [C], on the cost of H steps.
  covered: types.Array  # [C], share of start states where it was at least what came.
  bin_steps: types.Array  # [G], steps whose forecast is in a bin: a share of all.
  bin_forecast: types.Array  # [G], cost expected of them, summed, over all steps.
  bin_came: types.Array  # [G]


class HeldOut(NamedTuple):
  """Averages over episodes, which forget exponentially."""

  scores: Scores  # Weighted sums.
  weight: types.Array  # [], sum of the weights.


def init(observation_parts: tuple[str, ...], num_scales: int, horizon: int, num_constraints: int) -> HeldOut:
  zeros, bins = jnp.zeros((num_constraints,)), jnp.zeros((len(BIN_EDGES) + 1,))
  by_step = jnp.zeros((horizon, num_constraints))
  log_likelihood = {name: jnp.zeros((num_scales,)) for name in ('cost', 'reward', *observation_parts)}
  scores = Scores(log_likelihood, jnp.zeros(()), by_step, by_step, by_step, zeros, zeros, zeros, bins, bins, bins)
  return HeldOut(scores, jnp.zeros(()))


def add(held_out: HeldOut, scores: Scores) -> HeldOut:
  """Takes an episode into the averages."""
  keep = 1.0 - 1.0 / MEMORY
  # What is not finite counts as nothing: in a sum that forgets, it would never be forgotten.
  total = lambda old, new: keep * old + jnp.where(jnp.isfinite(new), new, 0.0)
  return HeldOut(jax.tree.map(total, held_out.scores, scores), keep * held_out.weight + 1.0)


def scored_parts(observation: types.Observation) -> tuple[str, ...]:
  """The parts of observations that are scored: all but images, whose decoder would cost more than all else."""
  return tuple(sorted(name for name in observation if name != 'image'))


def score(
  world_model: core.WorldModel,
  cost_bound: core.Bound,
  horizon: int,
  filtering: Any,
  models: core.Params,
  sample: Callable[[types.Array], core.Params],
  scales: tuple[float, ...],
  factors: types.Array,
  sample_action: imagination.SampleAction | None,
  num_actions: int,
  shared_noise: bool,
  key: core.Key,
  episode: types.Trajectory,
  num_steps: types.Array,
) -> tuple[Scores, types.Array]:
  """Scores one episode. Also returns its surprise at each time step, [T + 1]; see `spread_surprise`.

  Args:
    world_model: p(s' | s, a, theta).
    cost_bound: Over the N models.
    horizon: H.
    filtering: The variables 'belief', with which states are inferred.
    models: Those that the policy would be trained with, theta [N, ...].
    sample: Draws samples of theta at a scale, the same ones whatever the scale.
    scales: At which likelihoods are compared.
    factors: Of expected costs, [H, C]. Likelihoods are those of the models, without them.
    sample_action: The policy that played the episode. None if something else did, such as a planner: forecasts are then
      given the recorded actions, too.
    num_actions: A.
    shared_noise: Whether the N models have the same noise, as where the policy learns. With noise of its own, a bound
      selects on luck, too. Likelihoods are those of a mixture, and need such noise.
    key: All other noise, the same for all scales.
    episode: [T + 1, ...], padded behind its end.
    num_steps: T without the padding.
  """
  state_key, noise_key, action_key = jax.random.split(key, 3)
  # Windows overlap by half: each step is predicted twice, from near and from afar.
  starts = np.arange(0, max(episode.reward.shape[0] - horizon, 1), max(horizon // 2, 1))
  states = prediction.infer_states(world_model, filtering, state_key, episode.observation, episode.action[1:])
  start = jax.tree.map(lambda x: x[starts], states)
  steps = 1 + starts[None] + np.arange(horizon)[:, None]  # [H, S], time steps that are predicted.
  observation = normalizer.normalize(filtering['normalizer'], episode.observation)
  parts = {name: observation[name] for name in scored_parts(observation)}
  came = jax.tree.map(lambda x: x[jnp.minimum(steps, x.shape[0] - 1)], episode._replace(observation=parts))
  counts = (starts + horizon <= num_steps).astype(jnp.float32)  # [S]
  total = jnp.maximum(jnp.sum(counts), 1.0)
  over_starts = lambda x: jnp.tensordot(counts, x, axes=(0, 0)) / total  # Means of [S, ...].

  count = lambda models: jax.tree.leaves(models)[0].shape[0]
  num_noises = max(count(models), count(jax.eval_shape(sample, jnp.float32(1.0))))
  all_noise = jax.random.normal(noise_key, (num_noises, horizon, len(starts), world_model.noise_size))
  complete = filtering['model']
  positions = selection.selected_positions(complete, world_model.imagination_params)

  def follow(theta, noise):
    return imagination.follow_actions(world_model, theta, came.action, start, noise)[1:]

  def log_likelihood_of(models):  # Of the mixture of models, step by step.
    def of_model(inputs):  # [H, S]
      theta, noise = inputs
      return world_model.log_likelihood(selection.merge(complete, theta, positions), follow(theta, noise), came)

    mixture = lambda x: jax.nn.logsumexp(x, axis=0) - np.log(x.shape[0])
    each = jax.lax.map(of_model, (models, all_noise[: count(models)]))
    return jax.tree.map(lambda x: over_starts(jnp.mean(mixture(x), axis=0)), each)

  def expect(theta, noise):  # Expected costs, [H, S, C].
    if sample_action is None:
      return world_model.predict(theta, follow(theta, noise.state)).cost
    features = imagination.imagine(world_model, theta, sample_action, start, noise).features[1:]
    return world_model.predict(theta, features).cost

  at_scales = jax.lax.map(lambda scale: log_likelihood_of(sample(scale)), jnp.asarray(scales))
  action_noise = jax.random.normal(action_key, (count(models), horizon, len(starts), num_actions))
  noise = imagination.Noise(action_noise, all_noise[: count(models)])
  if shared_noise:
    noise = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), noise)
  raw_costs = jax.lax.map(lambda inputs: expect(*inputs), (models, noise))
  costs = raw_costs * factors[None, :, None]  # [N, H, S, C]
  forecast = jnp.mean(costs, axis=0)
  sums, came_sums = jnp.sum(costs, axis=1), jnp.sum(came.cost, axis=0)  # [N, S, C], [S, C]
  bound = jax.vmap(lambda x: bounds.apply_bound(cost_bound, x[..., None])[0][:, 0], -1, -1)(sums)  # [S, C]
  by_step = lambda x: jnp.einsum('s,hsc->hc', counts, x) / total
  bins = jax.nn.one_hot(jnp.searchsorted(BIN_EDGES, forecast), len(BIN_EDGES) + 1)  # [H, S, C, G]
  in_bins = lambda x: jnp.einsum('s,hsc,hscg->g', counts, x, bins) / (total * horizon)
  scores = Scores(
    log_likelihood=at_scales,
    log_loss=-log_likelihood_of(models)['cost'],
    raw_forecast=by_step(jnp.mean(raw_costs, axis=0)),
    forecast=by_step(forecast),
    came=by_step(came.cost),
    disagreement=over_starts(jnp.std(sums, axis=0)),
    bound=over_starts(bound),
    covered=over_starts((bound >= came_sums).astype(jnp.float32)),
    bin_steps=in_bins(jnp.ones_like(forecast)),
    bin_forecast=in_bins(forecast),
    bin_came=in_bins(came.cost),
  )
  return scores, spread_surprise(jnp.mean(sums, axis=0), came_sums, counts, steps, episode.reward.shape[0])


def spread_surprise(
  forecast: types.Array, came: types.Array, counts: types.Array, steps: np.ndarray, length: int
) -> types.Array:
  """How much more cost came than was forecast, at each time step.

  Args:
    forecast: Of the H steps after each start state, [S, C].
    came: Likewise.
    counts: 1 for start states whose H steps lie within the episode, 0 for the others, [S].
    steps: The time steps after each start state, [H, S].
    length: T + 1.

  Returns:
    [T + 1], of each time step the mean over the start states which it follows within H steps, or is one of; summed over
    costs. What is not finite counts as nothing.
  """
  excess = jnp.sum(jnp.maximum(came - forecast, 0.0), axis=-1)  # [S]
  excess = jnp.where(jnp.isfinite(excess), excess, 0.0)
  covered = np.concatenate([steps[:1] - 1, steps])  # [H + 1, S], with the start states themselves.
  add = lambda values: jnp.zeros((length,)).at[covered].add(values[None], mode='drop')
  return add(counts * excess) / jnp.maximum(add(counts), 1.0)


def metrics(held_out: HeldOut, scales: tuple[float, ...]) -> dict[str, types.Array]:
  """What to log, []; nothing to divide by yet gives 0."""
  scores = jax.tree.map(lambda x: x / np.maximum(held_out.weight, 1e-6), held_out.scores)
  horizon, num_constraints = scores.came.shape
  result = {'held_out_log_loss': scores.log_loss}
  for i in range(num_constraints):
    result |= {
      f'held_out_raw_forecast/{i}': scores.raw_forecast[:, i].sum(),
      f'held_out_forecast/{i}': scores.forecast[:, i].sum(),
      f'held_out_cost/{i}': scores.came[:, i].sum(),
      f'held_out_bound/{i}': scores.bound[i],
      f'held_out_covered/{i}': scores.covered[i],
      f'held_out_disagreement/{i}': scores.disagreement[i],
    }
    for step in range(horizon):
      result[f'held_out_forecast_ahead/{i}/{step + 1}'] = scores.forecast[step, i]
      result[f'held_out_cost_ahead/{i}/{step + 1}'] = scores.came[step, i]
  for g in range(len(BIN_EDGES) + 1):
    steps = np.maximum(scores.bin_steps[g], 1e-9)
    result[f'held_out_bin_forecast/{g}'] = scores.bin_forecast[g] / steps
    result[f'held_out_bin_cost/{g}'] = scores.bin_came[g] / steps
  for name, values in scores.log_likelihood.items():
    for k, scale in enumerate(scales):
      result[f'held_out_log_likelihood/{name}/{scale:g}'] = values[k]
  return result
