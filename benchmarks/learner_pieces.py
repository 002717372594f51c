"""The learner of a size, ready to be run on made-up data, and the pieces of its update one by one."""

from collections.abc import Callable, Mapping, Sequence
import inspect
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import flops
from benchmarks import stand_ins
from lambda_kit import core
from lambda_kit import types
from lambda_kit.agents.lambda_ import imagination as imagination_lib
from lambda_kit.agents.lambda_ import objective as objective_lib
from lambda_kit.agents.lambda_ import update as update_lib
from lambda_kit.models import batch_loss
from lambda_kit.posteriors import swag


class Piece(NamedTuple):
  """A function to compile and time."""

  function: Callable[..., Any]
  arguments: tuple[Any, ...]
  flop: int
  carries: bool = False  # Whether the result is the first argument of the next call, which is then donated.


class Subject(NamedTuple):
  """A learner's update, ready to be run."""

  update: Any  # As the learner compiled it: maps (state, batch) to (state, metrics), and donates the state.
  state: update_lib.LearnerState
  batch: types.Trajectory
  flop: int
  pieces: Callable[[update_lib.LearnerState], dict[str, Piece]]  # Pieces of the update, of a state that they copy.


def make_subject(size: stand_ins.Size, search_paths: Sequence[str]) -> Subject:
  """Builds the learner as an experiment does, from a seed, with a batch from a replay of random numbers.

  SWAG is set to have its snapshots, as it has from update 4,500 on: before, sampling costs nothing.

  Args:
    size: What to build.
    search_paths: Folders where gin files are looked up.
  """
  builder, environment = stand_ins.make_builder(size, search_paths)
  replay = builder.make_replay(environment_steps=1, seed=0)
  replay.add(stand_ins.random_episode(environment, 2 * replay.sequence_length, np.random.default_rng(0)))
  dataset: Any = builder.make_dataset(replay)
  learner: Any = builder.make_learner(dataset, seed=0)
  batch = next(dataset.batches(1))
  state = learner.save()
  state = state._replace(posterior=_with_snapshots(state.posterior))

  update = learner._update
  parts = inspect.getclosurevars(update.__wrapped__).nonlocals  # What the learner was made of, by name.
  num_starts = parts['num_start_states'] or batch.reward.size
  batch_size, length = batch.reward.shape
  model = parts['networks'].world_model
  num_decoded = batch_size * min(model._decoded_steps or length, length)
  ahead = min(model._overshooting_steps, length - 1)
  num_overshot = batch_size * ahead * min(model._overshooting_starts, length - ahead)
  counts = flops.learner(
    jax.eval_shape(parts['posterior'].current, state.posterior),
    state.policy.params,
    state.critic.params,
    state.cost_critics.params,
    image_size=size.observations.get('image', (0,))[0],
    num_states=batch_size * length,
    num_decoded=num_decoded,
    num_overshot=num_overshot,
    num_starts=num_starts,
    num_samples=parts['num_samples'],
    horizon=parts['objective'].horizon,
    num_columns=len(state.posterior.moments.columns) if isinstance(state.posterior, swag.SwagState) else 0,
  )
  return Subject(
    update,
    state,
    batch,
    counts['update'],
    lambda state: _pieces(parts, jax.tree.map(jnp.copy, state), batch, num_starts, counts),
  )


