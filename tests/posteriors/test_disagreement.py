"""How much members disagree about costs that are new to them, and whether the states that they start from fit them."""

import functools

from dm_env import specs
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lambda_kit.agents.lambda_ import imagination
from lambda_kit.models import batch_loss
from lambda_kit.posteriors import ensemble
from lambda_kit.posteriors import point
from tests.fakes import models as fakes

pytestmark = pytest.mark.slow

_M, _UPDATES, _RATE = 3, 1_000, 3e-3
_B, _L, _H = 8, 8, 5
_SHARED = ('encoder', 'inference', 'decoder', 'gru', 'action', 'stochastic')  # What members once had in common.


@pytest.fixture(scope='module', name='episodes')
def _episodes():
  """A few to learn from, and others."""
  make = lambda count, seed: fakes.grid_episodes(count, seed, episode_length=20)
  return tuple(jax.tree.map(jnp.asarray, make(count, seed)) for count, seed in ((12, 0), (40, 1)))


@pytest.fixture(scope='module', name='model')
def _model():
  observations = {'vector': specs.Array((2,), np.float32, name='vector')}
  return fakes.make_model(observations, num_constraints=1, free_nats=0.0, observation_scale=10.0, reward_scale=10.0)


def _train(model, episodes, init, update):
  """A function from a key to the state after updates on random sequences."""

  def sequence(key):
    episode_key, start_key = jax.random.split(key)
    count, length = episodes.reward.shape
    episode = jax.random.randint(episode_key, (), 0, count)
    start = jax.random.randint(start_key, (), 0, length - _L + 1)
    cut = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x[episode], start, _L), episodes)
    return cut._replace(episode=jnp.full((_L,), episode))

  def step(state, key):
    batch_key, loss_key = jax.random.split(key)
    batch = jax.vmap(sequence)(jax.random.split(batch_key, _B))
    return update(state, batch_loss.BatchLoss(model, batch), loss_key), ()

  def train(key):
    init_key, key = jax.random.split(key)
    state = init(init_key, lambda key: model.init(key, episodes))
    return jax.lax.scan(step, state, jax.random.split(key, _UPDATES))[0]

  return jax.jit(train)


def _with_posterior(model, episodes, posterior):
  return _train(model, episodes, posterior.init, lambda *inputs: posterior.update(*inputs)[0])


@pytest.fixture(scope='module', name='members')
def _members(model, episodes):
  """The reference, and M members, trained on the first episodes."""
  posterior = ensemble.Ensemble(model.imagination_params, num_members=_M, learning_rate=_RATE)
  state = _with_posterior(model, episodes[0], posterior)(jax.random.key(0))
  return posterior.current(state), posterior.sample(state, jax.random.key(1), _M)


def _partly_shared(model, episodes):
  """M models that differ in prior and heads alone, each trained by the whole loss on the same batches and noise."""
  optimizer = optax.adam(_RATE, eps=1e-5)
  is_own = lambda name: not any(part in name for part in _SHARED)

  def member(params, i):
    return {name: jax.tree.map(lambda x: x[i], leaves) if is_own(name) else leaves for name, leaves in params.items()}

  def init(key, init_params):
    stacked = jax.vmap(init_params)(jax.random.split(key, _M))
    params = {
      name: leaves if is_own(name) else jax.tree.map(lambda x: x[0], leaves) for name, leaves in stacked.items()
    }
    return params, optimizer.init(params)

  def update(state, loss, key):
    params, opt_state = state
    mean_loss = lambda params: sum(loss(member(params, i), key)[0] for i in range(_M)) / _M
    updates, opt_state = optimizer.update(jax.grad(mean_loss)(params), opt_state)
    return optax.apply_updates(params, updates), opt_state

  params, _ = _train(model, episodes, init, update)(jax.random.key(0))
  return [member(params, i) for i in range(_M)]


@functools.partial(jax.jit, static_argnums=0)
def _expected_costs(model, params, theta, episodes):
  """Costs [S] expected of the H steps after the fifth of each episode, given the recorded actions."""
  _, output = model.loss(params, episodes, jax.random.key(5))
  start = jax.tree.map(lambda x: x[:, 5], output.states)
  actions = jnp.swapaxes(episodes.action[:, 6 : 6 + _H], 0, 1)
  draw = lambda key: jax.random.normal(key, (*actions.shape[:2], model.noise_size))
  follow = lambda noise: imagination.follow_actions(model, theta, actions, start, noise)[1:]
  features = jax.vmap(follow)(jax.vmap(draw)(jax.random.split(jax.random.key(6), 50)))
  return jnp.sum(jnp.mean(model.predict(theta, features).cost, axis=0), axis=(0, 2))


def test_members_disagree_much_more_than_those_that_share_their_recurrence(model, episodes, members):
  learned, new = episodes
  reference, thetas = members
  own = [_expected_costs(model, reference, jax.tree.map(lambda x, i=i: x[i], thetas), new) for i in range(_M)]
  shared = [
    _expected_costs(model, params, model.imagination_params(params), new) for params in _partly_shared(model, learned)
  ]
  alone = _with_posterior(model, learned, point.Point(model.imagination_params, learning_rate=_RATE))
  models = [alone(jax.random.key(seed)).params for seed in range(_M)]
  independent = [_expected_costs(model, params, model.imagination_params(params), new) for params in models]
  disagreement = lambda forecasts: np.mean(np.std(np.stack(forecasts), axis=0))
  assert disagreement(own) > 2 * disagreement(shared)
  assert disagreement(own) > 0.5 * disagreement(independent)


def test_states_of_the_reference_fit_all_members(model, episodes, members):
  """One step ahead of states that are new, members are as good as the model that inferred them."""
  _, new = episodes
  reference, thetas = members
  _, output = jax.jit(model.loss)(reference, new, jax.random.key(5))
  loss = jax.jit(lambda theta: jnp.mean(model.member_loss(theta, output, new, jax.random.key(0))))
  own = model.imagination_params(reference)
  errors = [float(loss(jax.tree.map(lambda x, i=i: x[i], thetas))) for i in range(_M)]
  strangers = [float(loss(model.imagination_params(model.init(jax.random.key(seed), new)))) for seed in range(_M)]
  scale = np.mean(strangers) - float(loss(own))
  assert max(errors) - float(loss(own)) < 0.1 * scale
  assert max(errors) - min(errors) < 0.1 * scale
