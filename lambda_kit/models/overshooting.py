"""Training a model on what follows from states that it imagined itself.

The ELBO trains heads on states that were inferred with the observation at hand, and the prior on one step from such a
state. A policy is trained on states H steps further on. There errors of the prior have added up, heads see states that
they were never trained on, and expect too few costs, since most states have none. Overshooting (as in Hafner et al.,
2019, section 4, with rewards and costs instead of the KL) follows recorded actions from inferred states on, without
looking, and trains prior and heads to tell the rewards, costs and terminals that were recorded there.
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
  """Follows recorded actions from inferred states on, without looking.

  Args:
    dynamics: p.
    states: inferred, [B, L, ...]. They have no gradient: inference is trained by what it sees.
    batch: the sequences.
    overshooting: M starts in each of them.

  Returns:
    Features of imagined states [B, J, M, F], and what was recorded at their steps [B, J, M, ...], observations aside.
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
