"""Two ways to the same gradient of the policy: by differentiating all imagined trajectories, or only those that count.

The loss (`objective.lagrangian`) bounds the values of N models for each start state. An upper bound selects one model,
so that of the N S trajectories at most S count for the reward and S for each cost: the gradient of all others is zero.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, Protocol

import jax
import jax.numpy as jnp

import gin
from lambda_kit import core
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.agents.lambda_ import imagination
from lambda_kit.agents.lambda_ import objective


class PolicyGradient(Protocol):
  """A way to compute the gradient of `objective.lagrangian`."""

  chunk_size: int | None  # Start states that are worked on at once, by critics, too; None for all.

  def __call__(
    self, problem: objective.PolicyProblem, policy_params: core.Params, noise: imagination.Noise
  ) -> tuple[core.Params, objective.Outcome]:
    """The gradient with respect to the policy's parameters xi, and what critics and multipliers learn from."""

  def imagine(
    self, problem: objective.PolicyProblem, policy_params: core.Params, noise: imagination.Noise
  ) -> tuple[imagination.Imagined, objective.Estimates]:
    """All trajectories, [N, H, S, ...], and what they are worth, [N, S, H, ...]."""


@gin.register
class WholeGradient:
  """Imagines all N S trajectories at once, and differentiates all of them.

  For accelerators that have the memory: it grows with N S H, to 8 GB at the paper's sizes.

  Args:
    average_trajectories: Whether the N trajectories from a start state are averaged, step by step, before they are
      valued: the paper's greedy variant, with `MeanBound`. Otherwise each is valued by itself.
  """

  chunk_size: int | None = None

  def __init__(self, average_trajectories: bool = False):
    self._average_trajectories = average_trajectories

  def __call__(
    self, problem: objective.PolicyProblem, policy_params: core.Params, noise: imagination.Noise
  ) -> tuple[core.Params, objective.Outcome]:

    def loss_of(params):
      imagined, estimates = self.imagine(problem, params, noise)
      loss, (cost_values, metrics) = objective.lagrangian(problem, estimates)
      return loss, objective.Outcome(imagined.features, estimates, cost_values, metrics)

    return jax.grad(loss_of, has_aux=True)(policy_params)

  def imagine(
    self, problem: objective.PolicyProblem, policy_params: core.Params, noise: imagination.Noise
  ) -> tuple[imagination.Imagined, objective.Estimates]:
    return _imagine_parts(self._imagine_part, problem, policy_params, noise)

  def _imagine_part(
    self, problem: objective.PolicyProblem, policy_params: core.Params, noise: imagination.Noise
  ) -> tuple[imagination.Imagined, objective.Estimates]:
    """`imagine` on one device."""
    sample_action = imagination.policy_sampler(problem.policy, policy_params)

    independent = noise.action.shape[0] > 1
    imagine = lambda theta, noise: imagination.imagine(problem.world_model, theta, sample_action, problem.start, noise)
    imagined = jax.vmap(imagine, in_axes=(0, 0 if independent else None))(
      problem.samples, noise if independent else noise.of_model(0)
    )
    if self._average_trajectories:
      average = lambda x: jnp.broadcast_to(jnp.mean(x, axis=0, keepdims=True), x.shape)
      imagined = imagined._replace(features=average(imagined.features))
    estimate = lambda theta, imagined: objective.estimate(problem, theta, imagined.features, imagined.entropy)
    return imagined, jax.vmap(estimate)(problem.samples, imagined)


