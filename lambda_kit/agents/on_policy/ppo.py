"""Proximal policy optimisation (Schulman et al., 2017), alone or on the Lagrangian of a constrained problem."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import gin
from lambda_kit import core
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.agents import naming
from lambda_kit.agents.on_policy import interfaces
from lambda_kit.agents.on_policy import surrogates
from lambda_kit.models import optimizers
from lambda_kit.safety import unconstrained


class PpoState(NamedTuple):
  optimizer: optax.OptState
  solver: Any


class _Progress(NamedTuple):
  """The state of an update in progress."""

  params: core.Params
  optimizer: optax.OptState
  steps: types.Array  # [] int32, taken so far.
  kl: types.Array  # [], before the last step taken or considered.


@gin.register
@ranges.checked
class Ppo(interfaces.PolicyOptimizer[PpoState]):
  """Gradient steps on the clipped surrogate, until the KL divergence from the initial policy is too large.

  The step that goes too far is kept, as in safety-starter-agents.

  With a solver other than `Unconstrained` the objective is (J_clip - sum_i lambda_i J_i) / (1 + sum_i lambda_i), where
  the J_i are not clipped, and the multipliers take a step on the measured cost returns before the policy does.

  Args:
    solver: Solver of the constrained problem.
    clip: Probability ratios are clipped to [1 - clip, 1 + clip].
    iterations: The maximum number of gradient steps.
    target_kl: KL divergence between the policies before and after the update.
    kl_margin: An update ends once the divergence exceeds `kl_margin` times its target.
    learning_rate: Adam's.
    entropy_scale: Weight of the policy's entropy in the objective.
    batch_size: Steps drawn at random for each gradient step; None for all of them.
  """

  def __init__(
    self,
    solver: core.ConstraintSolver = unconstrained.Unconstrained(),
    clip: ranges.Positive = 0.2,
    iterations: ranges.Count = 80,
    target_kl: ranges.Positive = 0.01,
    kl_margin: ranges.Positive = 1.2,
    learning_rate: ranges.Positive = 3e-4,
    entropy_scale: ranges.NotNegative = 0.0,
    batch_size: ranges.Count | None = None,
  ):
    self._solver = solver
    self._clip = clip
    self._iterations = iterations
    self._max_kl = kl_margin * target_kl
    self._entropy_scale = entropy_scale
    self._batch_size = batch_size
    self._adam = optimizers.make_adam(learning_rate, clip_norm=math.inf, eps=1e-8)

  @property
  def display_name(self) -> str:
    return naming.with_solver('PPO', self._solver)

  def init(self, params: core.Params, num_constraints: int) -> PpoState:
    return PpoState(self._adam.init(params), self._solver.init(num_constraints))

  def update(
    self,
    state: PpoState,
    params: core.Params,
    apply: surrogates.Apply,
    batch: surrogates.Batch,
    costs: surrogates.EpisodeCosts,
    key: core.Key,
  ) -> tuple[PpoState, core.Params, dict[str, types.Array]]:
    solver_state = self._solver.update(state.solver, costs.cost_return, costs.limit)
    multipliers = self._solver.multipliers(solver_state)

    def loss(params: core.Params, batch: surrogates.Batch) -> tuple[types.Array, tuple[types.Array, types.Array]]:
      policy = apply(params, batch.observation)
      ratio = surrogates.ratios(policy, batch)
      objective = surrogates.clipped_surrogate(ratio, batch, self._clip)
      entropy = surrogates.weighted_mean(policy.entropy(), batch.weight)
      objective = surrogates.penalised(
        objective + self._entropy_scale * entropy, surrogates.cost_surrogates(ratio, batch), multipliers
      )
      return -objective, (surrogates.mean_kl(batch.weight, policy, batch.policy), entropy)

    def unfinished(progress: _Progress) -> types.Array:
      return (progress.steps < self._iterations) & (progress.kl <= self._max_kl)

    def body(progress: _Progress) -> _Progress:
      part = surrogates.subset(batch, jax.random.fold_in(key, progress.steps), self._batch_size)
      (_, (kl, _)), gradients = jax.value_and_grad(loss, has_aux=True)(progress.params, part)
      changes, optimizer = self._adam.update(gradients, progress.optimizer, progress.params)
      stepped = _Progress(optax.apply_updates(progress.params, changes), optimizer, progress.steps + 1, kl)
      return jax.tree.map(lambda new, old: jnp.where(kl <= self._max_kl, new, old), stepped, progress._replace(kl=kl))

    progress = jax.lax.while_loop(
      unfinished, body, _Progress(params, state.optimizer, jnp.zeros((), jnp.int32), jnp.zeros(()))
    )
    before, _ = loss(params, batch)
    after, (kl, entropy) = loss(progress.params, batch)
    metrics = dict(
      policy_loss=before,
      policy_loss_after=after,
      policy_kl=kl,
      entropy=entropy,
      policy_iterations=progress.steps,
      **{f'multiplier/{i}': multiplier for i, multiplier in enumerate(multipliers)},
    )
    return PpoState(progress.optimizer, solver_state), progress.params, metrics