def _pieces(
  parts: Mapping[str, Any],
  state: update_lib.LearnerState,
  batch: types.Trajectory,
  num_starts: int,
  counts: Mapping[str, int],
) -> dict[str, Piece]:
  """The update of `update.make_update` in pieces, each with inputs of the same shapes."""
  networks, posterior, objective = parts['networks'], parts['posterior'], parts['objective']
  key = jax.random.PRNGKey(0)
  sample = lambda posterior_state, key: posterior.sample(posterior_state, key, parts['num_samples'])

  def model(posterior_state, batch, key):
    return posterior.update(posterior_state, batch_loss.BatchLoss(networks.world_model, batch), key)[0]

  def make_problem(samples, start, state, key):
    problem = objective_lib.PolicyProblem(
      objective,
      networks.spec.num_actions,
      networks.policy.apply,
      networks.world_model,
      samples,
      start,
      value=lambda features: networks.critic.apply(state.critic.params, features),
      cost_values=lambda features: networks.cost_critics.apply(state.cost_critics.params, features),
      target_value=lambda features: networks.critic.apply(state.target_critic, features),
      target_cost_values=lambda features: networks.cost_critics.apply(state.target_cost_critics, features),
      solver_state=state.solver,
      cost_factors=update_lib.cost_factors(networks, objective)(state),
      constrained=jnp.ones(num_starts),
      devices=parts['devices'],
    )
    noise = imagination_lib.draw_noise(
      key,
      1 if parts['shared_noise'] else parts['num_samples'],
      objective.horizon,
      num_starts,
      networks.spec.num_actions,
      networks.world_model.noise_size,
    )
    return problem, noise

  def imagine(params, samples, start, state, key):
    problem, noise = make_problem(samples, start, state, key)
    return parts['policy_gradient'].imagine(problem, params, noise)

  def policy_gradient(params, samples, start, state, key):
    problem, noise = make_problem(samples, start, state, key)
    gradient, outcome = parts['policy_gradient'](problem, params, noise)
    return gradient, objective_lib.critic_data(problem, outcome, key)

  def critics(params, cost_params, data, cost_data):
    gradient = lambda params, apply, data: objective_lib.critic_gradient(
      params, apply, data, parts['policy_gradient'].chunk_size
    )
    each = jax.vmap(lambda params, data: gradient(params, networks.single_cost_critic, data))
    return gradient(params, networks.critic.apply, data), each(cost_params, cost_data)

  def optimize(modules, gradients):
    updated = []
    for optimizer, module, gradient in zip(parts['optimizers'], modules, gradients):
      changes, optimizer_state = optimizer.update(gradient, module.optimizer, module.params)
      updated.append(update_lib.Module(optax.apply_updates(module.params, changes), optimizer_state))
    return tuple(updated)

  # Numbers don't matter for time, shapes do.
  start = _random_like(networks.world_model.initial_state(num_starts), key)
  nothing: Any = ()
  shared = state._replace(posterior=nothing, policy=nothing)
  imagination = (state.policy.params, jax.jit(sample)(state.posterior, key), start, shared, key)
  _, (critic_data, cost_critic_data) = jax.eval_shape(policy_gradient, *imagination)
  modules = (state.policy, state.critic, state.cost_critics)
  gradients = _random_like(tuple(module.params for module in modules), key)
  return {
    'model update': Piece(model, (jax.tree.map(jnp.copy, state.posterior), batch, key), counts['model'], carries=True),
    'posterior sampling': Piece(sample, (state.posterior, key), counts['sampling']),
    'imagination with values': Piece(imagine, imagination, counts['imagination']),
    'policy gradient, imagination included': Piece(policy_gradient, imagination, counts['policy_gradient']),
    'critics': Piece(
      critics,
      (
        state.critic.params,
        state.cost_critics.params,
        _random_like(critic_data, key),
        _random_like(cost_critic_data, key),
      ),
      counts['critics'],
    ),
    'optimisers of policy and critics': Piece(optimize, (jax.tree.map(jnp.copy, modules), gradients), 0, carries=True),
  }


def _with_snapshots(state: Any) -> Any:
  """Lets SWAG sample around its current parameters. Other posteriors are ready as they are.

  Snapshots differ by random numbers: bounds over equal models would all select the first.
  """
  if not isinstance(state, swag.SwagState):
    return state
  moments = state.moments
  mean = jax.tree.map(jnp.copy, state.params)  # Copies: a buffer can't be donated twice.
  columns = jax.tree.map(lambda x: 0.05 * x, _random_like(moments.columns, jax.random.PRNGKey(1)))
  return state._replace(
    moments=moments._replace(mean=mean, columns=columns, num_snapshots=jnp.asarray(len(moments.columns), jnp.int32))
  )


def _random_like(tree: types.Nest, key: core.Key) -> types.Nest:
  """Normal numbers in the shapes of `tree`."""
  leaves, structure = jax.tree.flatten(tree)
  keys = jax.random.split(key, len(leaves))
  return jax.tree.unflatten(structure, [jax.random.normal(key, x.shape, x.dtype) for key, x in zip(keys, leaves)])
