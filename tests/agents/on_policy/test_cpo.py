"""CPO's dual against a numeric solver in every case, and its steps against what they promise."""

import jax
import numpy as np
import pytest
from scipy import optimize

from lambda_kit.agents.on_policy import cpo
from lambda_kit.agents.on_policy import surrogates
from tests.fakes import on_policy as fakes

_DELTA = 0.01


def _problem(seed, case):
  """A random problem min g^T x s.t. c + b^T x <= 0, x^T H x <= 2 delta of the given case: (g, b, H, c)."""
  rng = np.random.default_rng((seed, case))
  root = rng.normal(size=(4, 4))
  matrix = root @ root.T + 0.1 * np.eye(4)
  g, b = rng.normal(size=(2, 4))
  if seed % 3 == 0:
    b = -0.9 * g + 0.1 * b  # What earns reward costs.
  # The half-space touches the trust region at |c| = sqrt(2 delta s).
  reach = np.sqrt(2.0 * _DELTA * b @ np.linalg.solve(matrix, b))
  low, high = {cpo.RECOVER: (1.05, 3.0), cpo.RETURN: (0.05, 0.95), cpo.STAY: (-0.95, -0.05), cpo.FREE: (-3.0, -1.05)}[
    case
  ]
  return g, b, matrix, reach * rng.uniform(low, high)


def _step(g, b, matrix, c):
  v, w = np.linalg.solve(matrix, g), np.linalg.solve(matrix, b)
  dual = jax.jit(cpo.solve_dual, static_argnums=4)(*(np.float32(x) for x in (g @ v, g @ w, b @ w, c)), _DELTA)
  if dual.case == cpo.RECOVER:
    return dual, -float(dual.nu) * w
  return dual, -(v + float(dual.nu) * w) / float(dual.lambda_)


def _solve(objective, g, b, matrix, c, with_cost):
  trust = dict(type='ineq', fun=lambda x: 2.0 * _DELTA - x @ matrix @ x, jac=lambda x: -2.0 * matrix @ x)
  cost = dict(type='ineq', fun=lambda x: -(c + b @ x), jac=lambda x: -b)
  start = -np.linalg.solve(matrix, b) * np.sqrt(_DELTA / (b @ np.linalg.solve(matrix, b)))
  found = optimize.minimize(
    lambda x: objective @ x,
    start,
    jac=lambda x: objective,
    method='SLSQP',
    constraints=[trust, cost] if with_cost else [trust],
    options=dict(ftol=1e-12, maxiter=500),
  )
  assert found.success, found.message
  return found.fun


@pytest.mark.parametrize('case', [cpo.RETURN, cpo.STAY, cpo.FREE])
@pytest.mark.parametrize('seed', range(12))
def test_the_dual_solves_feasible_problems(case, seed):
  g, b, matrix, c = _problem(seed, case)
  dual, step = _step(g, b, matrix, c)
  assert dual.case == case and dual.nu >= 0
  scale = np.sqrt(2.0 * _DELTA * g @ np.linalg.solve(matrix, g))
  assert g @ step == pytest.approx(_solve(g, g, b, matrix, c, with_cost=True), abs=2e-3 * scale)
  assert step @ matrix @ step <= 2.0 * _DELTA * 1.001
  assert c + b @ step <= 1e-3 * abs(c)


@pytest.mark.parametrize('seed', range(12))
def test_without_a_safe_step_the_cost_falls_as_far_as_it_can(seed):
  g, b, matrix, c = _problem(seed, cpo.RECOVER)
  dual, step = _step(g, b, matrix, c)
  assert dual.case == cpo.RECOVER and dual.lambda_ == 0
  expected = _solve(b, g, b, matrix, c, with_cost=False)
  assert b @ step == pytest.approx(expected, rel=1e-3) and c + expected > 0  # Still not safe.


def test_both_branches_of_the_dual_are_met():
  """Constraints that bind (nu > 0) and that don't (nu = 0), where the half-space cuts the trust region."""
  binding = {
    (case, bool(_step(*_problem(seed, case))[0].nu > 0)) for case in (cpo.RETURN, cpo.STAY) for seed in range(12)
  }
  assert {(cpo.RETURN, True), (cpo.STAY, True), (cpo.STAY, False)} <= binding


@pytest.mark.parametrize('c', [0.0, 1e-12])
def test_exactly_on_the_limit_the_step_does_not_raise_the_cost(c):
  g, b = np.array([1.0, 0.5]), np.array([-1.0, 0.0])  # The best step would: it is along -g.
  dual, step = _step(g, b, np.eye(2), c)
  assert dual.nu > 0 and b @ step <= 1e-6
  np.testing.assert_allclose(step, [0.0, -np.sqrt(2.0 * _DELTA)], atol=1e-4)


def test_a_cost_without_gradient_leaves_trpo():
  dual = cpo.solve_dual(np.float32(2.0), np.float32(0.0), np.float32(0.0), np.float32(-0.1), _DELTA)
  assert dual.case == cpo.FREE and dual.nu == 0
  assert dual.lambda_ == pytest.approx(np.sqrt(2.0 / (2.0 * _DELTA)), rel=1e-5)


# The gap to the limit, in cost of an episode of 100 steps, decides the case.
@pytest.mark.parametrize('gap, case', [(1000.0, cpo.RECOVER), (0.5, cpo.RETURN), (-0.5, cpo.STAY), (-1000.0, cpo.FREE)])
def test_updates_keep_what_they_promise(gap, case):
  networks, params, batch = fakes.policy_and_batch(num_steps=200, num_actions=2)
  method = cpo.Cpo(damping=0.01)
  state = method.init(params, 1)
  update = jax.jit(
    lambda params: method.update(
      state, params, networks.policy.apply, batch, fakes.episode_costs(5.0 + gap, 5.0), jax.random.PRNGKey(0)
    )
  )
  _, new_params, metrics = update(params)
  assert metrics['cpo_case'] == case and metrics['step_fraction'] > 0
  new = networks.policy.apply(new_params, batch.observation)
  ratio = surrogates.ratios(new, batch)
  assert 1e-4 < surrogates.mean_kl(batch.weight, new, batch.policy) <= 0.01
  rise = surrogates.cost_surrogates(ratio, batch)[0]
  assert rise <= max(-gap / 100.0, 0.0) + 1e-6
  if case >= cpo.STAY:
    assert surrogates.surrogate(ratio, batch) >= -1e-6
  else:
    assert rise < 0


def test_more_than_one_constraint_is_refused():
  with pytest.raises(ValueError, match='one constraint.*the task has 2.*ppo_lagrangian'):
    cpo.Cpo().init({}, 2)