@gin.register
@ranges.checked
class SelectedGradient:
  """Imagines all N S trajectories without a gradient, then differentiates those that count, all of it in chunks.

  Memory doesn't grow with N S H but for the features of the trajectories, and chunks fit into caches. What counts is
  found from the loss itself, by its derivatives with respect to the N S values: so any bound and any solver will do.
  The trajectories that count are imagined a second time, for rewards and for costs each. With bounds that weigh all
  models, such as `MeanBound`, all of them count: then `WholeGradient` takes about half of the operations.

  Args:
    chunk_size: Start states, at most, that one model imagines at once.
    block_size: Start states, at most, that one model differentiates at once. No more than S / N in any case.
  """

  def __init__(self, chunk_size: ranges.Count = 160, block_size: ranges.Count = 48):
    self.chunk_size: int | None = chunk_size
    self._block_size = block_size

  def __call__(
    self, problem: objective.PolicyProblem, policy_params: core.Params, noise: imagination.Noise
  ) -> tuple[core.Params, objective.Outcome]:
    imagined, estimates = self.imagine(problem, policy_params, noise)
    coefficients, (cost_values, metrics) = jax.grad(functools.partial(objective.lagrangian, problem), has_aux=True)(
      estimates
    )
    # Few trajectories count for both, so each is spared the other's heads and critics.
    nothing = objective.Estimates(*(None for _ in coefficients))
    parts = [
      nothing._replace(values=coefficients.values, entropy=coefficients.entropy),
      nothing._replace(cost_values=coefficients.cost_values),
    ]
    gradients = [self._differentiate(problem, policy_params, imagined.actions, part, noise) for part in parts]
    outcome = objective.Outcome(imagined.features, estimates, cost_values, metrics)
    return jax.tree.map(jnp.add, *gradients), outcome

  def imagine(
    self, problem: objective.PolicyProblem, policy_params: core.Params, noise: imagination.Noise
  ) -> tuple[imagination.Imagined, objective.Estimates]:
    return _imagine_parts(self._imagine_part, problem, policy_params, noise)

  def _imagine_part(
    self, problem: objective.PolicyProblem, policy_params: core.Params, noise: imagination.Noise
  ) -> tuple[imagination.Imagined, objective.Estimates]:
    """`imagine` on one device."""
    sample_action = imagination.policy_sampler(problem.policy, policy_params)
    num_starts = noise.action.shape[2]
    size = min(self.chunk_size, num_starts)
    rows = _pad(jnp.arange(num_starts), size).reshape(-1, size)  # [chunks, size]

    def one_chunk(theta, model_noise, rows):
      start, chunk_noise = _take(problem.start, model_noise, rows)
      imagined = imagination.imagine(problem.world_model, theta, sample_action, start, chunk_noise)
      return imagined, objective.estimate(problem, theta, imagined.features, imagined.entropy)

    def one_model(inputs):
      theta, index = inputs
      model_noise = noise.of_model(index)
      imagined, estimates = jax.lax.map(lambda rows: one_chunk(theta, model_noise, rows), rows)
      join = lambda x: x.reshape((-1,) + x.shape[2:])[:num_starts]  # [chunks, size, ...] to [S, ...]
      imagined = jax.tree.map(lambda x: jnp.moveaxis(join(jnp.moveaxis(x, 2, 1)), 0, 1), imagined)
      return imagined, jax.tree.map(join, estimates)

    return jax.lax.map(one_model, (problem.samples, jnp.arange(jax.tree.leaves(problem.samples)[0].shape[0])))

  def _differentiate(
    self,
    problem: objective.PolicyProblem,
    policy_params: core.Params,
    actions: types.Array,
    coefficients: objective.Estimates,
    noise: imagination.Noise,
  ) -> core.Params:
    """The gradient with respect to xi of sum(coefficients * estimates), over trajectories that have any.

    Args:
      problem: What is given.
      policy_params: xi.
      actions: Of all trajectories, [N, H, S, A].
      coefficients: Derivatives of the loss with respect to some of the estimates, [N, S, H, ...], None for the others.
      noise: That which the trajectories were imagined with.
    """
    of_part = lambda start, *rest: self._differentiate_part(dataclasses.replace(problem, start=start), *rest)
    differentiate_parts = problem.devices.sum(of_part, in_axes=(0, None, 2, 1, 2))
    return differentiate_parts(problem.start, policy_params, actions, coefficients, noise)

  def _differentiate_part(
    self,
    problem: objective.PolicyProblem,
    policy_params: core.Params,
    actions: types.Array,
    coefficients: objective.Estimates,
    noise: imagination.Noise,
  ) -> core.Params:
    """`_differentiate` on one device."""
    any_of = lambda x: jnp.any(x != 0, axis=tuple(range(2, x.ndim)))
    counts = functools.reduce(jnp.logical_or, map(any_of, jax.tree.leaves(coefficients)))  # [N, S]
    num_models, num_starts = counts.shape
    size = min(self._block_size, -(-num_starts // num_models))  # Of a bound that selects, so many count for a model.
    # For each model first the start states that count, then the others, then fillers beyond the last.
    order = jax.vmap(lambda counts: _pad(jnp.argsort(~counts), size, num_starts))(counts)
    blocks = order.reshape(num_models, -1, size)  # [N, blocks, size]
    filled = jnp.arange(blocks.shape[1])[None] * size < jnp.sum(counts, axis=1, keepdims=True)  # [N, blocks]
    queue = jnp.argsort(~filled.reshape(-1))

    def add_block(i, gradient):
      model, block = jnp.divmod(queue[i], blocks.shape[1])
      rows = blocks[model, block]
      theta = jax.tree.map(lambda x: x[model], problem.samples)
      start, block_noise = _take(problem.start, noise.of_model(model), rows)
      # Fillers get coefficients of zero.
      weights = jax.tree.map(lambda x: x[model].at[rows].get(mode='fill', fill_value=0), coefficients)
      change = _block_gradient(problem, policy_params, theta, start, actions[model][:, rows], weights, block_noise)
      return jax.tree.map(jnp.add, gradient, change)

    zeros = jax.tree.map(jnp.zeros_like, policy_params)
    return jax.lax.fori_loop(0, jnp.sum(filled), add_block, zeros)


def default_gradient(num_samples: int) -> PolicyGradient:
  """The one with fewer operations for upper bounds and one constraint.

  In units of imagining S trajectories, differentiation being two of them: N for all without a gradient and 3 each for
  the S that count for rewards and for costs, beside 3 N for the whole. With N = 3 they are equal, and less memory wins.
  """
  return WholeGradient() if num_samples <= 2 else SelectedGradient()


def _imagine_parts(
  imagine_part: Callable[..., Any],
  problem: objective.PolicyProblem,
  policy_params: core.Params,
  noise: imagination.Noise,
) -> tuple[imagination.Imagined, objective.Estimates]:
  """Lets each device imagine from its start states."""
  of_part = lambda start, *rest: imagine_part(dataclasses.replace(problem, start=start), *rest)
  return problem.devices.map(of_part, in_axes=(0, None, 2), out_axes=(2, 1))(problem.start, policy_params, noise)


def _block_gradient(
  problem: objective.PolicyProblem,
  policy_params: core.Params,
  theta: core.Params,
  start: types.Nest,
  actions: types.Array,
  coefficients: objective.Estimates,
  noise: imagination.Noise,
) -> core.Params:
  """The gradient of sum(coefficients * estimates) for trajectories of one model, first to actions, then to xi.

  The policy sees states as constants (algorithm 3), so that its own gradient needs no loop over time.
  """

  def worth(actions):
    features = imagination.follow_actions(problem.world_model, theta, actions, start, noise.state)
    estimates = objective.estimate(problem, theta, features, jnp.zeros(actions.shape[:2]))
    pairs = [(weight, x) for weight, x in zip(coefficients, estimates) if weight is not None]
    return sum(jnp.sum(weight * x) for weight, x in pairs), features

  action_gradient, features = jax.grad(worth, has_aux=True)(actions)

  def surrogate(params):
    actions, entropy = imagination.policy_sampler(problem.policy, params)(features[:-1], noise.action)
    value = jnp.sum(action_gradient * actions)
    if coefficients.entropy is not None:
      value += jnp.sum(coefficients.entropy * jnp.swapaxes(entropy, 0, 1))
    return value

  return jax.grad(surrogate)(policy_params)


def _take(start: types.Nest, noise: imagination.Noise, rows: types.Array) -> tuple[Any, imagination.Noise]:
  """States and one model's noise of some start states; those of the last for rows beyond it."""
  return jax.tree.map(lambda x: x[rows], start), jax.tree.map(lambda x: x[:, rows], noise)


def _pad(rows: types.Array, multiple: int, filler: int = 0) -> types.Array:
  """Appends fillers until the length is a multiple."""
  return jnp.pad(rows, (0, -rows.shape[0] % multiple), constant_values=filler)
