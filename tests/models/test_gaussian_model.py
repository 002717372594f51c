"""The feed-forward world model."""

import functools

from absl.testing import absltest
import jax
import jax.numpy as jnp
import numpy as np
import optax

from lambda_kit.models import gaussian_model
from lambda_kit.models import heads
from tests.fakes import models as fakes

B, L, C = 2, 4, 2
SPEC = {'vector': fakes.VECTOR}


def make_model(num_constraints: int = C, **kwargs) -> gaussian_model.FeedForwardWorldModel:
  small = functools.partial
  settings = {
    'reward_factory': small(heads.NormalHead, hidden_sizes=(16,)),
    'cost_factory': small(heads.BernoulliCost, hidden_sizes=(16,)),
    'terminal_factory': small(heads.BernoulliHead, hidden_sizes=(16,)),
    'hidden_sizes': (16,),
  }
  return gaussian_model.FeedForwardWorldModel(SPEC, fakes.ACTION_SPEC, num_constraints, 1, **{**settings, **kwargs})


def _make_params(model, batch):
  shapes = jax.eval_shape(model.init, jax.random.key(0), batch)
  rng = np.random.default_rng(0)
  return jax.tree.map(lambda x: rng.normal(scale=0.3, size=x.shape).astype(np.float32), shapes)


class FeedForwardWorldModelTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._model = make_model()
    self._batch = fakes.random_batch(SPEC, B, L, C)
    self._params = _make_params(self._model, self._batch)

  def test_states_are_observations_and_filtering_finds_them(self):
    _, output = jax.jit(self._model.loss)(self._params, self._batch, jax.random.key(0))
    np.testing.assert_array_equal(output.states.vector, self._batch.observation['vector'])
    state = self._model.initial_state(B)
    for t in range(L):
      now = jax.tree.map(lambda x, t=t: x[:, t], self._batch)
      state = self._model.filter(self._params, state, now.action, now.observation, jax.random.key(t))
      for actual, expected in zip(state, output.states):
        np.testing.assert_allclose(actual, expected[:, t], rtol=1e-6)
    features = self._model.features(output.states)
    self.assertEqual(features.shape, (B, L, 5 + 5 + 2))
    np.testing.assert_array_equal(
      self._model.decode(self._params, features)['vector'], self._batch.observation['vector']
    )

  def test_loss_is_the_likelihood_of_what_imagination_draws(self):
    # The mean and stddev of draws are those that the loss scores changes with.
    state = gaussian_model.State(
      *(x[:1, 0] for x in (self._batch.observation['vector'], self._batch.observation['vector'], self._batch.action))
    )
    action = self._batch.action[:1, 1]
    draw = lambda noise: self._model.imagine_step(self._params, state, action, noise)
    draws = jax.jit(jax.vmap(draw))(jax.random.normal(jax.random.key(0), (10_000, 1, self._model.noise_size)))
    np.testing.assert_allclose(draws.vector, state.vector[None] + draws.change, rtol=1e-5, atol=1e-5)
    mean, stddev = draws.change.mean(0)[0], draws.change.std(0)[0]
    vector = self._batch.observation['vector'][0, :2]
    error = (vector[1] - vector[0] - mean) / stddev
    expected = np.sum(-0.5 * error**2 - np.log(stddev) - 0.5 * np.log(2.0 * np.pi))
    one_step = jax.tree.map(lambda x: x[:1, :2], self._batch)
    _, output = self._model.loss(self._params, one_step, jax.random.key(0))
    np.testing.assert_allclose(output.metrics['vector_log_prob'], expected, rtol=0.03)

  def test_loss_sums_its_parts(self):
    model = make_model(reward_scale=3.0)
    loss, output = jax.jit(model.loss)(self._params, self._batch, jax.random.key(0))
    log_prob = {name: output.metrics[f'{name}_log_prob'] for name in ('vector', 'reward', 'cost', 'terminal')}
    np.testing.assert_allclose(loss, -sum(log_prob.values()) - 2.0 * log_prob['reward'], rtol=1e-5)
    predictions = model.predict(self._params, model.features(output.states))
    np.testing.assert_allclose(
      output.metrics['reward_mse'], np.mean((predictions.reward - self._batch.reward)[:, 1:] ** 2), rtol=1e-4
    )

  def test_members_lose_the_same_on_each_sequence(self):
    loss, output = self._model.loss(self._params, self._batch, jax.random.key(0))
    found = self._model.member_loss(self._params, output, self._batch, jax.random.key(0))
    self.assertEqual(found.shape, (B,))
    np.testing.assert_allclose(found.mean(), loss, rtol=1e-5)
    first = jax.tree.map(lambda x: x[:1], (output._replace(metrics={}), self._batch))
    np.testing.assert_allclose(self._model.member_loss(self._params, *first, jax.random.key(0)), found[:1], rtol=1e-5)

  def test_imagination_is_differentiable_in_actions(self):
    state = jax.tree.map(lambda x: x + 0.1, self._model.initial_state(B))

    @jax.jit
    @jax.grad
    def gradient(actions):
      step = self._model.imagine_step(
        self._model.imagination_params(self._params), state, actions, jnp.zeros((B, self._model.noise_size))
      )
      return self._model.predict(self._params, self._model.features(step)).reward.sum()

    self.assertTrue(np.all(gradient(jnp.zeros((B, 2))) != 0.0))

  def test_learns_linear_dynamics(self):
    # x' = x + 0.5 [a, a, a_0] and the reward is the sum of the change, which x' alone doesn't tell.
    rng = np.random.default_rng(0)
    action = rng.uniform(-1.0, 1.0, (32, 10, 2)).astype(np.float32)
    action[:, 0] = 0.0
    change = 0.5 * np.concatenate([action, action, action[..., :1]], axis=-1)
    vector = rng.normal(size=(32, 1, 5)).astype(np.float32) + change.cumsum(1)
    batch = fakes.random_batch(SPEC, 32, 10, C)._replace(
      observation={'vector': vector}, action=action, reward=change.sum(-1)
    )
    optimizer = optax.adam(1e-2)

    @jax.jit
    def train(params):

      def step(carry, key):
        params, state = carry
        gradients, output = jax.grad(self._model.loss, has_aux=True)(params, batch, key)
        updates, state = optimizer.update(gradients, state)
        return (optax.apply_updates(params, updates), state), output.metrics

      return jax.lax.scan(step, (params, optimizer.init(params)), jax.random.split(jax.random.key(0), 300))[1]

    metrics = train(self._params)
    self.assertLess(metrics['vector_mse'][-1], 0.01 * np.mean(change**2))
    self.assertLess(metrics['reward_mse'][-1], 0.05 * np.var(batch.reward))

  def test_wrong_settings(self):
    with self.assertRaisesRegex(ValueError, "FeedForwardWorldModel models the observation 'vector'"):
      gaussian_model.FeedForwardWorldModel({'image': fakes.IMAGE}, fakes.ACTION_SPEC, 1, 1)
    with self.assertRaisesRegex(ValueError, 'at least 2 observations'):
      self._model.loss(self._params, jax.tree.map(lambda x: x[:, :1], self._batch), jax.random.key(0))


if __name__ == '__main__':
  absltest.main()
