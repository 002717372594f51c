"""The recurrent world model: its loss by hand, and what the interface promises."""

import functools

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

import gin
from lambda_kit.models import distributions
from lambda_kit.models import draws
from lambda_kit.models import rssm
from lambda_kit.models import world_model
from tests.fakes import models as fakes

B, L, C = 2, 3, 2
S, D = 3, 4  # Of `fakes.make_model`.
SPECS = {
  'image': {'image': fakes.IMAGE},
  'vector': {'vector': fakes.VECTOR},
  'both': {'image': fakes.IMAGE, 'vector': fakes.VECTOR},
}


def _make_params(model, batch, seed: int = 0):
  """Random parameters, biases included."""
  shapes = jax.eval_shape(model.init, jax.random.key(0), batch)
  rng = np.random.default_rng(seed)
  return jax.tree.map(lambda x: rng.normal(scale=0.3, size=x.shape).astype(np.float32), shapes)


def _noise(seed: int):
  return jax.random.normal(jax.random.key(seed), (B, S))


def _states(shape=(B,), seed: int = 0):
  rng = np.random.default_rng(seed)
  return rssm.State(*(rng.normal(size=shape + (size,)).astype(np.float32) for size in (S, D)))


class BalancedKlTest(parameterized.TestCase):
  """One element with one variable: q = N(1, 0.5), p = N(0, 2).

  KL = log(2 / 0.5) + (0.25 + 1) / 8 - 1/2 = 1.38629 + 0.15625 - 0.5 = 1.04254.
  """

  POSTERIOR = distributions.Gaussian(jnp.array([[1.0]]), jnp.array([[0.5]]))
  PRIOR = distributions.Gaussian(jnp.array([[0.0]]), jnp.array([[2.0]]))

  @parameterized.parameters(0.0, 0.5, 0.8, 1.0)
  def test_the_value_does_not_depend_on_the_balance(self, balance):
    loss, kl = world_model.balanced_kl(self.POSTERIOR, self.PRIOR, balance, free_nats=0.0)
    np.testing.assert_allclose([loss, kl], [1.04254] * 2, rtol=1e-5)

  def test_gradients_are_split(self):
    # d/dm_q = (m_q - m_p) / s_p^2 = 1/4           d/ds_q = s_q / s_p^2 - 1 / s_q = 0.125 - 2 = -1.875
    # d/dm_p = -1/4      d/ds_p = 1 / s_p - (s_q^2 + (m_q - m_p)^2) / s_p^3 = 0.5 - 1.25 / 8 = 0.34375
    gradient = jax.grad(lambda q, p: world_model.balanced_kl(q, p, 0.8, free_nats=0.0)[0], argnums=(0, 1))
    posterior, prior = gradient(self.POSTERIOR, self.PRIOR)
    np.testing.assert_allclose([posterior.mean.item(), posterior.stddev.item()], [0.2 * 0.25, 0.2 * -1.875], rtol=1e-5)
    np.testing.assert_allclose([prior.mean.item(), prior.stddev.item()], [0.8 * -0.25, 0.8 * 0.34375], rtol=1e-5)

  def test_free_nats_apply_to_the_mean(self):
    # Means 0 and 4 of unit Gaussians, against 0: KLs of 0 and 8, on average 4.
    posterior = distributions.Gaussian(jnp.array([[0.0], [4.0]]), jnp.ones((2, 1)))
    prior = distributions.Gaussian(jnp.zeros((2, 1)), jnp.ones((2, 1)))
    gradient = jax.value_and_grad(world_model.balanced_kl, has_aux=True)
    (loss, kl), gradients = gradient(posterior, prior, 0.8, 3.0)
    np.testing.assert_allclose([loss, kl], [4.0, 4.0])
    np.testing.assert_allclose(gradients.mean, [[0.0], [0.2 * 4.0 / 2]], rtol=1e-6)
    (loss, kl), gradients = gradient(posterior, prior, 0.8, 5.0)
    np.testing.assert_allclose([loss, kl], [5.0, 4.0])
    np.testing.assert_array_equal(gradients.mean, np.zeros((2, 1)))


