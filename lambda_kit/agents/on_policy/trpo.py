"""Trust region policy optimisation (Schulman et al., 2015), alone or on the Lagrangian of a constrained problem."""

from typing import Any, NamedTuple

import jax
from jax import flatten_util
import jax.numpy as jnp

import gin
from lambda_kit import core
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.agents import naming
from lambda_kit.agents.on_policy import interfaces
from lambda_kit.agents.on_policy import surrogates
from lambda_kit.agents.on_policy import trust_region
from lambda_kit.safety import unconstrained


class TrpoState(NamedTuple):
  solver: Any


@gin.register
@ranges.checked
class Trpo(interfaces.PolicyOptimizer[TrpoState]):
  """One natural gradient step to the border of the trust region, shortened by a line search.

  With g the gradient of the loss and H the Fisher matrix, x = -sqrt(2 delta / (g^T H^-1 g)) H^-1 g. Of its
  fractions 1, s, s^2, ..., the largest is taken that doesn't raise the loss and keeps the KL divergence within delta.
  With a solver other than `Unconstrained`, the loss is the negative Lagrangian, as in `Ppo`.

  Args:
    solver: Solver of the constrained problem.
    target_kl: delta.
    cg_iterations: Of conjugate gradients.
    damping: Added to the diagonal of H.
    fisher_every: H uses every n-th step of an epoch; gradients and line search use all of them.
    backtracks: Number of fractions to try.
    shrinkage: s.
    entropy_scale: Weight of the policy's entropy in the objective.
  """

  def __init__(
    self,
    solver: core.ConstraintSolver = unconstrained.Unconstrained(),
    target_kl: ranges.Positive = 0.01,
    cg_iterations: ranges.Count = 10,
    damping: ranges.NotNegative = 0.1,
    fisher_every: ranges.Count = 8,
    backtracks: ranges.Count = 10,
    shrinkage: ranges.BetweenZeroAndOne = 0.8,
    entropy_scale: float = 0.0,
  ):
    self._solver = solver
    self._target_kl = target_kl
    self._cg_iterations = cg_iterations
    self._damping = damping
    self._fisher_every = fisher_every
    self._backtracks, self._shrinkage = backtracks, shrinkage
    self._entropy_scale = entropy_scale

  @property
  def display_name(self) -> str:
    return naming.with_solver('TRPO', self._solver)

  def init(self, params: core.Params, num_constraints: int) -> TrpoState:
    return TrpoState(self._solver.init(num_constraints))

  def update(
    self,
    state: TrpoState,
    params: core.Params,
    apply: surrogates.Apply,
    batch: surrogates.Batch,
    costs: surrogates.EpisodeCosts,
    key: core.Key,
  ) -> tuple[TrpoState, core.Params, dict[str, types.Array]]:
    solver_state = self._solver.update(state.solver, costs.cost_return, costs.limit)
    multipliers = self._solver.multipliers(solver_state)
    flat, unflatten = flatten_util.ravel_pytree(params)
    outputs = lambda flat, batch: apply(unflatten(flat), batch.observation)
    kl = lambda new, old, batch: surrogates.mean_kl(batch.weight, new, old)
    thinned = surrogates.thin(batch, self._fisher_every)

    def loss(flat: types.Array) -> tuple[types.Array, types.Array]:
      policy = outputs(flat, batch)
      ratio = surrogates.ratios(policy, batch)
      entropy = surrogates.weighted_mean(policy.entropy(), batch.weight)
      objective = surrogates.penalised(
        surrogates.surrogate(ratio, batch) + self._entropy_scale * entropy,
        surrogates.cost_surrogates(ratio, batch),
        multipliers,
      )
      return -objective, kl(policy, batch.policy, batch)

    (before, _), gradient = jax.value_and_grad(loss, has_aux=True)(flat)
    product = trust_region.fisher_product(
      lambda flat: outputs(flat, thinned), lambda new, old: kl(new, old, thinned), flat, self._damping
    )
    direction = trust_region.conjugate_gradients(product, gradient, self._cg_iterations)
    step = -jnp.sqrt(2.0 * self._target_kl / (jnp.vdot(direction, product(direction)) + 1e-8)) * direction

    def is_acceptable(fraction: types.Array) -> types.Array:
      after, divergence = loss(flat + fraction * step)
      return (after <= before) & (divergence <= self._target_kl)

    fraction = trust_region.backtrack(is_acceptable, self._backtracks, self._shrinkage)
    flat = trust_region.take(flat, step, fraction)
    after, divergence = loss(flat)
    metrics = dict(
      policy_loss=before,
      policy_loss_after=after,
      policy_kl=divergence,
      step_fraction=fraction,
      policy_gradient_norm=jnp.linalg.norm(gradient),
      entropy=surrogates.weighted_mean(batch.policy.entropy(), batch.weight),
      **{f'multiplier/{i}': multiplier for i, multiplier in enumerate(multipliers)},
    )
    return TrpoState(solver_state), unflatten(flat), metrics
