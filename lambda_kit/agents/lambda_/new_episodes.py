"""What LAMBDA learns from a new episode as a whole, before any update learns from its steps."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lambda_kit import core
from lambda_kit import types
from lambda_kit.agents.lambda_ import held_out as held_out_lib
from lambda_kit.agents.lambda_ import imagination
from lambda_kit.agents.lambda_ import networks as networks_lib
from lambda_kit.agents.lambda_ import objective as objective_lib
from lambda_kit.agents.lambda_ import update as update_lib


def make_observe_episode(
  networks: networks_lib.LambdaNetworks,
  posterior: core.Posterior,
  width: core.Width,
  objective: objective_lib.Objective,
  models: Callable[[update_lib.LearnerState, core.Key], core.Params],
  policy_acts: bool,
  shared_noise: bool,
  belief: Callable[[update_lib.LearnerState], Any],
) -> Callable[[update_lib.LearnerState, types.Trajectory, types.Array], tuple[update_lib.LearnerState, types.Array]]:
  """What is learned from a new episode [T + 1, ...] as a whole, padded behind its T steps, as a pure function.

  Feedback learns what it cost; the width of the posterior and the factors of expected costs, how well samples predicted
  it. Also returns its surprise, [T + 1], 0 as long as nothing was forecast.
  """
  limits = np.asarray(networks.spec.cost_limits, np.float32)
  factors = update_lib.cost_factors(networks, objective)

  def score(
    state: update_lib.LearnerState, episode: types.Trajectory, num_steps: types.Array
  ) -> tuple[update_lib.LearnerState, types.Array]:
    key = jax.random.fold_in(state.key, 2)
    scores, surprise = held_out_lib.score(
      networks.world_model,
      objective.cost_bound,
      objective.horizon,
      belief(state),
      models(state, key),
      lambda scale: posterior.sample(state.posterior, key, held_out_lib.NUM_SAMPLES, scale),
      width.scales,
      factors(state),
      imagination.policy_sampler(networks.policy.apply, state.policy.params) if policy_acts else None,
      networks.spec.num_actions,
      shared_noise,
      key,
      episode,
      num_steps,
    )
    state = state._replace(
      width=width.observe(state.width, scores.log_likelihood),
      recalibration=objective.recalibration.observe(state.recalibration, scores.raw_forecast, scores.came),
      held_out=held_out_lib.add(state.held_out, scores),
    )
    return state, surprise

  def observe_episode(
    state: update_lib.LearnerState, episode: types.Trajectory, num_steps: types.Array
  ) -> tuple[update_lib.LearnerState, types.Array]:
    cost_return = jnp.sum(episode.cost, axis=0)
    state = state._replace(feedback=objective.feedback.observe_episode(state.feedback, cost_return, limits))
    nothing = jnp.zeros(episode.reward.shape)
    if episode.reward.shape[0] <= objective.horizon:
      return state, nothing
    has_learned = (state.updates > 0) & (num_steps >= objective.horizon)
    return jax.lax.cond(has_learned, score, lambda state, *_: (state, nothing), state, episode, num_steps)

  return observe_episode
