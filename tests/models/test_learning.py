"""The recurrent world model learns the built-in CMDP."""

import functools

from absl.testing import absltest
import jax
import jax.numpy as jnp
import numpy as np
import optax

from lambda_kit import types
from lambda_kit.environments import grid_cmdp
from lambda_kit.models import decoders
from lambda_kit.models import encoders
from lambda_kit.models import heads
from lambda_kit.models import world_model
from tests.fakes import models as fakes


def _make_model(observations, **kwargs) -> world_model.RecurrentWorldModel:
  environment = grid_cmdp.GridCmdp(seed=0, observations=observations)
  small = functools.partial
  return world_model.RecurrentWorldModel(
    environment.observation_spec(),
    environment.action_spec(),
    num_constraints=1,
    action_repeat=1,
    encoder_factory=small(
      encoders.ObservationEncoder,
      small(encoders.ImageEncoder, depth=8, kernels=(4, 4)),
      small(encoders.VectorEncoder, hidden_sizes=(32,)),
    ),
    decoder_factory=small(
      decoders.ObservationDecoder,
      image_factory=small(decoders.ImageDecoder, depth=8, dense_size=64, kernels=(6, 6)),
      vector_factory=small(decoders.VectorDecoder, hidden_sizes=(32,)),
    ),
    reward_factory=small(heads.NormalHead, hidden_sizes=(32,)),
    cost_factory=small(heads.BernoulliCost, hidden_sizes=(32,), unsafe_weight=10.0, correct_for_weight=True),
    terminal_factory=small(heads.BernoulliHead, hidden_sizes=(32,)),
    stochastic_size=8,
    deterministic_size=32,
    hidden_size=32,
    **kwargs,
  )


def _train(model, sequences: types.Trajectory, batch_size: int, num_steps: int, learning_rate: float):
  """Returns parameters, and metrics [num_steps]."""
  optimizer = optax.chain(optax.clip_by_global_norm(100.0), optax.adam(learning_rate, eps=1e-5))

  @jax.jit
  def run(sequences):

    def step(carry, key):
      params, state = carry
      batch_key, loss_key = jax.random.split(key)
      indices = jax.random.permutation(batch_key, len(sequences.reward))[:batch_size]
      batch = jax.tree.map(lambda x: x[indices], sequences)
      gradients, output = jax.grad(model.loss, has_aux=True)(params, batch, loss_key)
      updates, state = optimizer.update(gradients, state)
      return (optax.apply_updates(params, updates), state), output.metrics

    params = model.init(jax.random.key(0), sequences)
    keys = jax.random.split(jax.random.key(1), num_steps)
    (params, _), metrics = jax.lax.scan(step, (params, optimizer.init(params)), keys)
    return params, metrics

  return run(sequences)


def _open_loop(model, params, episodes: types.Trajectory, context: int, horizon: int, num_draws: int) -> np.ndarray:
  """Positions [episodes, horizon, 2] after `context` moments, predicted from the actions alone."""

  @jax.jit
  def predict(params, episodes, key):
    _, output = model.loss(params, jax.tree.map(lambda x: x[:, :context], episodes), key)
    start = jax.tree.map(lambda x: x[:, -1], output.states)

    def step(state, inputs):
      state = model.imagine_step(model.imagination_params(params), state, *inputs)
      return state, model.decode(params, model.features(state))['vector']

    def draw(key):
      actions = jnp.swapaxes(episodes.action[:, context : context + horizon], 0, 1)
      noise = jax.random.normal(key, (*actions.shape[:2], model.noise_size))
      return jnp.swapaxes(jax.lax.scan(step, start, (actions, noise))[1], 0, 1)

    return jax.vmap(draw)(jax.random.split(key, num_draws)).mean(axis=0)

  return np.asarray(predict(params, episodes, jax.random.key(0)))


class LearningTest(absltest.TestCase):
  def test_overfits_a_short_sequence_of_images(self):
    sequences = fakes.grid_episodes(2, seed=0, observations=('image',), episode_length=9)
    _, metrics = _train(_make_model(('image',)), sequences, batch_size=2, num_steps=400, learning_rate=1e-2)
    # The best that can be said without looking: the mean image.
    images = encoders.preprocess_image(jnp.asarray(sequences.observation['image']))
    blind = float(jnp.var(images.reshape(20, -1), axis=0).mean())
    self.assertGreater(metrics['image_mse'][0], 5.0 * blind)
    self.assertLess(metrics['image_mse'][-10:].mean(), 0.2 * blind)
    constant = 0.5 * np.log(2.0 * np.pi) * (16 * 16 * 3 + 1)  # Of the Normals' densities.
    loss = metrics['loss'] - constant
    self.assertLess(loss[-10:].mean(), 0.1 * loss[0])

  def test_predicts_better_than_the_last_position_on_new_episodes(self):
    model = _make_model(('vector',), free_nats=0.0, kl_scale=0.1)
    params, _ = _train(
      model, fakes.grid_episodes(64, seed=0, episode_length=25), batch_size=16, num_steps=500, learning_rate=3e-3
    )
    new = fakes.grid_episodes(64, seed=1, episode_length=20)
    context, horizon = 10, 10
    positions = new.observation['vector']
    actual = positions[:, context : context + horizon]
    root_mean_square = lambda error: np.sqrt(np.square(error).sum(-1).mean(0))  # [horizon]
    error = root_mean_square(_open_loop(model, params, new, context, horizon, num_draws=16) - actual)
    copy_last = root_mean_square(positions[:, context - 1 : context] - actual)
    # Measured: 0.46 and 0.68. Moves are random: the mean under the exact transition probabilities has 0.40.
    self.assertLess(error.mean(), 0.75 * copy_last.mean())
    self.assertTrue(np.all(error[1:] < copy_last[1:]), (error, copy_last))


if __name__ == '__main__':
  absltest.main()
