"""Constrained policy optimisation (Achiam et al., 2017) for one constraint."""

from typing import NamedTuple

import jax
from jax import flatten_util
import jax.numpy as jnp

import gin
from lambda_kit import core
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.agents.on_policy import interfaces
from lambda_kit.agents.on_policy import surrogates
from lambda_kit.agents.on_policy import trust_region

# How the safe half-space {x: c + b^T x <= 0} and the trust region {x: x^T H x <= 2 delta} intersect.
RECOVER = 0  # They don't: the step reduces the cost as fast as possible, whatever the reward.
RETURN = 1  # They intersect, and the current policy (x = 0) is unsafe.
STAY = 2  # They intersect, and the current policy is safe.
FREE = 3  # The whole trust region is safe: a step of TRPO.

_TINY = 1e-8


class Dual(NamedTuple):
  """The multipliers of a step, x = -(H^-1 g + nu H^-1 b) / lambda; in the case `RECOVER`, x = -nu H^-1 b."""

  lambda_: types.Array  # [], of the trust region.
  nu: types.Array  # [], of the cost.
  case: types.Array  # [] int32, one of the cases above.


def solve_dual(q: types.Array, r: types.Array, s: types.Array, c: types.Array, delta: float) -> Dual:
  """Solves min_x g^T x  s.t.  c + b^T x <= 0,  x^T H x / 2 <= delta (Achiam et al., 2017, theorem 2) in closed form.

  For a given lambda > 0 the best nu is max(0, (lambda c - r) / s), and the dual function is

    f_a(lambda) = -(A / lambda + B lambda) / 2 - r c / s    where lambda c > r, hence nu > 0
    f_b(lambda) = -(q / lambda + 2 delta lambda) / 2        elsewhere, where nu = 0

  with A = q - r^2 / s and B = 2 delta - c^2 / s. Both are concave, with peaks at sqrt(A / B) and sqrt(q / 2 delta).
  The set lambda c > r is an interval, and so is its complement: each peak is projected onto its interval, and the
  better one is the solution.

  Args:
    q: g^T H^-1 g with g the gradient of the loss, [].
    r: g^T H^-1 b with b the gradient of the cost, [].
    s: b^T H^-1 b, [].
    c: How far the cost is above its limit, in the units of b^T x, [].
    delta: Half the squared radius of the trust region.
  """
  # No step can bound a cost without a gradient, and if the policy is safe, none has to.
  flat = s <= _TINY
  s = jnp.maximum(s, _TINY)
  c = jnp.where(jnp.abs(c) < _TINY, -_TINY, c)  # On the limit: keeps r / c below finite.
  a, b = jnp.maximum(q - r**2 / s, 0.0), 2.0 * delta - c**2 / s
  case = jnp.where(b > 0.0, jnp.where(c < 0.0, STAY, RETURN), jnp.where(c < 0.0, FREE, RECOVER))
  case = jnp.where(flat & (c < 0.0), FREE, case)

  bound = r / c
  low_a, high_a = jnp.where(c < 0.0, 0.0, jnp.maximum(bound, 0.0)), jnp.where(c < 0.0, bound, jnp.inf)
  low_b, high_b = jnp.where(c < 0.0, jnp.maximum(bound, 0.0), 0.0), jnp.where(c < 0.0, jnp.inf, bound)
  peak_free = jnp.sqrt(q / (2.0 * delta))
  lambda_a = jnp.clip(jnp.sqrt(a / jnp.maximum(b, _TINY)), low_a, high_a)
  lambda_b = jnp.clip(peak_free, low_b, high_b)
  value_a = -0.5 * (a / jnp.maximum(lambda_a, _TINY) + b * lambda_a) - r * c / s
  value_b = -0.5 * (q / jnp.maximum(lambda_b, _TINY) + 2.0 * delta * lambda_b)
  value_a = jnp.where(low_a <= high_a, value_a, -jnp.inf)
  value_b = jnp.where(low_b <= high_b, value_b, -jnp.inf)
  lambda_ = jnp.where(value_a >= value_b, lambda_a, lambda_b)
  nu = jnp.maximum(lambda_ * c - r, 0.0) / s

  lambda_ = jnp.select([case == FREE, case == RECOVER], [peak_free, jnp.zeros_like(q)], lambda_)
  nu = jnp.select([case == FREE, case == RECOVER], [jnp.zeros_like(q), jnp.sqrt(2.0 * delta / s)], nu)
  return Dual(lambda_, nu, case.astype(jnp.int32))


