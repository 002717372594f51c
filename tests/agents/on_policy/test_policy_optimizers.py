"""PPO, TRPO and the multipliers, on data whose answers are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.agents.on_policy import gaussian
from lambda_kit.agents.on_policy import ppo
from lambda_kit.agents.on_policy import surrogates
from lambda_kit.agents.on_policy import trpo
from lambda_kit.models import normalizer
from lambda_kit.safety import softplus
from tests.fakes import on_policy as fakes


def _update(method, networks, params, batch, costs, num_constraints=1):
  state = method.init(params, num_constraints)
  return jax.jit(
    lambda params: method.update(state, params, networks.policy.apply, batch, costs, jax.random.PRNGKey(0))
  )(params)


def test_gaussian_against_hand_numbers():
  policy = gaussian.DiagonalGaussian(jnp.array([1.0, 0.0]), jnp.log(jnp.array([2.0, 1.0])))
  # log N(3; 1, 2) = -log 2 - 0.5 log 2 pi - 0.5; log N(1; 0, 1) = -0.5 log 2 pi - 0.5.
  assert policy.log_prob(jnp.array([3.0, 1.0])) == pytest.approx(-np.log(2.0) - np.log(2.0 * np.pi) - 1.0)
  # KL(N(1, 2) || N(0, 1)) = -log 2 + (4 + 1) / 2 - 0.5; the other entry is the same in both.
  other = gaussian.DiagonalGaussian(jnp.zeros(2), jnp.zeros(2))
  assert policy.kl_divergence(other) == pytest.approx(-np.log(2.0) + 2.0)


def test_observations_are_centred_and_not_blown_up():
  vectors = np.random.default_rng(0).normal(size=(5000, 3)).astype(np.float32) * [0.0, 0.1, 5.0] + [9.81, 0.5, -2.0]
  spec = {'vector': jax.ShapeDtypeStruct((3,), np.float32)}
  statistics = normalizer.update(normalizer.init(spec), {'vector': vectors.astype(np.float32)})
  result = gaussian.normalize(statistics, {'vector': vectors.astype(np.float32)})['vector']
  np.testing.assert_allclose(result.mean(axis=0), np.zeros(3), atol=1e-3)
  np.testing.assert_allclose(result.std(axis=0), [0.0, 0.1, 1.0], atol=5e-3)


def test_clipping():
  _, _, batch = fakes.policy_and_batch(num_steps=4)
  batch = batch._replace(advantage=jnp.array([1.0, 1.0, -1.0, -1.0]))
  ratio = jnp.array([1.5, 0.5, 1.5, 0.5])
  # min(1.5, 1.2), min(0.5, 0.8), min(-1.5, -1.2), min(-0.5, -0.8).
  assert surrogates.clipped_surrogate(ratio, batch, 0.2) == pytest.approx((1.2 + 0.5 - 1.5 - 0.8) / 4)


def test_the_lagrangian_against_hand_numbers():
  # (2 - 0.5 * 1 - 1.5 * 3) / (1 + 0.5 + 1.5)
  found = surrogates.penalised(jnp.float32(2.0), jnp.array([1.0, 3.0]), jnp.array([0.5, 1.5]))
  assert found == pytest.approx(-1.0)


def test_what_has_no_weight_does_not_count():
  values, weights = jnp.array([1.0, 3.0, 100.0]), jnp.array([1.0, 1.0, 0.0])
  np.testing.assert_allclose(surrogates.standardise(values, weights, scale=False), [-1.0, 1.0, 98.0])
  np.testing.assert_allclose(surrogates.standardise(values, weights, scale=True)[:2], [-1.0, 1.0], rtol=1e-5)


def test_softplus_multipliers_against_hand_numbers():
  solver = softplus.SoftplusLagrangian(initial_multiplier=1.0, learning_rate=0.05)
  state = solver.init(2)
  np.testing.assert_allclose(solver.multipliers(state), [1.0, 1.0], rtol=1e-6)
  # softplus^-1(1) = log(e - 1) = 0.541325. Adam's first step is +-0.05: up where costs are over, down where under.
  state = solver.update(state, jnp.array([30.0, 20.0]), jnp.array([25.0, 25.0]))
  np.testing.assert_allclose(state.raw, [0.591325, 0.491325], rtol=1e-4)
  np.testing.assert_allclose(solver.multipliers(state), np.log1p(np.exp([0.591325, 0.491325])), rtol=1e-4)
  # The second step, for the first: gradients -5 and +3. m = 0.9 (0.1 (-5)) + 0.1 (3) = -0.15, over 1 - 0.81;
  # v = 0.999 (0.001 25) + 0.001 9 = 0.033975, over 1 - 0.998001. Change 0.05 * 0.78947 / 4.12266 = 0.0095748.
  state = solver.update(state, jnp.array([22.0, 20.0]), jnp.array([25.0, 25.0]))
  assert state.raw[0] == pytest.approx(0.591325 + 0.0095748, abs=1e-5)
  unchanged = solver.update(state, jnp.array([jnp.nan, 20.0]), jnp.array([25.0, 25.0]))
  np.testing.assert_array_equal(unchanged.raw, state.raw)


def test_ppo_stops_once_the_policy_has_moved_far_enough():
  networks, params, batch = fakes.policy_and_batch(num_steps=300)
  costs = fakes.episode_costs(0.0, 5.0)
  divergence = lambda params: surrogates.mean_kl(
    batch.weight, networks.policy.apply(params, batch.observation), batch.policy
  )
  _, new_params, metrics = _update(ppo.Ppo(iterations=5, learning_rate=1e-5), networks, params, batch, costs)
  assert metrics['policy_iterations'] == 5 and divergence(new_params) < 1e-4
  fast = ppo.Ppo(iterations=500, learning_rate=1e-2, target_kl=0.01, kl_margin=1.2)
  _, new_params, metrics = _update(fast, networks, params, batch, costs)
  assert metrics['policy_kl'] == pytest.approx(float(divergence(new_params)), rel=1e-4)
  # It stops right after the step that went too far: one step less is still within the bound.
  steps = int(metrics['policy_iterations'])
  assert 1 < steps < 500 and divergence(new_params) > 0.012
  _, before, _ = _update(ppo.Ppo(iterations=steps - 1, learning_rate=1e-2), networks, params, batch, costs)
  assert divergence(before) <= 0.012


def test_the_fisher_matrix_is_that_of_each_so_many_th_step():
  networks, params, batch = fakes.policy_and_batch(num_steps=300)
  costs = fakes.episode_costs(0.0, 5.0)
  thinned = surrogates.thin(batch, 3)
  np.testing.assert_array_equal(thinned.action, np.asarray(batch.action)[np.arange(0, 300, 3)])
  steps = {every: _update(trpo.Trpo(fisher_every=every), networks, params, batch, costs)[1] for every in (1, 3)}
  assert any(not np.array_equal(x, y) for x, y in zip(jax.tree.leaves(steps[1]), jax.tree.leaves(steps[3])))
  with pytest.raises(ValueError, match='Trpo.fisher_every = 0 should be'):
    trpo.Trpo(fisher_every=0)


def test_ppo_raises_its_objective():
  networks, params, batch = fakes.policy_and_batch(num_steps=300)
  _, new_params, _ = _update(ppo.Ppo(learning_rate=3e-3), networks, params, batch, fakes.episode_costs(0.0, 5.0))
  ratio = surrogates.ratios(networks.policy.apply(new_params, batch.observation), batch)
  assert surrogates.surrogate(ratio, batch) > 0.01


@pytest.mark.parametrize('size', [None, 64])
@pytest.mark.parametrize('method', [ppo.Ppo, trpo.Trpo])
def test_large_multipliers_make_costs_fall(method, size):
  networks, params, batch = fakes.policy_and_batch(num_steps=300, num_constraints=2)
  options = dict(learning_rate=3e-3, batch_size=size) if method is ppo.Ppo else {}
  solver = softplus.SoftplusLagrangian(initial_multiplier=20.0)
  _, new_params, metrics = _update(
    method(solver, **options), networks, params, batch, fakes.episode_costs([50.0, 50.0], [5.0, 5.0]), num_constraints=2
  )
  ratio = surrogates.ratios(networks.policy.apply(new_params, batch.observation), batch)
  assert jnp.sum(surrogates.cost_surrogates(ratio, batch)) < -0.005
  assert metrics['multiplier/0'] == pytest.approx(20.05, abs=1e-3)  # Softplus is nearly the identity there.


def test_trpo_steps_to_the_border_of_the_trust_region():
  networks, params, batch = fakes.policy_and_batch(num_steps=300)
  _, new_params, metrics = _update(trpo.Trpo(damping=1e-4), networks, params, batch, fakes.episode_costs(0.0, 5.0))
  new = networks.policy.apply(new_params, batch.observation)
  divergence = float(surrogates.mean_kl(batch.weight, new, batch.policy))
  assert 0.5 * 0.01 < divergence <= 0.01 and metrics['policy_kl'] == pytest.approx(divergence, rel=1e-4)
  assert surrogates.surrogate(surrogates.ratios(new, batch), batch) > 0


def test_trpo_stays_where_no_step_is_acceptable():
  networks, params, batch = fakes.policy_and_batch(num_steps=30)
  broken = batch._replace(advantage=batch.advantage.at[0].set(jnp.nan))
  _, new_params, metrics = _update(trpo.Trpo(), networks, params, broken, fakes.episode_costs(0.0, 5.0))
  assert metrics['step_fraction'] == 0
  jax.tree.map(lambda new, old: np.testing.assert_array_equal(np.isfinite(new), np.isfinite(old)), new_params, params)


@pytest.mark.parametrize(
  'build',
  [
    lambda: ppo.Ppo(clip=0.0),
    lambda: ppo.Ppo(iterations=0),
    lambda: trpo.Trpo(shrinkage=1.0),
    lambda: trpo.Trpo(target_kl=-1.0),
    lambda: softplus.SoftplusLagrangian(initial_multiplier=0.0),
  ],
)
def test_settings_that_make_no_sense_are_refused(build):
  with pytest.raises(ValueError, match=' should be '):
    build()
