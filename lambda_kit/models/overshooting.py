"""Overshooting: training a model on states that it imagined itself.

The ELBO trains the heads on states inferred with the observation at hand, and the prior on one step from such a state.
The policy is trained on states up to H steps later. By then the prior's errors have added up, and the heads see states
that they were never trained on: they predict too little cost, since most states have none. Overshooting (as in Hafner
et al., 2019, section 4, with rewards and costs instead of the KL) rolls the model out from inferred states under the
recorded actions, and trains prior and heads to predict the rewards, costs and terminals that were recorded there.
"""

import chex
import haiku as hk
import jax
import jax.numpy as jnp

from lambda_kit import types
from lambda_kit.models import draws
from lambda_kit.models import rssm


def overshoot(
  dynamics: rssm.Dynamics, states: rssm.State, batch: types.Trajectory, overshooting: draws.Overshooting
) -> tuple[types.Array, types.Trajectory]:
  """Rolls the model out from inferred states under the recorded actions.

  Args:
    dynamics: p.
    states: inferred, [B, L, ...]. Gradients stop here: inference learns from observations alone.
    batch: the sequences.
    overshooting: M starts in each sequence.

  Returns:
    Features of imagined states [B, J, M, F], and the data recorded at their time steps [B, J, M, ...], without
    observations.
  """
  starts, noise = overshooting
  chex.assert_rank([starts, noise], [2, 4])
  recorded = draws.take(batch._replace(observation={}), draws.following(starts, noise.shape[1]))

  def step(state, inputs):
    state = dynamics.step(state, *inputs)
    return state, rssm.features(state)

  inputs = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), (recorded.action, noise))  # [J, B, M, ...]
  _, features = hk.scan(step, jax.lax.stop_gradient(draws.take(states, starts)), inputs)
  return jnp.swapaxes(features, 0, 1), recorded
