"""An ensemble whose members are models of their own, in one latent space.

States inferred with one recurrent model mean nothing to another that was learned without it. So one complete model, the
reference, infers all states, and is trained as if it were alone. A member has everything that imagination uses of its
own, recurrence, prior and heads, and learns to predict from the reference's states: what state comes next, and what
reward, costs and terminals were recorded there. Any state that the reference infers is one that all members can start
from.

Members differ by their initialisation, by the episodes that they learn from, and by a random function each that is
never trained. Letters beside the common legend: M members.
"""

from collections.abc import Callable
import math
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

import gin
from lambda_kit import core
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.models import optimizers
from lambda_kit.models import sums
from lambda_kit.posteriors import selection


class EnsembleState(NamedTuple):
  params: core.Params  # Of the reference, complete.
  members: core.Params  # What `select` picks, of each member: [M, ...].
  fixed: core.Params  # The same of the random functions that are never trained, [M, ...]; () without them.
  opt_state: optax.OptState  # Of reference and members.


def bootstrap_weights(num_members: int, episodes: types.Array) -> types.Array:
  """How often each member has drawn each episode, float32 [M, B] for the episodes with numbers [B].

  A bootstrap draws as many episodes as there are, with replacement: each comes about Poisson(1) times, and 1 time on
  average. Here the count is a function of member and episode, so that it never changes.
  """
  chex.assert_rank(episodes, 1)
  cumulative = np.cumsum([math.exp(-1) / math.factorial(count) for count in range(10)]).astype(np.float32)

  def count(member, episode):
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), member), episode)
    return jnp.sum(jax.random.uniform(key) >= cumulative, dtype=jnp.float32)

  return jax.vmap(jax.vmap(count, in_axes=(None, 0)), in_axes=(0, None))(jnp.arange(num_members), episodes)


