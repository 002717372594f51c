"""Conjugate gradients and Fisher products against dense algebra."""

import jax
from jax import flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.agents.on_policy import surrogates
from lambda_kit.agents.on_policy import trust_region
from tests.fakes import on_policy as fakes


@pytest.mark.parametrize('seed', range(5))
def test_conjugate_gradients_solve_dense_systems(seed):
  rng = np.random.default_rng(seed)
  root = rng.normal(size=(8, 8))
  matrix = root @ root.T + np.eye(8)
  target = rng.normal(size=8)
  solve = jax.jit(lambda target: trust_region.conjugate_gradients(lambda v: matrix.astype(np.float32) @ v, target, 30))
  np.testing.assert_allclose(solve(target.astype(np.float32)), np.linalg.solve(matrix, target), rtol=1e-3, atol=1e-4)


def test_conjugate_gradients_of_zero_are_zero():
  found = trust_region.conjugate_gradients(lambda v: 2.0 * v, jnp.zeros(3), 10)
  np.testing.assert_array_equal(found, np.zeros(3))


def test_as_many_iterations_as_were_asked_for():
  matrix, target = np.diag(np.arange(1.0, 7.0)).astype(np.float32), np.ones(6, np.float32)
  # One iteration is a step of steepest descent: alpha = b^T b / b^T H b = 6 / 21.
  found = trust_region.conjugate_gradients(lambda v: matrix @ v, target, 1)
  np.testing.assert_allclose(found, np.full(6, 6 / 21), rtol=1e-6)


def test_fisher_products_are_those_of_the_dense_hessian_of_the_kl_divergence():
  networks, params, batch = fakes.policy_and_batch(num_steps=7)
  weight = jnp.arange(7.0)
  flat, unflatten = flatten_util.ravel_pytree(params)
  outputs = lambda flat: networks.policy.apply(unflatten(flat), batch.observation)
  kl = lambda new, old: surrogates.mean_kl(weight, new, old)
  current = outputs(flat)
  hessian = jax.hessian(lambda flat: kl(outputs(flat), current))(flat)
  # The Fisher matrix as its definition has it: E[s s^T], the expectation over actions by quadrature (A = 1).
  nodes, probabilities = np.polynomial.hermite_e.hermegauss(20)
  score = lambda node: jax.jacobian(
    lambda flat: outputs(flat).log_prob(current.mean + jnp.exp(current.log_std) * node)
  )(flat)
  scores = jax.jit(jax.vmap(score))(jnp.asarray(nodes, jnp.float32))
  fisher = jnp.einsum('n,m,nmp,nmq->pq', probabilities / probabilities.sum(), weight / weight.sum(), scores, scores)
  product = jax.jit(trust_region.fisher_product(outputs, kl, flat, damping=0.1))
  for vector in np.random.default_rng(0).normal(size=(3, flat.size)).astype(np.float32):
    np.testing.assert_allclose(product(vector), hessian @ vector + 0.1 * vector, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(product(vector), fisher @ vector + 0.1 * vector, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize('largest, fraction', [(2.0, 1.0), (0.7, 0.64), (0.45, 0.0), (0.1, 0.0)])
def test_line_search_takes_the_first_acceptable_fraction(largest, fraction):
  # 1, 0.8, 0.64, 0.512: at most four trials, so that 0.8^4 = 0.4096 is not found.
  assert jax.jit(lambda: trust_region.backtrack(lambda step: step <= largest, 4, 0.8))() == pytest.approx(fraction)