class DecodedStepsTest(absltest.TestCase):
  """Observations of some steps of each sequence stand for all."""

  def test_the_likelihood_is_that_of_the_drawn_steps(self):
    model = fakes.make_model(SPECS['image'], decoded_steps=2)
    batch = fakes.random_batch(SPECS['image'], B, L, C)
    params, key = _make_params(model, batch), jax.random.key(1)
    output = jax.jit(model.loss)(params, batch, key)[1]
    errors = batch.observation['image'] / 255.0 - 0.5 - model.decode(params, model.features(output.states))['image']
    steps = draws.random_steps(jax.random.split(key)[1], B, L, 2)
    chosen = np.stack([errors[i, steps[i]] for i in range(B)])
    log_prob = (-0.5 * chosen**2 - 0.5 * np.log(2.0 * np.pi)).sum((2, 3, 4)).mean()
    np.testing.assert_allclose(output.metrics['image_log_prob'], log_prob, rtol=1e-5)
    np.testing.assert_allclose(output.metrics['image_mse'], (chosen**2).mean(), rtol=1e-5)

  def test_all_steps_are_the_elbo(self):
    batch = fakes.random_batch(SPECS['both'], B, L, C)
    whole = fakes.make_model(SPECS['both'])
    params, key = _make_params(whole, batch), jax.random.key(1)
    expected = whole.loss(params, batch, jax.random.split(key)[0])[0]
    for count in (L, L + 1):
      some = fakes.make_model(SPECS['both'], decoded_steps=count)
      np.testing.assert_allclose(some.loss(params, batch, key)[0], expected, rtol=1e-5)

  def test_each_step_is_as_likely_as_any_other(self):
    steps = np.asarray(draws.random_steps(jax.random.key(0), 3_000, 5, 2))
    self.assertTrue(np.all(steps[:, 0] != steps[:, 1]))
    # 1,200 of 3,000 sequences, with a standard deviation of sqrt(3,000 0.4 0.6) = 27.
    np.testing.assert_allclose(np.bincount(steps.ravel(), minlength=5), 1_200, atol=4 * 27)

  def test_refuses_none(self):
    with self.assertRaisesRegex(ValueError, 'decoded_steps = 0 should be a whole number, 1 or more'):
      fakes.make_model(SPECS['image'], decoded_steps=0)