@gin.register
@ranges.checked
class Ensemble(core.Posterior[EnsembleState]):
  """M members that learn from the states that a further model, the reference, infers.

  An update that has a gradient that is not finite is skipped by all of them.

  Args:
    select: Picks the parameters that are sampled: each member's own.
    num_members: M, at least the number of posterior samples.
    bootstrap: Whether each member learns from a bootstrap of the episodes of its own. Otherwise all learn from all.
    prior_scale: Of the random functions that are added to each member's networks (Osband et al., 2018); 0 for none.
    learning_rate: Adam's, or a function from the number of updates so far to it.
    clip_norm: The largest global norm of a gradient: of the reference's, and of each member's.
    eps: Adam's.
  """

  display_name = 'ensemble'
  needs_member_loss = True

  def __init__(
    self,
    select: Callable[[core.Params], core.Params],
    num_members: ranges.Count = 5,
    bootstrap: bool = True,
    prior_scale: ranges.NotNegative = 0.3,
    learning_rate: ranges.Positive | optax.Schedule = 1e-4,
    clip_norm: ranges.PositiveOrInfinite = 100.0,
    eps: ranges.Positive = 1e-5,
  ):
    self._select = select
    self.num_members = self.max_samples = num_members
    self._bootstrap, self._prior_scale = bootstrap, prior_scale
    self._rate = learning_rate if callable(learning_rate) else lambda count: learning_rate
    self._optimizer = optimizers.make_adam(learning_rate, clip_norm, eps, _clip_each)

  def init(self, key: core.Key, init_params: Callable[[core.Key], core.Params]) -> EnsembleState:
    member_key, fixed_key = jax.random.split(jax.random.fold_in(key, 1))
    draw = jax.vmap(lambda key: self._select(init_params(key)))
    params, members = init_params(key), draw(jax.random.split(member_key, self.num_members))
    fixed = draw(jax.random.split(fixed_key, self.num_members)) if self._prior_scale else ()
    return EnsembleState(params, members, fixed, self._optimizer.init((params, members)))

  def update(
    self, state: EnsembleState, loss: core.ModelLoss, key: core.Key
  ) -> tuple[EnsembleState, types.ModelOutput, dict[str, types.Array]]:
    if not isinstance(loss, core.EnsembleLoss):
      raise TypeError(f'An ensemble learns from a core.EnsembleLoss, such as models.batch_loss.BatchLoss, got {loss}.')
    (value, output), gradient = jax.value_and_grad(loss, has_aux=True)(state.params, key)
    member_key = jax.random.fold_in(key, 1)

    def member_loss(member, fixed, weights):
      losses = loss.of_member(self._with_fixed(member, fixed), output, member_key)  # [B]
      return jnp.mean(losses if weights is None else weights * losses)

    member_losses, member_gradients = jax.vmap(jax.value_and_grad(member_loss))(
      state.members, state.fixed, self._weights(loss)
    )
    gradients = (gradient, member_gradients)
    _, count = optax.tree.get_all_with_path(state.opt_state, 'count')[0]  # Without skipped updates.
    updates, opt_state = self._optimizer.update(gradients, state.opt_state, (state.params, state.members))
    params, members = optax.apply_updates((state.params, state.members), updates)
    metrics = dict(
      loss=value,
      member_loss=jnp.mean(member_losses),
      learning_rate=jnp.asarray(self._rate(count), jnp.float32),
      gradient_norm=optax.tree.norm(gradient),
      member_gradient_norm=jnp.mean(jax.vmap(optax.tree.norm)(member_gradients)),
      skipped_updates=optimizers.skipped_updates(opt_state),
      posterior_spread=_spread(members),
    )
    return EnsembleState(params, members, state.fixed, opt_state), output, metrics

  def current(self, state: EnsembleState) -> core.Params:
    """The reference."""
    return state.params

  def sample(
    self, state: EnsembleState, key: core.Key, num_samples: int, scale: types.Array | float | None = None
  ) -> core.Params:
    """Draws members without replacement; see `stretched` for `scale`."""
    if num_samples > self.num_members:
      raise errors.SetupError(
        f'An ensemble of {self.num_members} has no {num_samples} different members: set '
        f'Ensemble.num_members to {num_samples} or more, or draw fewer posterior samples.'
      )
    chosen = jax.random.permutation(key, self.num_members)[:num_samples]  # [N]
    members, fixed = jax.tree.map(lambda leaf: leaf[chosen], (state.members, state.fixed))
    return self.stretched(members, fixed, state.params, scale)

  def stretched(
    self, members: core.Params, fixed: core.Params, params: core.Params, scale: types.Array | float | None
  ) -> core.Params | sums.Sum:
    """Members [N, ...] with their random functions [N, ...], stretched around the reference `params`.

    Between networks that were initialised differently, there is nothing meaningful in the space of weights. In one
    latent space, their outputs can be compared: of prior and heads f, a sample at scale s has f_0 + sqrt(s) (f - f_0),
    where f_0 is the reference's. Its recurrence, which follows the reference's closely, stays as it is.
    """
    if scale is None:
      return jax.vmap(self._with_fixed)(members, fixed)
    num_samples = jax.tree.leaves(members)[0].shape[0]
    stretch = jnp.sqrt(scale)
    terms = [(members, stretch)]
    if self._prior_scale:
      terms.append((fixed, stretch * self._prior_scale))
    repeat = lambda leaf: jnp.broadcast_to(leaf, (num_samples, *jnp.shape(leaf)))
    terms.append((jax.tree.map(repeat, self._select(params)), 1 - stretch))
    return sums.Sum(tuple(sums.Term(term, repeat(weight)) for term, weight in terms))

  def _with_fixed(self, member: core.Params, fixed: core.Params) -> core.Params | sums.Sum:
    """A member with its random function added."""
    if not self._prior_scale:
      return member
    return sums.Sum((sums.Term(member, jnp.ones(())), sums.Term(fixed, jnp.asarray(self._prior_scale, jnp.float32))))

  def _weights(self, loss: core.EnsembleLoss) -> types.Array | None:
    """How much each sequence counts for each member, [M, B]; None if all count alike."""
    if not self._bootstrap:
      return None
    if loss.episodes is None:
      raise ValueError(
        'Ensemble.bootstrap needs to know the episode of each sequence (types.Trajectory.episode): take batches from '
        'the replay, or bind it to False.'
      )
    return bootstrap_weights(self.num_members, loss.episodes)


def _clip_each(clip_norm: float) -> optax.GradientTransformation:
  """Clips the gradient of the reference, and that of each member, to a global norm."""
  clip = lambda tree: optax.clip_by_global_norm(clip_norm).update(tree, optax.EmptyState())[0]

  def update(gradients, state, params=None):
    del params
    reference, members = gradients
    return (clip(reference), jax.vmap(clip)(members)), state

  return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def _spread(members: core.Params) -> types.Array:
  """Standard deviation between members [M, ...], as the root of the mean square over all parameters, []."""
  variances = [jnp.var(leaf, axis=0) for leaf in jax.tree.leaves(members)]
  return jnp.sqrt(sum(map(jnp.sum, variances)) / selection.num_parameters(variances))
