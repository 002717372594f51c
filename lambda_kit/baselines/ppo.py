"""Proximal policy optimisation (Schulman et al., 2017), alone or on the Lagrangian of a constrained problem."""

import math
from typing import Any, NamedTuple

import gin
import jax
import jax.numpy as jnp
import optax

from lambda_kit import core
from lambda_kit import optimizers
from lambda_kit import types
from lambda_kit.baselines import surrogates
from lambda_kit.constraints import unconstrained


class PpoState(NamedTuple):
  optimizer: optax.OptState
  solver: Any


@gin.register
class Ppo(core.PolicyOptimizer[PpoState]):
  """Gradient steps on the clipped surrogate, until the policy has moved by some KL divergence.

  With a solver other than `Unconstrained` the objective is (J_clip - sum_i lambda_i J_i) / (1 + sum_i lambda_i), where
  the J_i are not clipped, and the multipliers take a step on the measured cost returns before the policy does.

  Args:
    solver: Of the constrained problem.
    clip: Ratios of probabilities count between 1 - clip and 1 + clip.
    iterations: Gradient steps at most.
    target_kl: KL divergence between the policies before and after the update.
    kl_margin: The update stops once the divergence is more than `kl_margin` times its target.
    learning_rate: Adam's.
    warmup: Gradient steps until Adam has that rate. Its first steps are of one size for all parameters, whatever their
      gradients are: at the full rate a single one of them leaves the trust region far behind.
    entropy_scale: Weight of the policy's entropy in the objective.
    batch_size: Steps drawn at random for each gradient step; None for all of them.
  """

  def __init__(self, solver: core.ConstraintSolver = unconstrained.Unconstrained(), clip: float = 0.2,
               iterations: int = 80, target_kl: float = 0.01, kl_margin: float = 1.2, learning_rate: float = 3e-4,
               warmup: int = 100, entropy_scale: float = 0.0, batch_size: int | None = None):
    if not (clip > 0.0 and target_kl > 0.0 and kl_margin > 0.0) or iterations < 1 or warmup < 0:
      raise ValueError(f'Ppo: clip={clip}, target_kl={target_kl} and kl_margin={kl_margin} must be positive, '
                       f'iterations={iterations} at least 1, and warmup={warmup} not negative.')
    self._solver = solver
    self._clip = clip
    self._iterations = iterations
    self._max_kl = kl_margin * target_kl
    self._entropy_scale = entropy_scale
    self._batch_size = batch_size
    rate = optax.warmup_constant_schedule(learning_rate / (1 + warmup), learning_rate, warmup)
    self._adam = optimizers.make_adam(rate, clip_norm=math.inf, eps=1e-8)

  def init(self, params: core.Params, num_constraints: int) -> PpoState:
    return PpoState(self._adam.init(params), self._solver.init(num_constraints))

  def update(self, state: PpoState, params: core.Params, apply: surrogates.Apply, batch: surrogates.Batch,
             costs: surrogates.EpisodeCosts, key: core.Key) -> tuple[PpoState, core.Params, dict[str, types.Array]]:
    solver_state = self._solver.update(state.solver, costs.cost_return, costs.limit)
    multipliers = self._solver.multipliers(solver_state)

    def loss(params: core.Params, batch: surrogates.Batch) -> tuple[types.Array, tuple[types.Array, types.Array]]:
      policy = apply(params, batch.observation)
      ratio = surrogates.ratios(policy, batch)
      objective = surrogates.clipped_surrogate(ratio, batch, self._clip)
      entropy = surrogates.weighted_mean(policy.entropy(), batch.weight)
      objective = surrogates.penalised(objective + self._entropy_scale * entropy,
                                       surrogates.cost_surrogates(ratio, batch), multipliers)
      return -objective, (surrogates.mean_kl(batch.weight, policy, batch.policy), entropy)

    def unfinished(carry):
      i, _, _, kl, *_ = carry
      return (i < self._iterations) & (kl <= self._max_kl)

    def body(carry):
      i, params, optimizer, *_ = carry
      # The divergence is that of the steps so far: once it is too large, this one is not taken any more.
      (value, (kl, entropy)), gradients = jax.value_and_grad(loss, has_aux=True)(
          params, surrogates.subset(batch, jax.random.fold_in(key, i), self._batch_size))
      changes, new_optimizer = self._adam.update(gradients, optimizer, params)
      proposal = (optax.apply_updates(params, changes), new_optimizer)
      params, optimizer = jax.tree.map(lambda new, old: jnp.where(kl <= self._max_kl, new, old), proposal,
                                       (params, optimizer))
      return i + 1, params, optimizer, kl, value, entropy

    zero = jnp.zeros(())
    taken, params, optimizer, kl, value, entropy = jax.lax.while_loop(
        unfinished, body, (jnp.zeros((), jnp.int32), params, state.optimizer, zero, zero, zero))
    metrics = dict(policy_loss=value, policy_kl=kl, entropy=entropy, policy_iterations=taken,
                   **{f'multiplier/{i}': multiplier for i, multiplier in enumerate(multipliers)})
    return PpoState(optimizer, solver_state), params, metrics