class OvershootingTest(absltest.TestCase):
  """Recorded actions are followed from inferred states on, and what came is what is to be expected."""

  def setUp(self):
    super().setUp()
    self._length, self._steps, self._starts = 6, 3, 2
    self._spec = SPECS['vector']
    self._batch = fakes.random_batch(self._spec, B, self._length, C)
    self._plain = fakes.make_model(self._spec)
    self._model = fakes.make_model(
      self._spec, overshooting_steps=self._steps, overshooting_starts=self._starts, reward_scale=7.0
    )
    self._params = _make_params(self._plain, self._batch)

  def _draws(self, key):
    return draws.draw(key, B, self._length, S, None, self._steps, self._starts)

  def test_likelihoods_are_those_of_imagined_steps_one_by_one(self):
    key = jax.random.key(1)
    output = jax.jit(self._model.loss)(self._params, self._batch, key)[1]
    starts, noise = self._draws(key).overshooting
    errors = []
    for row in range(B):
      for i, start in enumerate(np.asarray(starts[row])):
        state = jax.tree.map(lambda x: x[row, start], output.states)  # noqa: B023 (called at once)
        for step in range(self._steps):
          moment = start + 1 + step  # Its action led to it, and its reward came with it.
          state = self._plain.imagine_step(self._params, state, self._batch.action[row, moment], noise[row, step, i])
          predictions = self._plain.predict(self._params, self._plain.features(state))
          errors.append(float(predictions.reward - self._batch.reward[row, moment]))
    expected = np.mean(-0.5 * np.square(errors) - 0.5 * np.log(2.0 * np.pi))
    np.testing.assert_allclose(output.metrics['imagined_reward_log_prob'], expected, rtol=1e-5)

  def test_adds_to_the_elbo_with_the_weights_of_its_own_terms(self):
    key = jax.random.key(1)
    loss, output = self._model.loss(self._params, self._batch, key)
    # Overshooting splits the key in three, of which the first one is for inference.
    elbo = fakes.make_model(self._spec, reward_scale=7.0).loss(self._params, self._batch, jax.random.split(key, 3)[0])[
      0
    ]
    imagined = {name: output.metrics[f'imagined_{name}_log_prob'] for name in ('reward', 'cost', 'terminal')}
    expected = elbo - 7.0 * imagined['reward'] - imagined['cost'] - imagined['terminal']
    np.testing.assert_allclose(loss, expected, rtol=1e-5)

  def test_trains_dynamics_and_heads_alone(self):

    def imagined(params):
      metrics = self._model.loss(params, self._batch, jax.random.key(1))[1].metrics
      return metrics['imagined_reward_log_prob'] + metrics['imagined_cost_log_prob']

    gradients = jax.grad(imagined)(self._params)
    trained = {
      module.split('/')[0]
      for module, arrays in gradients.items()
      if any(np.any(np.asarray(array) != 0) for array in arrays.values())
    }
    self.assertEqual(trained, {'dynamics', 'reward', 'cost'})

  def test_every_step_of_every_sequence_can_be_a_start(self):
    starts = np.concatenate([self._draws(jax.random.key(i)).overshooting.starts for i in range(30)])
    self.assertEqual(set(starts.ravel()), {0, 1, 2})  # The last is followed by steps 3, 4 and 5.
    self.assertTrue(np.all(starts[:, 0] != starts[:, 1]))
    many = draws.draw(jax.random.key(0), B, self._length, S, None, self._steps, 99)
    self.assertEqual(many.overshooting.starts.shape, (B, 3))

  def test_short_sequences_have_fewer_steps(self):
    shortened = draws.draw(jax.random.key(0), B, self._length, S, None, 99, self._starts).overshooting
    self.assertEqual(shortened.noise.shape, (B, self._length - 1, 1, S))
    np.testing.assert_array_equal(shortened.starts, np.zeros((B, 1)))
    self.assertIsNone(draws.draw(jax.random.key(0), B, 1, S, None, 99, self._starts).overshooting)

  def test_refuses_what_makes_no_sense(self):
    for name, value in (('overshooting_steps', -1), ('overshooting_starts', 0)):
      with self.assertRaisesRegex(ValueError, f'{name} = {value}'):
        fakes.make_model(self._spec, **{name: value})


