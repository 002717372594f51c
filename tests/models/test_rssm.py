"""The recurrent state space model against a naive one."""

from absl.testing import absltest
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from lambda_kit.models import rssm

B, L, A, E, S, D, HIDDEN = 2, 4, 3, 5, 2, 6, 7


def _functions():
  dynamics = rssm.Dynamics(S, D, HIDDEN, 0.1, name='dynamics')
  inference = rssm.Inference(S, HIDDEN, 0.1, name='inference')
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
    block = lambda array, i: array[..., i * D : (i + 1) * D]
    gate = lambda i, scale: x @ block(w, i) + block(b, i) + scale * (deterministic @ block(u, i))
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
    shapes = jax.eval_shape(transformed.init, jax.random.key(0), *self._inputs)
    # Initial biases would be 0, which hides mistakes.
    self._params = jax.tree.map(lambda x: 0.5 * normal(*x.shape), shapes)
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
        prior_mean, prior_stddev = naive.prior(deterministic)
        for actual, desired in (
          (inferred.states.deterministic, deterministic),
          (inferred.states.stochastic, stochastic),
          (inferred.posterior.mean, mean),
          (inferred.posterior.stddev, stddev),
          (inferred.prior.mean, prior_mean),
          (inferred.prior.stddev, prior_stddev),
        ):
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
    step = lambda *inputs: rssm.Dynamics(30, 4, 2_000, 0.1, name='dynamics').step(*inputs)
    inputs = (rssm.State(jnp.zeros((1, 30)), jnp.zeros((1, 4))), jnp.zeros((1, 20)), jnp.zeros((1, 30)))
    params = jax.jit(hk.transform(step).init)(jax.random.key(0), *inputs)
    for name, size in (('action', 20), ('stochastic', 30)):
      w = np.array(params[f'dynamics/~/{name}']['w'])
      outputs = np.random.default_rng(0).normal(size=(500, size)) @ w
      self.assertAlmostEqual(outputs.var(), 0.5, delta=0.05)


if __name__ == '__main__':
  absltest.main()
