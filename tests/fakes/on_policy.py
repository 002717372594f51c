"""Small policies with data for them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from lambda_kit.agents.on_policy import gaussian
from lambda_kit.agents.on_policy import surrogates
from lambda_kit.environments import grid_cmdp
from tests.fakes import specs


class Line(grid_cmdp.GridCmdp):
  """The room's observations, with one action instead of two: for shapes only."""

  def action_spec(self):
    return super().action_spec().replace(shape=(1,))


def policy_and_batch(num_steps: int, num_constraints: int = 1, num_actions: int = 1, seed: int = 0):
  """Networks, parameters, and a batch of that many steps: random observations, actions and advantages."""
  environment = {1: Line, 2: grid_cmdp.GridCmdp}[num_actions](seed=0, num_constraints=num_constraints)
  networks = gaussian.make_networks(
    specs.of(environment),
    functools.partial(gaussian.GaussianPolicy, hidden_sizes=(4,)),
    functools.partial(gaussian.ObservationCritic, hidden_sizes=(4,)),
  )
  params = networks.policy.init(jax.random.PRNGKey(seed))
  rng = np.random.default_rng(seed)
  observation = {'vector': jnp.asarray(rng.normal(size=(num_steps, 2)), jnp.float32)}
  policy = networks.policy.apply(params, observation)
  action = policy.sample(jax.random.PRNGKey(seed + 1))
  weight = jnp.ones(num_steps)
  cost_advantage = rng.normal(size=(num_steps, num_constraints)).astype(np.float32)
  batch = surrogates.Batch(
    observation,
    action,
    surrogates.standardise(jnp.asarray(rng.normal(size=num_steps), jnp.float32), weight, True),
    jnp.asarray(cost_advantage - cost_advantage.mean(0, keepdims=True)),
    weight,
    policy,
    policy.log_prob(action),
  )
  return networks, params, batch


def episode_costs(cost_return, limit, length=100.0) -> surrogates.EpisodeCosts:
  return surrogates.EpisodeCosts(
    jnp.atleast_1d(jnp.float32(cost_return)), jnp.atleast_1d(jnp.float32(limit)), jnp.float32(length)
  )
