"""The policy's loss and its gradients, computed in both ways, against closed forms on a linear model."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.agents.lambda_ import devices
from lambda_kit.agents.lambda_ import imagination
from lambda_kit.agents.lambda_ import objective as objective_lib
from lambda_kit.agents.lambda_ import policy_gradients
from lambda_kit.safety import augmented_lagrangian
from lambda_kit.safety import bounds
from lambda_kit.safety import feedback
from lambda_kit.safety import primal_dual
from lambda_kit.safety import recalibration
from lambda_kit.safety import unconstrained
from tests.fakes import linear

_GAMMA, _COST_GAMMA, _LAMBDA, _V, _VC = 0.9, 0.8, 0.7, 3.0, 5.0
_TARGET_V, _TARGET_VC = 7.0, 11.0


def _objective(solver=None, horizon=2, reward_bound=bounds.UpperBound(), cost_bound=bounds.UpperBound()):
  return objective_lib.Objective(
    reward_bound=reward_bound,
    cost_bound=cost_bound,
    solver=solver or unconstrained.Unconstrained(),
    budgets=jnp.array([1.0]),
    feedback=feedback.NoFeedback(),
    recalibration=recalibration.NoRecalibration(),
    discount=_GAMMA,
    cost_discount=_COST_GAMMA,
    lambda_=_LAMBDA,
    horizon=horizon,
    entropy_scale=0.0,
  )


@pytest.fixture(name='run', params=['whole', 'selected'])
def _run(request):
  """Maps k, models and starts to the gradient with respect to k, the outcome and the data of both kinds of critics.

  Critics are v(s) = 3 s and v_c(s) = 5 s, their targets 7 s and 11 s.
  """
  method = (
    policy_gradients.WholeGradient()
    if request.param == 'whole'
    else policy_gradients.SelectedGradient(chunk_size=2, block_size=1)
  )

  def run(k, thetas, starts, objective, solver_state=None, cost_factors=None, constrained=None, **models):
    problem = objective_lib.PolicyProblem(
      objective,
      1,
      linear.linear_policy,
      linear.LinearModel(),
      {'theta': jnp.asarray(thetas, jnp.float32)},
      jnp.asarray(starts, jnp.float32)[:, None],
      value=lambda features: _V * features[..., 0],
      cost_values=lambda features: _VC * features,
      target_value=lambda features: _TARGET_V * features[..., 0],
      target_cost_values=lambda features: _TARGET_VC * features,
      solver_state=objective.solver.init(1) if solver_state is None else solver_state,
      cost_factors=jnp.ones([objective.horizon, 1]) if cost_factors is None else jnp.array(cost_factors),
      constrained=jnp.ones(len(starts)) if constrained is None else jnp.array(constrained),
      devices=devices.Devices(),
      **models,
    )
    noise_key, select_key = jax.random.split(jax.random.PRNGKey(0))
    noise = imagination.draw_noise(noise_key, 1, objective.horizon, len(starts), num_actions=1, state_noise_size=1)
    gradient, outcome = method(problem, {'k': k}, noise)
    return gradient['k'], outcome, objective_lib.critic_data(problem, outcome, select_key)

  return run


def _values_by_hand(k, theta, s0, gamma, scale, v):
  """V_lambda(s_0), V_lambda(s_1) for H = 2 and reward `scale` s."""
  s1 = theta * s0 + k * s0
  s2 = theta * s1 + k * s1
  g1 = scale * s2 + gamma * v * s2
  g0 = scale * s1 + gamma * ((1 - _LAMBDA) * v * s1 + _LAMBDA * g1)
  return g0, g1


def test_the_loss_is_minus_the_mean_value(run):
  _, outcome, (critic, cost_critics) = run(0.5, [1.2], [2.0], _objective())
  g0, g1 = _values_by_hand(0.5, 1.2, 2.0, _GAMMA, 1.0, _V)
  assert outcome.metrics['policy_loss'] == pytest.approx(-(g0 + g1) / 2, rel=1e-5)
  # The policy bootstraps from the critic, the critic from its target.
  targets = _values_by_hand(0.5, 1.2, 2.0, _GAMMA, 1.0, _TARGET_V)
  np.testing.assert_allclose(critic.targets, [targets], rtol=1e-5)
  # The critic is trained on s_0 = 2 and s_1 = (1.2 + 0.5) 2.
  np.testing.assert_allclose(critic.features[0, :, 0], [2.0, 3.4], rtol=1e-5)
  c0, c1 = _values_by_hand(0.5, 1.2, 2.0, _COST_GAMMA, 2.0, _VC)
  assert outcome.cost_values[0] == pytest.approx((c0 + c1) / 2, rel=1e-5)
  cost_targets = _values_by_hand(0.5, 1.2, 2.0, _COST_GAMMA, 2.0, _TARGET_VC)
  np.testing.assert_allclose(cost_critics.targets, [[cost_targets]], rtol=1e-5)


def test_expected_costs_are_multiplied_by_the_factor_of_their_step(run):
  """Costs 2 s_1 and 2 s_2 count 3 and 5 times, for the policy and for what critics learn; rewards do not."""
  factors = (3.0, 5.0)
  _, outcome, (_, cost_critics) = run(0.5, [1.2], [2.0], _objective(), cost_factors=[[f] for f in factors])
  s1, s2 = 1.7 * 2.0, 1.7**2 * 2.0

  def values(v):
    g1 = factors[1] * 2 * s2 + _COST_GAMMA * v * s2
    g0 = factors[0] * 2 * s1 + _COST_GAMMA * ((1 - _LAMBDA) * v * s1 + _LAMBDA * g1)
    return g0, g1

  assert outcome.cost_values[0] == pytest.approx(sum(values(_VC)) / 2, rel=1e-5)
  np.testing.assert_allclose(cost_critics.targets, [[values(_TARGET_VC)]], rtol=1e-5)
  assert outcome.metrics['objective'] == pytest.approx(
    sum(_values_by_hand(0.5, 1.2, 2.0, _GAMMA, 1.0, _V)) / 2, rel=1e-5
  )


def test_no_gradient_through_the_state_that_the_policy_sees(run):
  """Algorithm 3: with a_1 = k stop_gradient(s_1), ds_1/dk = s_0 and ds_2/dk = theta s_0 + s_1, without + k s_0."""
  k, theta, s0 = 0.5, 1.2, 2.0
  gradient, _, _ = run(k, [theta], [s0], _objective())
  s1 = (theta + k) * s0
  ds1, ds2 = s0, theta * s0 + s1
  dg1 = (1 + _GAMMA * _V) * ds2
  dg0 = ds1 + _GAMMA * ((1 - _LAMBDA) * _V * ds1 + _LAMBDA * dg1)
  assert gradient == pytest.approx(-(dg0 + dg1) / 2, rel=1e-5)
  leaking = -((1 + _GAMMA * _V) * (ds2 + k * s0))
  assert abs(gradient - leaking) > 0.1


def test_actions_count_only_through_the_states_that_follow(run):
  """The last action a_{H-1} matters through s_H: with H = 1, J = (1 + gamma v) s_1 and dJ/dk = (1 + gamma v) s_0."""
  gradient, _, _ = run(0.3, [1.0], [2.0], _objective(horizon=1))
  assert gradient == pytest.approx(-(1 + _GAMMA * _V) * 2.0, rel=1e-5)


def test_each_start_state_selects_its_own_sample(run):
  """With s_0 > 0 the largest theta gives most, with s_0 < 0 the smallest; for rewards and costs alike."""
  thetas, starts = [0.5, 1.5, 1.0], [1.0, -1.0]
  _, outcome, (critic, _) = run(0.0, thetas, starts, _objective())
  best = [_values_by_hand(0.0, 1.5, 1.0, _GAMMA, 1.0, _V), _values_by_hand(0.0, 0.5, -1.0, _GAMMA, 1.0, _V)]
  targets = [
    _values_by_hand(0.0, 1.5, 1.0, _GAMMA, 1.0, _TARGET_V),
    _values_by_hand(0.0, 0.5, -1.0, _GAMMA, 1.0, _TARGET_V),
  ]
  np.testing.assert_allclose(critic.targets, targets, rtol=1e-5)
  assert outcome.metrics['policy_loss'] == pytest.approx(-np.mean(best), rel=1e-5)
  np.testing.assert_allclose(critic.features[:, 1, 0], [1.5, -0.5], rtol=1e-5)  # s_1 of the selected samples.
  # Costs 2 s' with safety critics 5 s select by the same sign.
  costs = [
    _values_by_hand(0.0, 1.5, 1.0, _COST_GAMMA, 2.0, _VC),
    _values_by_hand(0.0, 0.5, -1.0, _COST_GAMMA, 2.0, _VC),
  ]
  assert outcome.cost_values[0] == pytest.approx(np.mean(costs), rel=1e-5)


def test_critics_may_learn_from_any_sample(run):
  """Of 200 equal start states about half learn from each of two samples, whatever the bound selects."""
  selected, anyone = (
    run(0.0, [0.5, 1.5], [1.0] * 200, dataclasses.replace(_objective(), bounded_critics=bounded))[2]
    for bounded in (True, False)
  )
  for kind in (0, 1):
    firsts = [np.ravel(data[kind].features[..., 1, 0]) for data in (selected, anyone)]
    np.testing.assert_allclose(firsts[0], 1.5)
    assert set(firsts[1]) == {0.5, 1.5} and 70 <= np.sum(firsts[1] == 1.5) <= 130


def test_reward_and_cost_select_independently(run):
  """An optimistic reward with an optimistic (lower) cost takes different samples for the two."""
  _, _, (critic, cost_critics) = run(0.0, [0.5, 1.5], [1.0], _objective(cost_bound=bounds.LowerBound()))
  np.testing.assert_allclose(critic.features[0, 1, 0], 1.5)
  np.testing.assert_allclose(cost_critics.features[0, 0, 1, 0], 0.5)


def test_rewards_may_be_bounded_over_the_first_models_alone(run):
  """The largest of all thetas is for costs alone, the first and smallest for rewards."""
  thetas, k = [0.5, 1.0, 1.5], 0.3
  solver = primal_dual.PrimalDual()
  state = jax.tree.map(lambda x: jnp.full_like(x, 2.0), solver.init(1))
  gradient, outcome, (critic, cost_critics) = run(
    k, thetas, [1.0], _objective(solver=solver, horizon=1), state, num_reward_models=1
  )
  # As above, with s_0 = 1: dJ/dk = 1 + 0.9 * 3 and dJ_c/dk = 2 + 0.8 * 5, whatever theta.
  assert gradient == pytest.approx(-(1 + _GAMMA * _V) + 2 * (2 + _COST_GAMMA * _VC), rel=1e-5)
  assert outcome.metrics['objective'] == pytest.approx((1 + _GAMMA * _V) * (0.5 + k), rel=1e-5)
  assert outcome.cost_values[0] == pytest.approx((2 + _COST_GAMMA * _VC) * (1.5 + k), rel=1e-5)
  np.testing.assert_allclose(critic.targets, [[(1 + _GAMMA * _TARGET_V) * (0.5 + k)]], rtol=1e-5)
  np.testing.assert_allclose(cost_critics.targets, [[[(2 + _COST_GAMMA * _TARGET_VC) * (1.5 + k)]]], rtol=1e-5)


def test_the_penalty_enters_the_gradient(run):
  """loss = -J + lambda (J_c - d): at lambda = 2 the gradient is -dJ/dk + 2 dJ_c/dk."""
  solver = primal_dual.PrimalDual()
  state = jax.tree.map(lambda x: jnp.full_like(x, 2.0), solver.init(1))
  objective = _objective(solver=solver, horizon=1)
  gradient, _, _ = run(0.3, [1.0], [2.0], objective, state)
  # dJ/dk = (1 + 0.9 * 3) 2 and dJ_c/dk = (2 + 0.8 * 5) 2.
  assert gradient == pytest.approx(-(1 + _GAMMA * _V) * 2 + 2 * (2 + _COST_GAMMA * _VC) * 2, rel=1e-5)


def test_budgets_are_for_the_constrained_start_states_alone(run):
  """lambda + mu (J_c - d) with the J_c of the second start state; its derivative is that of all."""
  solver = augmented_lagrangian.AugmentedLagrangian(initial_multiplier=2.0, initial_penalty_factor=0.5)
  gradient, outcome, _ = run(0.3, [1.0], [2.0, 4.0], _objective(solver=solver, horizon=1), constrained=[0.0, 1.0])
  cost_slope = 2 + _COST_GAMMA * _VC  # J_c = (theta + k) s_0 slope.
  cost_value = 1.3 * 4.0 * cost_slope
  assert outcome.cost_values[0] == pytest.approx(cost_value, rel=1e-5)
  multiplier = 2.0 + 0.5 * (cost_value - 1.0)
  assert gradient == pytest.approx(-(1 + _GAMMA * _V) * 3 + multiplier * cost_slope * 3, rel=1e-5)


def test_critic_data_carry_no_gradient(run):
  def total(k):
    _, _, (critic, cost_critics) = run(k, [1.2], [2.0], _objective())
    return jnp.sum(critic.targets) + jnp.sum(critic.features) + jnp.sum(cost_critics.targets)

  assert jax.jvp(total, (0.5,), (1.0,))[1] == 0


def test_terminations_weigh_what_follows():
  # The episode goes on with probability 0.5 in s_1 and 0.1 in s_2: s_0 is certain, s_1 counts half.
  np.testing.assert_allclose(objective_lib.discounted_weights(jnp.array([0.5, 0.1])), [1.0, 0.5])


class _NoisyModel(linear.LinearModel):
  def imagine_step(self, params, state, action, noise):
    return super().imagine_step(params, state, action, noise) + noise


@pytest.mark.parametrize('num_draws', [1, 2])
@pytest.mark.parametrize('method', [policy_gradients.WholeGradient(), policy_gradients.SelectedGradient(2, 1)])
def test_models_share_their_noise_or_have_their_own(method, num_draws):
  """Two models with equal weights imagine equal trajectories if they share their noise, and only then."""
  problem = objective_lib.PolicyProblem(
    _objective(horizon=4),
    1,
    linear.linear_policy,
    _NoisyModel(),
    {'theta': jnp.ones([2])},
    jnp.ones((3, 1)),
    value=lambda features: features[..., 0],
    cost_values=lambda features: features,
    target_value=lambda features: features[..., 0],
    target_cost_values=lambda features: features,
    solver_state=None,
    cost_factors=jnp.ones([4, 1]),
    constrained=jnp.ones(3),
    devices=devices.Devices(),
  )
  noise = imagination.draw_noise(
    jax.random.PRNGKey(1), num_draws, horizon=4, num_starts=3, num_actions=1, state_noise_size=1
  )
  imagined, _ = method.imagine(problem, {'k': 0.5}, noise)
  assert imagined.features.shape == (2, 5, 3, 1)
  assert len(np.unique(imagined.features[:, -1])) == 3 * num_draws


def test_average_trajectories_are_valued_instead_of_each():
  """The paper's greedy variant, of two models and a reward of s^2: the square of the mean, not the mean of squares."""

  class Squares(linear.LinearModel):
    def predict(self, params, features):
      predictions = super().predict(params, features)
      return predictions._replace(reward=features[..., 0] ** 2)

  problem = objective_lib.PolicyProblem(
    _objective(horizon=1),
    1,
    linear.linear_policy,
    Squares(),
    {'theta': jnp.array([1.0, 3.0])},
    jnp.ones((1, 1)),
    value=lambda features: 0.0 * features[..., 0],
    cost_values=lambda features: 0.0 * features,
    target_value=lambda features: features[..., 0],
    target_cost_values=lambda features: features,
    solver_state=None,
    cost_factors=jnp.ones([1, 1]),
    constrained=jnp.ones(1),
    devices=devices.Devices(),
  )
  noise = imagination.draw_noise(jax.random.PRNGKey(1), 1, horizon=1, num_starts=1, num_actions=1, state_noise_size=1)
  value = lambda average: jnp.mean(
    policy_gradients.WholeGradient(average).imagine(problem, {'k': 0.0}, noise)[1].values
  )
  assert value(False) == pytest.approx((1.0**2 + 3.0**2) / 2)
  assert value(True) == pytest.approx(2.0**2)


def test_horizons_below_one_are_refused(run):
  with pytest.raises(ValueError, match='horizon'):
    run(0.0, [1.0], [1.0], _objective(horizon=0))