class LossTest(absltest.TestCase):
  """The loss of one batch, and all that came out with it."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls._model = fakes.make_model(SPECS['both'], kl_scale=0.5, reward_scale=3.0, free_nats=0.0)
    cls._batch = fakes.random_batch(SPECS['both'], B, L, C)
    cls._params = _make_params(cls._model, cls._batch)
    cls._key = jax.random.key(1)
    gradient = jax.jit(jax.value_and_grad(cls._model.loss, has_aux=True))
    (cls._loss, cls._output), cls._gradients = jax.device_get(gradient(cls._params, cls._batch, cls._key))

  def test_is_the_negative_elbo(self):
    batch, metrics = self._batch, self._output.metrics
    # The likelihoods of the states that were inferred.
    features = self._model.features(self._output.states)
    predictions = self._model.predict(self._params, features)
    decoded = self._model.decode(self._params, features)
    normal = lambda error: -0.5 * error**2 - 0.5 * np.log(2.0 * np.pi)
    log_prob = {
      'image': normal(batch.observation['image'] / 255.0 - 0.5 - decoded['image']).sum((2, 3, 4)).mean(),
      'vector': normal(batch.observation['vector'] - decoded['vector']).sum(-1).mean(),
      'reward': normal(batch.reward - predictions.reward).mean(),
      'cost': np.where(batch.cost > 0, 100.0 * np.log(predictions.cost), np.log1p(-predictions.cost)).sum(-1).mean(),
      'terminal': np.where(
        batch.terminal > 0, np.log1p(-predictions.continuation), np.log(predictions.continuation)
      ).mean(),
    }
    for name, value in log_prob.items():
      np.testing.assert_allclose(metrics[f'{name}_log_prob'], value, rtol=1e-4)
    expected = 0.5 * metrics['kl'] - 2.0 * log_prob['reward'] - sum(log_prob.values())
    np.testing.assert_allclose(self._loss, expected, rtol=1e-4)
    np.testing.assert_allclose(metrics['loss'], self._loss)
    np.testing.assert_allclose(metrics['reward_mse'], np.mean((batch.reward - predictions.reward) ** 2), rtol=1e-4)
    np.testing.assert_allclose(metrics['cost_mean'], batch.cost.mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics['cost_expected'], predictions.cost.mean(), rtol=1e-4)

  def test_every_parameter_is_learned(self):
    for name, layer in self._gradients.items():
      for leaf in layer.values():
        self.assertTrue(np.isfinite(leaf).all() and np.any(leaf != 0.0), name)

  def test_states_are_those_of_filtering(self):
    state = self._model.initial_state(B)
    states = self._output.states
    filter_ = jax.jit(self._model.filter)
    for t, step_key in enumerate(jax.random.split(self._key, L)):
      now = jax.tree.map(lambda x, t=t: x[:, t], self._batch)
      state = filter_(self._params, state, now.action, now.observation, step_key)
      np.testing.assert_allclose(state.deterministic, states.deterministic[:, t], rtol=1e-4, atol=1e-5)
      np.testing.assert_allclose(state.stochastic, states.stochastic[:, t], rtol=1e-4, atol=1e-5)


class MemberLossTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._model = fakes.make_model(SPECS['vector'], free_nats=0.0, kl_scale=0.7, reward_scale=2.0, overshooting_steps=1)
    self._batch = fakes.random_batch(SPECS['vector'], B, L, C)
    self._params, self._other = (_make_params(self._model, self._batch, seed) for seed in range(2))
    _, self._output = jax.jit(self._model.loss)(self._params, self._batch, jax.random.key(0))
    self._loss = jax.jit(self._model.member_loss)

  def test_misfit_by_hand(self):
    """One sequence of two steps, with a memory of one unit.

    |d - d'|^2 = 0.04 and 0.16, on average 0.1; with the standard deviation 0.5: 0.1 / (2 0.25) = 0.2.
    KL(N(1, 0.5) || N(0, 2)) = 1.04254 at both steps, see `BalancedKlTest`; times 0.5: 0.52127.
    Log likelihoods: -1 of rewards, times 3, and -0.25 of costs: -3.25, beside -0.5 times 3 of imagined rewards.
    """
    full = lambda value: jnp.full((1, 2, 1), value)
    fitted = world_model.Fitted(
      jnp.array([[[0.2], [0.4]]]),
      distributions.Gaussian(full(0.0), full(2.0)),
      {
        'reward': jnp.array([[-2.0, 0.0]]),
        'cost': jnp.array([[-0.5, 0.0]]),
        'imagined_reward': jnp.full((1, 3, 2), -0.5),
      },
    )
    found = world_model.misfit(fitted, full(0.0), distributions.Gaussian(full(1.0), full(0.5)), 0.5, 0.5, 3.0)
    np.testing.assert_allclose(found, [0.2 + 0.52127 + 3.25 + 1.5], rtol=1e-5)

  def test_the_model_that_inferred_the_states_remembers_them_exactly(self):
    metrics = self._output.metrics
    weights = {'reward': 2.0, 'cost': 1.0, 'terminal': 1.0}
    found = self._loss(self._params, self._output, self._batch, jax.random.key(0))
    self.assertEqual(found.shape, (B,))
    observed = sum(weight * metrics[f'{name}_log_prob'] for name, weight in weights.items())
    # The same starts and noise: overshooting with one start at each of the two steps that have a successor.
    draw = draws.draw(jax.random.key(0), B, L, S, None, 1, 4).overshooting
    fitted = self._model._functions.fit(self._params, self._batch, self._output.states, draw)
    imagined = sum(weight * fitted.log_probs[f'imagined_{name}'].mean() for name, weight in weights.items())
    np.testing.assert_allclose(found.mean(), 0.7 * metrics['kl'] - observed - imagined, rtol=1e-5)
    np.testing.assert_allclose(fitted.deterministic, self._output.states.deterministic, rtol=1e-5, atol=1e-6)

  def test_a_member_is_far_in_its_memory_too(self):
    near, far = (
      fakes.make_model(SPECS['vector'], memory_stddev=stddev).member_loss(
        self._other, self._output, self._batch, jax.random.key(0)
      )
      for stddev in (1.0, 0.1)
    )
    state = lambda t: jax.tree.map(lambda x: x[:, t], self._output.states)
    before = [self._model.initial_state(B), *(state(t) for t in range(L - 1))]
    steps = [
      self._model.imagine_step(self._other, before[t], self._batch.action[:, t], _noise(0)).deterministic
      for t in range(L)
    ]
    distance = np.sum(np.square(np.stack(steps, axis=1) - self._output.states.deterministic), axis=-1).mean(axis=1)
    np.testing.assert_allclose(far - near, distance * (1 / (2 * 0.01) - 1 / 2), rtol=1e-4)

  def test_heads_see_the_members_own_memory(self):
    states = self._output.states
    fitted = self._model._functions.fit(self._other, self._batch, states, None)
    features = self._model.features(states._replace(deterministic=fitted.deterministic))
    error = self._batch.reward - self._model.predict(self._other, features).reward
    np.testing.assert_allclose(fitted.log_probs['reward'], -0.5 * error**2 - 0.5 * np.log(2 * np.pi), rtol=1e-5)

  def test_every_parameter_of_imagination_is_learned_and_no_other(self):
    gradient = jax.jit(
      jax.grad(lambda theta: self._model.member_loss(theta, self._output, self._batch, jax.random.key(0)).sum())
    )(self._other)
    own = self._model.imagination_params(gradient)
    self.assertTrue(all(np.any(leaf) for leaf in jax.tree.leaves(own)))
    self.assertFalse(any(np.any(leaf) for name in gradient.keys() - own.keys() for leaf in gradient[name].values()))

  def test_sequences_are_judged_one_by_one(self):
    changed = self._batch._replace(reward=self._batch.reward + np.array([[0.0], [1.0]], np.float32))
    found = [self._loss(self._other, self._output, batch, jax.random.key(0)) for batch in (self._batch, changed)]
    np.testing.assert_array_equal(np.equal(*found), [True, False])


class RecurrentWorldModelTest(parameterized.TestCase):
  @parameterized.parameters(*SPECS)
  def test_shapes(self, name):
    model = fakes.make_model(SPECS[name])
    batch = fakes.random_batch(SPECS[name], B, L, C)
    key = jax.random.key(0)
    shapes = functools.partial(jax.tree.map, lambda x: x.shape)
    params = jax.eval_shape(model.init, key, batch)
    loss, output = jax.eval_shape(model.loss, params, batch, key)
    self.assertEqual(loss.shape, ())
    self.assertEqual(shapes(output.states), rssm.State((B, L, S), (B, L, D)))
    self.assertEqual({metric.shape for metric in output.metrics.values()}, {()})
    self.assertContainsSubset(
      [f'{part}_{metric}' for part in SPECS[name] for metric in ('log_prob', 'mse')], output.metrics
    )
    state = model.initial_state(B)
    now = lambda x: x[:, 0]
    filtered = jax.eval_shape(model.filter, params, state, now(batch.action), jax.tree.map(now, batch.observation), key)
    imagined = jax.eval_shape(model.imagine_step, params, state, now(batch.action), _noise(0))
    self.assertEqual(shapes(filtered), shapes(state))
    self.assertEqual(shapes(imagined), shapes(state))
    features = model.features(_states((B, L)))
    self.assertEqual(features.shape, (B, L, S + D))
    predictions = jax.eval_shape(model.predict, params, features)
    self.assertEqual(shapes(predictions), ((B, L), (B, L, C), (B, L)))
    decoded = jax.eval_shape(model.decode, params, features)
    self.assertEqual(shapes(decoded), {part: (B, L) + spec.shape for part, spec in SPECS[name].items()})
    self.assertEqual(
      {leaf.dtype for leaf in jax.tree.leaves((params, loss, output, filtered, imagined, predictions))},
      {np.dtype(np.float32)},
    )

  def test_the_paper_s_sizes(self):
    model = world_model.RecurrentWorldModel(SPECS['vector'], fakes.ACTION_SPEC, 1, 1)
    params = jax.eval_shape(model.init, jax.random.key(0), fakes.random_batch(SPECS['vector'], 1, 1))
    sizes = {name: layer['w'].shape for name, layer in params.items()}
    self.assertEqual(sizes['dynamics/~/gru/~/input'], (200, 3 * 200))
    self.assertEqual(sizes['dynamics/~/stochastic'], (30, 200))
    self.assertEqual(sizes['inference/~/posterior'], (200, 2 * 30))
    self.assertEqual(sizes['encoder/~/vector/~/mlp/~/hidden_2'], (400, 400))
    self.assertEqual(sizes['reward/~/mlp/~/hidden_0'], (30 + 200, 400))

  def test_states_know_nothing_of_the_future(self):
    model = fakes.make_model(SPECS['vector'])
    batch = fakes.random_batch(SPECS['vector'], B, L, C)
    other = fakes.random_batch(SPECS['vector'], B, L, C, seed=1)
    mixed = jax.tree.map(lambda x, y: np.concatenate([x[:, :-1], y[:, -1:]], axis=1), batch, other)
    params = _make_params(model, batch)
    infer = jax.jit(lambda x: model.features(model.loss(params, x, jax.random.key(0))[1].states))
    np.testing.assert_allclose(infer(batch)[:, :-1], infer(mixed)[:, :-1], rtol=1e-5)
    self.assertGreater(np.abs(infer(batch) - infer(mixed))[:, -1].min(), 0.0)

  def test_imagination_needs_its_own_parameters_only(self):
    model = fakes.make_model(SPECS['both'])
    batch = fakes.random_batch(SPECS['both'], B, L, C)
    params = _make_params(model, batch)
    part = model.imagination_params(params)
    self.assertEqual(
      {name.split('/')[0] for name in params} - {name.split('/')[0] for name in part},
      {'encoder', 'inference', 'decoder'},
    )

    def imagine(params, actions):
      state, total = _states(), 0.0
      for t in range(2):
        state = model.imagine_step(params, state, actions[:, t], _noise(t))
        total += sum(x.sum() for x in model.predict(params, model.features(state)))
      return total

    jax.eval_shape(imagine, part, batch.action)  # Would raise if something were missing.
    gradient = jax.jit(jax.grad(imagine, argnums=(0, 1)))
    gradients, action_gradients = gradient(params, batch.action)
    self.assertTrue(np.all(action_gradients[:, :2] != 0.0))
    for name, layer in gradients.items():
      for leaf in layer.values():
        self.assertEqual(bool(np.any(leaf != 0.0)), name in part, name)

  def test_models_are_stacked(self):
    # N models that imagine at once give what each of them gives.
    model = fakes.make_model(SPECS['vector'])
    batch = fakes.random_batch(SPECS['vector'], B, L, C)
    models = [model.imagination_params(_make_params(model, batch, seed)) for seed in range(3)]
    stacked = jax.tree.map(lambda *x: np.stack(x), *models)
    arguments = (_states(), batch.action[:, 0], _noise(0))
    together = jax.jit(jax.vmap(model.imagine_step, in_axes=(0, None, None, None)))(stacked, *arguments)
    for i, params in enumerate(models):
      alone = model.imagine_step(params, *arguments)
      np.testing.assert_allclose(together.stochastic[i], alone.stochastic, rtol=1e-4, atol=1e-5)

  def test_draws_differ_by_noise(self):
    model = fakes.make_model(SPECS['vector'])
    batch = fakes.random_batch(SPECS['vector'], B, L, C)
    params = _make_params(model, batch)
    step = jax.jit(model.imagine_step)
    first, second = (step(params, _states(), batch.action[:, 0], _noise(seed)) for seed in (0, 1))
    np.testing.assert_array_equal(first.deterministic, second.deterministic)
    self.assertTrue(np.all(first.stochastic != second.stochastic))
    noise = draws.sequence_noise(jax.random.key(0), B, L, S)
    self.assertLen(np.unique(noise), B * L * S)

  def test_expected_costs_count_repeated_steps(self):
    batch = fakes.random_batch(SPECS['vector'], B, L, C)
    costs = []
    for action_repeat in (1, 2):
      model = fakes.make_model(SPECS['vector'], action_repeat=action_repeat)
      costs.append(model.predict(_make_params(model, batch), jnp.ones((S + D,))).cost)
    np.testing.assert_allclose(2.0 * costs[0], costs[1], rtol=1e-6)

  def test_wrong_settings(self):
    with self.assertRaisesRegex(ValueError, "'image', 'vector' or both"):
      fakes.make_model({'lidar': fakes.VECTOR})
    with self.assertRaisesRegex(ValueError, 'RecurrentWorldModel.kl_balance'):
      fakes.make_model(SPECS['vector'], kl_balance=1.5)
    with self.assertRaisesRegex(ValueError, 'ImageDecoder.kernels'):
      world_model.RecurrentWorldModel(SPECS['image'], fakes.ACTION_SPEC, 1, 1)

  def test_wrong_batches(self):
    model = fakes.make_model(SPECS['vector'], num_constraints=1)
    batch = fakes.random_batch(SPECS['vector'], B, L, num_constraints=1)
    params = jax.eval_shape(model.init, jax.random.key(0), batch)
    with self.assertRaises(AssertionError):
      jax.eval_shape(model.loss, params, batch._replace(cost=batch.cost[..., 0]), jax.random.key(0))


class GinTest(absltest.TestCase):
  def test_bindings_reach_the_modules(self):
    self.addCleanup(gin.clear_config)
    gin.parse_config("""
      RecurrentWorldModel.encoder_factory = @ObservationEncoder
      ObservationEncoder.image_factory = @ImageEncoder
      ImageEncoder.kernels = (4, 4)
      ImageEncoder.activation = @jax.nn.silu
      RecurrentWorldModel.decoder_factory = @ObservationDecoder
      ObservationDecoder.image_factory = @ImageDecoder
      ImageDecoder.kernels = (6, 6)
      RecurrentWorldModel.cost_factory = @NormalCost
      RecurrentWorldModel.terminal_factory = @terminal/BernoulliHead
      terminal/BernoulliHead.hidden_sizes = (7,)
    """)
    factory = gin.get_configurable('RecurrentWorldModel')
    model = factory(SPECS['image'], fakes.ACTION_SPEC, num_constraints=1, action_repeat=1)
    params = jax.eval_shape(model.init, jax.random.key(0), fakes.random_batch(SPECS['image'], 1, 1))
    self.assertIn('encoder/~/image/~/conv_1', params)
    self.assertNotIn('encoder/~/image/~/conv_2', params)
    self.assertEqual(params['terminal/~/mlp/~/output']['w'].shape, (7, 1))
    self.assertEqual(params['reward/~/mlp/~/output']['w'].shape, (400, 1))


if __name__ == '__main__':
  absltest.main()
