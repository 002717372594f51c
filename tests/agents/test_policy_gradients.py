"""The gradient of the trajectories that count against that of all trajectories, on real networks."""

import functools

from dm_env import specs as dm_specs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.agents.lambda_ import devices
from lambda_kit.agents.lambda_ import imagination
from lambda_kit.agents.lambda_ import networks as networks_lib
from lambda_kit.agents.lambda_ import objective as objective_lib
from lambda_kit.agents.lambda_ import policy_gradients
from lambda_kit.models import world_model
from lambda_kit.policies import critic
from lambda_kit.policies import squashed_gaussian
from lambda_kit.safety import augmented_lagrangian
from lambda_kit.safety import bounds
from lambda_kit.safety import feedback
from lambda_kit.safety import pid
from lambda_kit.safety import recalibration
from tests.fakes import specs

_N, _S, _C = 3, 10, 2
_SPEC = specs.make(observations={'vector': dm_specs.Array((4,), np.float32)}, cost_limits=(25.0,) * _C)


@functools.lru_cache
def _networks():
  model = functools.partial(world_model.RecurrentWorldModel, stochastic_size=3, deterministic_size=8, hidden_size=8)
  return networks_lib.make_networks(
    _SPEC,
    model,
    functools.partial(squashed_gaussian.SquashedGaussianPolicy, hidden_sizes=(8,), init_std=1.0),
    functools.partial(critic.Critic, hidden_sizes=(8,)),
    functools.partial(critic.Critic, hidden_sizes=(8,)),
  )


@functools.lru_cache
def _given():
  """Parameters of N models that disagree, of the policy and of critics, and start states."""
  networks = _networks()
  batch = networks_lib.example_batch(_SPEC)
  keys = jax.random.split(jax.random.PRNGKey(0), _N + 4)
  models = [networks.world_model.imagination_params(networks.world_model.init(key, batch)) for key in keys[:_N]]
  start = networks.world_model.initial_state(_S)
  start = jax.tree.map(lambda x: jax.random.normal(keys[-1], x.shape), start)
  return (
    jax.tree.map(lambda *x: jnp.stack(x), *models),
    start,
    networks.policy.init(keys[-2], networks.feature_size),
    networks.critic.init(keys[-3], networks.feature_size),
    networks.cost_critics.init(keys[-4], networks.feature_size),
  )


def _run(method, reward_bound, cost_bound, solver, entropy_scale=0.0, budgets=(-0.5, 0.5), num_draws=_N):
  networks = _networks()
  samples, start, policy, critic_params, cost_params = _given()
  objective = objective_lib.Objective(
    reward_bound,
    cost_bound,
    solver,
    jnp.array(budgets),
    feedback.NoFeedback(),
    recalibration.NoRecalibration(),
    discount=0.9,
    cost_discount=0.95,
    lambda_=0.8,
    horizon=4,
    entropy_scale=entropy_scale,
  )
  problem = objective_lib.PolicyProblem(
    objective,
    2,
    networks.policy.apply,
    networks.world_model,
    samples,
    start,
    value=lambda features: networks.critic.apply(critic_params, features),
    cost_values=lambda features: networks.cost_critics.apply(cost_params, features),
    target_value=lambda features: 2.0 * networks.critic.apply(critic_params, features),
    target_cost_values=lambda features: 2.0 * networks.cost_critics.apply(cost_params, features),
    solver_state=solver.init(_C),
    cost_factors=jnp.linspace(0.5, 2.0, 4 * _C).reshape(4, _C),
    constrained=(jnp.arange(_S) < _S // 2).astype(jnp.float32),
    devices=devices.Devices(),
  )

  @jax.jit
  def run(policy, key):
    noise_key, select_key = jax.random.split(key)
    noise = imagination.draw_noise(
      noise_key, num_draws, 4, _S, num_actions=2, state_noise_size=networks.world_model.noise_size
    )
    gradient, outcome = method(problem, policy, noise)
    return gradient, outcome, objective_lib.critic_data(problem, outcome, select_key)

  return run(policy, jax.random.PRNGKey(3))


def _assert_equal(result, expected):
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-6), result, expected)


