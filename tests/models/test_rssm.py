"""The recurrent state space model against a naive one."""

from absl.testing import absltest
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from lambda_kit.models import rssm

B, L, A, E, S, D, HIDDEN = 2, 4, 3, 5, 2, 6, 7


def _functions():
  dynamics = rssm.Dynamics(S, D, HIDDEN, name='dynamics')
  inference = rssm.Inference(S, HIDDEN, name='inference')
  sequences = lambda *inputs: rssm.infer_sequences(dynamics, inference, *inputs)
  return sequences, (sequences, dynamics.step)


def _elu(x):
  return np.where(x > 0.0, x, np.expm1(x))


def _sigmoid(x):
  return 1.0 / (1.0 + np.exp(-x))


def _stats(raw):
  return raw[:S], np.log1p(np.exp(raw[S:])) + 0.1


class NaiveRssm:
  """One step of one sequence, by the book: layers see concatenated inputs."""

  def __init__(self, params):
    self._params = jax.tree.map(np.array, params)

  def _layer(self, names, *inputs):
    """The layer whose weights of each input have their own name."""
    layers = [self._params[name] for name in names]
    return np.concatenate(inputs) @ np.concatenate([layer['w'] for layer in layers]) + layers[0]['b']

  def advance(self, stochastic, deterministic, action):
    x = _elu(self._layer(['dynamics/~/action', 'dynamics/~/stochastic'], action, stochastic))
    w, b = self._params['dynamics/~/gru/~/input']['w'], self._params['dynamics/~/gru/~/input']['b']
    u = self._params['dynamics/~/gru/~/recurrent']['w']
    gate = lambda i, h: x @ w[:, i * D:(i + 1) * D] + b[i * D:(i + 1) * D] + h * (deterministic @ u[:, i * D:(i + 1) * D])
    reset, update = _sigmoid(gate(0, 1.0)), _sigmoid(gate(1, 1.0))
    return update * deterministic + (1.0 - update) * np.tanh(gate(2, reset))

  def prior(self, deterministic):
    hidden = _elu(self._layer(['dynamics/~/prior/~/hidden_0'], deterministic))
    return _stats(self._layer(['dynamics/~/prior/~/output'], hidden))

  def posterior(self, deterministic, embedding):
    hidden = _elu(self._layer(['inference/~/embedding', 'inference/~/deterministic'], embedding, deterministic))
    return _stats(self._layer(['inference/~/posterior'], hidden))


class RssmTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    rng = np.random.default_rng(0)
    normal = lambda *shape: rng.normal(size=shape).astype(np.float32)
    self._inputs = (rssm.State(normal(B, S), normal(B, D)), normal(B, L, A), normal(B, L, E), normal(B, L, S))
    transformed = hk.without_apply_rng(hk.multi_transform(_functions))
    params = transformed.init(jax.random.key(0), *self._inputs)
    # Biases begin at 0, which would hide mistakes.
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    self._params = structure.unflatten([x + 0.3 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys)])
    self._sequences, self._step = transformed.apply

  def test_inference_equals_a_naive_loop(self):
    inferred = jax.jit(self._sequences)(self._params, *self._inputs)
    naive = NaiveRssm(self._params)
    initial, actions, embeddings, noise = self._inputs
    for b in range(B):
      stochastic, deterministic = initial.stochastic[b], initial.deterministic[b]
      for t in range(L):
        deterministic = naive.advance(stochastic, deterministic, actions[b, t])
        mean, stddev = naive.posterior(deterministic, embeddings[b, t])
        stochastic = mean + stddev * noise[b, t]
        for actual, desired in (
            (inferred.states.deterministic, deterministic), (inferred.states.stochastic, stochastic),
            (inferred.posterior.mean, mean), (inferred.posterior.stddev, stddev),
            (inferred.prior.mean, naive.prior(deterministic)[0]), (inferred.prior.stddev, naive.prior(deterministic)[1])):
          np.testing.assert_allclose(actual[b, t], desired, rtol=1e-4, atol=1e-5)

  def test_imagined_step_equals_a_naive_one(self):
    state, actions, _, noise = self._inputs
    actual = jax.jit(self._step)(self._params, state, actions[:, 0], noise[:, 0])
    naive = NaiveRssm(self._params)
    for b in range(B):
      deterministic = naive.advance(state.stochastic[b], state.deterministic[b], actions[b, 0])
      mean, stddev = naive.prior(deterministic)
      np.testing.assert_allclose(actual.deterministic[b], deterministic, rtol=1e-4, atol=1e-5)
      np.testing.assert_allclose(actual.stochastic[b], mean + stddev * noise[b, 0], rtol=1e-4, atol=1e-5)

  def test_the_first_layer_has_unit_variance(self):
    # Two linear maps are summed: of unit inputs each makes half of the variance.
    transformed = hk.without_apply_rng(hk.multi_transform(_wide_functions))
    params = transformed.init(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 2)
    for module in ('action', 'stochastic'):
      w = params[f'dynamics/~/{module}']['w']
      outputs = jax.random.normal(keys[0], (500, w.shape[0])) @ w
      self.assertAlmostEqual(float(outputs.var()), 0.5, delta=0.05)


def _wide_functions():
  dynamics = rssm.Dynamics(30, 4, 2_000, name='dynamics')
  init = lambda: dynamics.step(rssm.State(jnp.zeros((1, 30)), jnp.zeros((1, 4))), jnp.zeros((1, 20)), jnp.zeros((1, 30)))
  return init, init


if __name__ == '__main__':
  absltest.main()
