"""Variational inference with a Gaussian that factorises over parameters (Blundell et al., 2015)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
from jax import flatten_util
import jax.numpy as jnp
import numpy as np
import optax

import gin
from lambda_kit import core
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.models import optimizers
from lambda_kit.posteriors import noise
from lambda_kit.posteriors import selection


class VariationalState(NamedTuple):
  params: core.Params  # All parameters; of the selected ones, the mean mu.
  rho: core.Params  # Of the selected parameters: the standard deviation is softplus(rho).
  opt_state: optax.OptState


def gaussian_kl(mean: types.Array, std: types.Array, prior_std: float) -> types.Array:
  """KL(N(mean, diag(std^2)) || N(0, prior_std^2 I)), [], for `mean` and `std` of the same shape."""
  chex.assert_equal_shape([mean, std])
  return jnp.sum(jnp.log(prior_std / std) + (jnp.square(std) + jnp.square(mean)) / (2 * prior_std**2) - 0.5)


def draw(mean: core.Params, std: core.Params, key: core.Key) -> core.Params:
  """mean + std * z with z ~ N(0, I): differentiable in `mean` and `std`."""
  flat, unflatten = flatten_util.ravel_pytree(mean)
  z = unflatten(noise.standard_normal(key, flat.shape))
  return jax.tree.map(lambda m, s, z: m + s * z, mean, std, z)


@gin.register
@ranges.checked
class Variational(core.Posterior[VariationalState]):
  """Mean-field Gaussian over the selected parameters, a point estimate of the others, learned by Adam.

  An update minimises E_q[loss(theta)] + kl_scale * KL(q || N(0, prior_std^2 I)) with one draw of theta ~ q. What `loss`
  returns beside the loss belongs to that draw.

  Args:
    select: Picks the parameters that are sampled.
    initial_std: Of q. A tenth of a weight's own size in layers of a hundred inputs, which start at 1 / sqrt(inputs).
    prior_std: Of the prior; about the size at which weights start.
    kl_scale: Where `loss` is a mean over data, 1 / (number of data) gives the Bayesian posterior of them all. The
      default stands for the million steps of a run of the paper.
    std_rate_factor: The rate of rho as a multiple of `learning_rate`. Adam moves rho, which is about the logarithm of
      the standard deviation, by at most its rate: at 1e-4 it would take 10,000 updates to change by a factor of e.
    learning_rate: Adam's.
    clip_norm: The largest global norm of a gradient.
    eps: Adam's.
  """

  display_name = 'variational'

  def __init__(
    self,
    select: Callable[[core.Params], core.Params],
    initial_std: ranges.Positive = 1e-2,
    prior_std: ranges.Positive = 0.1,
    kl_scale: ranges.NotNegative = 1e-6,
    std_rate_factor: ranges.NotNegative = 10.0,
    learning_rate: ranges.Positive = 1e-4,
    clip_norm: ranges.PositiveOrInfinite = 100.0,
    eps: ranges.Positive = 1e-5,
  ):
    self._select = select
    self._initial_rho = np.log(np.expm1(initial_std))  # Inverse of softplus.
    self._prior_std, self._kl_scale, self._std_rate_factor = prior_std, kl_scale, std_rate_factor
    self._learning_rate = learning_rate
    self._optimizer = optimizers.make_adam(learning_rate, clip_norm, eps)

  def init(self, key: core.Key, init_params: Callable[[core.Key], core.Params]) -> VariationalState:
    params = init_params(key)
    rho = jax.tree.map(lambda leaf: jnp.full_like(leaf, self._initial_rho), self._select(params))
    return VariationalState(params, rho, self._optimizer.init((params, rho)))

  def update(
    self, state: VariationalState, loss: core.ModelLoss, key: core.Key
  ) -> tuple[VariationalState, Any, dict[str, types.Array]]:
    positions = selection.selected_positions(state.params, self._select)
    draw_key, loss_key = jax.random.split(key)

    def objective(variables: tuple[core.Params, core.Params]) -> tuple[types.Array, Any]:
      params, rho = variables
      mean, std = self._select(params), jax.tree.map(jax.nn.softplus, rho)
      value, aux = loss(selection.merge(params, draw(mean, std, draw_key), positions), loss_key)
      divergence = sum(jax.tree.leaves(jax.tree.map(lambda m, s: gaussian_kl(m, s, self._prior_std), mean, std)))
      return value + self._kl_scale * divergence, (value, divergence, _root_mean_square(std), aux)

    variables = (state.params, state.rho)
    gradients, (value, divergence, spread, aux) = jax.grad(objective, has_aux=True)(variables)
    updates, opt_state = self._optimizer.update(gradients, state.opt_state, variables)
    params_updates, rho_updates = updates
    rho_updates = jax.tree.map(lambda update: self._std_rate_factor * update, rho_updates)
    params, rho = optax.apply_updates(variables, (params_updates, rho_updates))
    metrics = dict(
      loss=value,
      learning_rate=jnp.asarray(self._learning_rate, jnp.float32),
      gradient_norm=optax.tree.norm(gradients),
      skipped_updates=optimizers.skipped_updates(opt_state),
      parameters_kl=divergence,
      posterior_spread=spread,
    )
    return VariationalState(params, rho, opt_state), aux, metrics

  def current(self, state: VariationalState) -> core.Params:
    return state.params

  def sample(
    self, state: VariationalState, key: core.Key, num_samples: int, scale: types.Array | float | None = None
  ) -> core.Params:
    stretch = 1.0 if scale is None else jnp.sqrt(scale)
    mean, std = self._select(state.params), jax.tree.map(lambda rho: stretch * jax.nn.softplus(rho), state.rho)
    return jax.vmap(draw, in_axes=(None, None, 0))(mean, std, jax.random.split(key, num_samples))


def _root_mean_square(tree: core.Params) -> types.Array:
  return optax.tree.norm(tree) / np.sqrt(selection.num_parameters(tree))