@gin.register
@ranges.checked
class Cpo(interfaces.PolicyOptimizer[tuple[()]]):
  """One step that improves the return as far as trust region and constraint allow, to first order.

  The step is shortened until the KL divergence is within its target, the cost rises no further than the limit allows
  (not at all if it is over the limit) and, if the policy is safe, the return doesn't fall.

  Args:
    target_kl: delta.
    cg_iterations: Of conjugate gradients.
    damping: Added to the diagonal of the Fisher matrix.
    fisher_every: The Fisher matrix uses every n-th step of an epoch; gradients and line search use all of them.
    backtracks: Number of fractions of the step to try.
    shrinkage: Ratio of each fraction to the one before.
  """

  display_name = 'CPO'

  def __init__(
    self,
    target_kl: ranges.Positive = 0.01,
    cg_iterations: ranges.Count = 10,
    damping: ranges.NotNegative = 0.1,
    fisher_every: ranges.Count = 8,
    backtracks: ranges.Count = 10,
    shrinkage: ranges.BetweenZeroAndOne = 0.8,
  ):
    self._target_kl = target_kl
    self._cg_iterations = cg_iterations
    self._damping = damping
    self._fisher_every = fisher_every
    self._backtracks, self._shrinkage = backtracks, shrinkage

  def init(self, params: core.Params, num_constraints: int) -> tuple[()]:
    if num_constraints != 1:
      raise ValueError(
        f'Cpo solves for one constraint in closed form, and the task has {num_constraints}. Sum the costs into one, '
        'or use a Lagrangian method: gin/agents/ppo_lagrangian.gin, gin/agents/trpo_lagrangian.gin.'
      )
    return ()

  def update(
    self,
    state: tuple[()],
    params: core.Params,
    apply: surrogates.Apply,
    batch: surrogates.Batch,
    costs: surrogates.EpisodeCosts,
    key: core.Key,
  ) -> tuple[tuple[()], core.Params, dict[str, types.Array]]:
    flat, unflatten = flatten_util.ravel_pytree(params)
    outputs = lambda flat, batch: apply(unflatten(flat), batch.observation)
    kl = lambda new, old, batch: surrogates.mean_kl(batch.weight, new, old)
    thinned = surrogates.thin(batch, self._fisher_every)

    def evaluate(flat: types.Array) -> tuple[types.Array, types.Array, types.Array]:
      """Loss, cost and KL divergence of a policy, relative to the one that collected the data."""
      policy = outputs(flat, batch)
      ratio = surrogates.ratios(policy, batch)
      return (
        -surrogates.surrogate(ratio, batch),
        surrogates.cost_surrogates(ratio, batch)[0],
        kl(policy, batch.policy, batch),
      )

    (loss, cost, _), pullback = jax.vjp(evaluate, flat)
    one, zero = jnp.ones(()), jnp.zeros(())
    (gradient,), (cost_gradient,) = pullback((one, zero, zero)), pullback((zero, one, zero))
    product = trust_region.fisher_product(
      lambda flat: outputs(flat, thinned), lambda new, old: kl(new, old, thinned), flat, self._damping
    )
    natural = trust_region.conjugate_gradients(product, gradient, self._cg_iterations)  # H^-1 g
    natural_cost = trust_region.conjugate_gradients(product, cost_gradient, self._cg_iterations)  # H^-1 b
    image = product(natural)
    # Per step, as the surrogates are.
    violation = (costs.cost_return[0] - costs.limit[0]) / jnp.maximum(costs.length, 1.0)
    dual = solve_dual(
      jnp.vdot(natural, image),
      jnp.vdot(natural_cost, image),
      jnp.vdot(natural_cost, product(natural_cost)),
      violation,
      self._target_kl,
    )
    step = -jnp.where(
      dual.case == RECOVER,
      dual.nu * natural_cost,
      (natural + dual.nu * natural_cost) / jnp.maximum(dual.lambda_, _TINY),
    )

    def is_acceptable(fraction: types.Array) -> types.Array:
      new_loss, new_cost, divergence = evaluate(flat + fraction * step)
      improves = (dual.case < STAY) | (new_loss <= loss)
      return improves & (new_cost - cost <= jnp.maximum(-violation, 0.0)) & (divergence <= self._target_kl)

    fraction = trust_region.backtrack(is_acceptable, self._backtracks, self._shrinkage)
    flat = trust_region.take(flat, step, fraction)
    new_loss, new_cost, divergence = evaluate(flat)
    metrics = dict(
      policy_loss=loss,
      policy_loss_after=new_loss,
      surrogate_cost_change=new_cost - cost,
      policy_kl=divergence,
      step_fraction=fraction,
      cpo_case=dual.case,
      cpo_lambda=dual.lambda_,
      cpo_nu=dual.nu,
      policy_gradient_norm=jnp.linalg.norm(gradient),
      entropy=surrogates.weighted_mean(batch.policy.entropy(), batch.weight),
    )
    return (), unflatten(flat), metrics
