"""An ensemble whose members share one latent space.

States inferred with one recurrent model mean nothing to another that was initialised differently. So members differ in
the modules that predict (the prior over the next state, and the heads), and share those that infer and remember.
Letters beside the common legend: M members.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import gin
from lambda_kit import core
from lambda_kit import types
from lambda_kit.models import optimizers
from lambda_kit.posteriors import selection


class EnsembleState(NamedTuple):
  params: core.Params  # All parameters. Leaves that differ between members are [M, ...], shared ones as they are.
  opt_state: optax.OptState


@gin.register
class Ensemble(core.Posterior[EnsembleState]):
  """M members, all trained on the same batches; they differ by their initialisation.

  A member's own parameters follow the gradient of its own loss, shared parameters the mean of all members' gradients.
  The gradient of everything together is clipped.

  Args:
    select: Picks the parameters that are sampled.
    num_members: M, at least the number of posterior samples.
    member_modules: A module with one of these in its name is each member's own, if `select` picks it; all other
      modules are shared. Each of them has to occur in some name.
    own_noise: Whether members draw latent states of their own from the shared inference model, which costs M passes
      through encoder and decoder. Otherwise they share the draws, and the passes.
    learning_rate: Adam's, or a function from the number of updates so far to it.
    clip_norm: The largest global norm of a gradient.
    eps: Adam's.
  """

  display_name = 'ensemble'

  def __init__(
    self,
    select: Callable[[core.Params], core.Params],
    num_members: int = 5,
    member_modules: Sequence[str] = ('prior', 'reward', 'cost', 'terminal'),
    own_noise: bool = False,
    learning_rate: float | optax.Schedule = 1e-4,
    clip_norm: float = 100.0,
    eps: float = 1e-5,
  ):
    if num_members < 1 or isinstance(member_modules, str):
      raise ValueError(
        f'Ensemble: num_members={num_members} must be at least 1, and member_modules='
        f'{member_modules!r} a sequence of strings.'
      )
    self._select = select
    self.num_members, self._member_modules, self._own_noise = num_members, tuple(member_modules), own_noise
    self._rate = learning_rate if callable(learning_rate) else lambda count: learning_rate
    self._optimizer = optimizers.make_adam(learning_rate, clip_norm, eps)

  def init(self, key: core.Key, init_params: Callable[[core.Key], core.Params]) -> EnsembleState:
    stacked = jax.vmap(init_params)(jax.random.split(key, self.num_members))
    params = jax.tree.map(lambda leaf, own: leaf if own else leaf[0], stacked, self.is_own(stacked))
    return EnsembleState(params, self._optimizer.init(params))

  def update(
    self, state: EnsembleState, loss: core.ModelLoss, key: core.Key
  ) -> tuple[EnsembleState, Any, dict[str, types.Array]]:
    is_own = self.is_own(state.params)

    def summed_loss(params: core.Params) -> tuple[types.Array, Any]:
      losses, aux = self._members_losses(params, loss, key)
      return jnp.sum(losses), (losses, aux)

    gradients, (losses, aux) = jax.grad(summed_loss, has_aux=True)(state.params)
    # Of the sum, a member's own parameters get its own gradient, shared ones the sum of all.
    gradients = jax.tree.map(lambda g, own: g if own else g / self.num_members, gradients, is_own)
    _, count = optax.tree.get_all_with_path(state.opt_state, 'count')[0]  # Without skipped updates.
    updates, opt_state = self._optimizer.update(gradients, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    metrics = dict(
      loss=jnp.mean(losses),
      learning_rate=jnp.asarray(self._rate(count), jnp.float32),
      gradient_norm=optax.tree.norm(gradients),
      skipped_updates=optimizers.skipped_updates(opt_state),
      posterior_spread=self._spread(params, is_own),
    )
    return EnsembleState(params, opt_state), jax.tree.map(lambda leaf: leaf[0], aux), metrics

  def current(self, state: EnsembleState) -> core.Params:
    """The first member. An average of networks with different initialisations would be no network."""
    return jax.tree.map(lambda leaf, own: leaf[0] if own else leaf, state.params, self.is_own(state.params))

  def sample(
    self, state: EnsembleState, key: core.Key, num_samples: int, scale: types.Array | float | None = None
  ) -> core.Params:
    """Draws members without replacement. `scale` stretches them around the average of all M by its root."""
    if num_samples > self.num_members:
      raise ValueError(
        f'An ensemble of {self.num_members} has no {num_samples} different members: set '
        f'Ensemble.num_members to {num_samples} or more, or draw fewer posterior samples.'
      )
    chosen = jax.random.permutation(key, self.num_members)[:num_samples]  # [N]
    stack = lambda leaf, own: leaf[chosen] if own else jnp.broadcast_to(leaf, (num_samples, *leaf.shape))
    samples = self._select(jax.tree.map(stack, state.params, self.is_own(state.params)))
    return samples if scale is None else self.stretch(samples, state.params, scale)

  def stretch(self, samples: core.Params, params: core.Params, scale: types.Array | float) -> core.Params:
    """Moves selected parameters [N, ...] away from the average over members of `params` by the root of `scale`."""
    average = jax.tree.map(lambda leaf, own: jnp.mean(leaf, axis=0) if own else leaf, params, self.is_own(params))
    move = lambda sample, centre: centre[None] + jnp.sqrt(scale) * (sample - centre[None])
    return jax.tree.map(move, samples, self._select(average))

  def _members_losses(self, params: core.Params, loss: core.ModelLoss, key: core.Key) -> tuple[types.Array, Any]:
    """The loss [M] of each member, and what else it returned, stacked."""
    leaves, structure = jax.tree.flatten(params)
    axes = [0 if own else None for own in jax.tree.leaves(self.is_own(params))]
    keys = jax.random.split(key, self.num_members) if self._own_noise else key
    member_loss = lambda leaves, key: loss(jax.tree.unflatten(structure, leaves), key)
    # What depends on nothing of a member's own is computed once, whatever the size of the ensemble.
    return jax.vmap(member_loss, in_axes=(axes, 0 if self._own_noise else None))(leaves, keys)

  def is_own(self, params: core.Params) -> core.Params:
    """Says of each leaf of `params` whether each member has its own."""
    positions = selection.selected_positions(params, self._select)
    names = selection.module_names(params)
    selected_names = sorted({names[position] for position in positions})
    unknown = [part for part in self._member_modules if not any(part in name for name in selected_names)]
    if unknown or not self._member_modules:
      raise ValueError(
        f'Ensemble.member_modules={self._member_modules}: nothing that imagination uses has a name with '
        f'{unknown} in it. Its modules are {selected_names}.'
      )
    is_own = [False] * len(names)
    for position in positions:
      is_own[position] = any(part in names[position] for part in self._member_modules)
    return jax.tree.unflatten(jax.tree.structure(params), is_own)

  def _spread(self, params: core.Params, is_own: core.Params) -> types.Array:
    """Standard deviation between members, as the root of the mean square over all selected parameters, []."""
    variances = jax.tree.map(lambda leaf, own: jnp.sum(jnp.var(leaf, axis=0)) if own else jnp.zeros(()), params, is_own)
    first = jax.tree.map(lambda leaf, own: leaf[0] if own else leaf, params, is_own)
    return jnp.sqrt(sum(jax.tree.leaves(variances)) / selection.num_parameters(self._select(first)))