# Of rewards and costs, bounds that select one model, all, or weigh them; chunks that divide the start states, leave a
# rest, and exceed them.
_BOUNDS = (
  (bounds.UpperBound(), bounds.LowerBound()),
  (bounds.MeanBound(), bounds.UpperBound()),
  (bounds.MeanPlusStdBound(0.5), bounds.UpperBound()),
  (bounds.UpperBound(), bounds.UpperBound()),
)
_SIZES = ((1, 1), (7, 4), (10, 400))


@pytest.mark.parametrize(
  'reward_bound, cost_bound, sizes',
  [
    pytest.param(*pair, sizes, id=f'{type(pair[0]).__name__}-{sizes}', marks=[] if i == j else pytest.mark.slow)
    for i, pair in enumerate(_BOUNDS)
    for j, sizes in enumerate(_SIZES)
  ],
)
def test_selected_trajectories_have_the_whole_gradient(reward_bound, cost_bound, sizes):
  solver = augmented_lagrangian.AugmentedLagrangian(initial_multiplier=(0.3, 0.7), initial_penalty_factor=0.1)
  run = functools.partial(_run, reward_bound=reward_bound, cost_bound=cost_bound, solver=solver)
  expected = run(policy_gradients.WholeGradient())
  _assert_equal(run(policy_gradients.SelectedGradient(*sizes)), expected)
  assert all(np.any(leaf != 0) for leaf in jax.tree.leaves(expected[0]))


def test_entropy_and_another_solver():
  run = functools.partial(
    _run, reward_bound=bounds.UpperBound(), cost_bound=bounds.MeanBound(), solver=pid.PidLagrangian(), entropy_scale=0.1
  )
  _assert_equal(run(policy_gradients.SelectedGradient(4, 3)), run(policy_gradients.WholeGradient()))


def test_only_trajectories_that_count_are_differentiated(monkeypatch):
  """With costs within their budgets and no multiplier, each start state counts with one of N models."""
  blocks = []
  one_block = policy_gradients._block_gradient
  monkeypatch.setattr(
    policy_gradients,
    '_block_gradient',
    lambda *args: (
      jax.debug.callback(lambda coefficients: blocks.append(np.any(coefficients != 0)), args[5].values),
      one_block(*args),
    )[1],
  )
  solver = augmented_lagrangian.AugmentedLagrangian(initial_multiplier=0.0, initial_penalty_factor=0.1)
  result = _run(
    policy_gradients.SelectedGradient(_S, 1), bounds.UpperBound(), bounds.UpperBound(), solver, budgets=(99.0, 99.0)
  )
  jax.block_until_ready(result)
  assert blocks == [True] * _S


@pytest.mark.parametrize('chunk_size', [3, 5, 10])
def test_critics_learn_the_same_in_chunks(chunk_size):
  """Start states that chunks divide, or not; weights that differ between chunks."""
  apply, params = _networks().critic.apply, _given()[3]
  keys = jax.random.split(jax.random.PRNGKey(5), 3)
  data = objective_lib.CriticData(
    features=jax.random.normal(keys[0], (_S, 4, _networks().feature_size)),
    targets=jax.random.normal(keys[1], (_S, 4)),
    weights=jax.random.uniform(keys[2], (_S, 4)) * jnp.arange(_S)[:, None],
  )
  run = lambda chunk_size: jax.jit(lambda params, data: objective_lib.critic_gradient(params, apply, data, chunk_size))(
    params, data
  )
  _assert_equal(run(chunk_size), run(None))


def test_sizes_below_one_are_refused():
  with pytest.raises(ValueError, match='block_size'):
    policy_gradients.SelectedGradient(block_size=0)


def test_few_samples_are_differentiated_as_a_whole():
  kinds = [type(policy_gradients.default_gradient(count)) for count in (1, 2, 3, 5)]
  assert kinds == [policy_gradients.WholeGradient] * 2 + [policy_gradients.SelectedGradient] * 2
