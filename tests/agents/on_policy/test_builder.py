"""The agent behind the interfaces of an experiment: bad input, images, saving, acting."""

import functools

import jax
import numpy as np
import pytest

from lambda_kit import core
from lambda_kit.agents.on_policy import builder
from lambda_kit.agents.on_policy import cpo
from lambda_kit.agents.on_policy import gaussian
from lambda_kit.agents.on_policy import learning
from lambda_kit.agents.on_policy import ppo
from lambda_kit.environments import grid_cmdp
from lambda_kit.training import rollout_loop
from lambda_kit.models import encoders

_NARROW = dict(hidden_sizes=(8,), image_factory=functools.partial(encoders.ImageEncoder, depth=2, kernels=(4, 4)))


def _agent(cost_limit=5.0, method=None, **options):
  return builder.OnPolicyAgent(cost_limit, method or ppo.Ppo(iterations=2),
                               functools.partial(gaussian.GaussianPolicy, **_NARROW),
                               functools.partial(gaussian.ObservationCritic, **_NARROW), critic_iterations=2, **options)


class _Nowhere:
  """Takes rows."""

  def write(self, kind, row):
    self.row = row


def _run(agent, environment, epochs=1):
  learner = agent.make_learner(environment, None, 0)
  actor = agent.make_actor(environment, learner, None, 1, evaluation=False)
  loop = rollout_loop.RolloutLoop(environment, actor, learner, None, 0, None, 0, steps_per_epoch=40,
                                  num_environments=1)
  loop.connect(_Nowhere())
  for _ in range(epochs):
    loop.run_episode()
  return learner, loop


@pytest.mark.parametrize('method, observations, num_constraints', [
    (None, ('vector',), 2), (None, ('image', 'vector'), 1), (cpo.Cpo(), ('image',), 1)])
def test_everything_learns_from_vectors_and_images(method, observations, num_constraints):
  environment = grid_cmdp.GridCmdp(seed=0, episode_length=20, observations=observations,
                                   num_constraints=num_constraints)
  agent = _agent(method=method, image_chunk_size=16)
  before = jax.tree.map(np.array, agent.make_learner(environment, None, 0).save())
  learner, _ = _run(agent, environment)
  after = learner.save()
  for name in ('policy', 'critics'):
    for old, new in zip(jax.tree.leaves(getattr(before, name)), jax.tree.leaves(getattr(after, name)), strict=True):
      assert np.isfinite(new).all() and not np.array_equal(old, new), name
  assert after.normalizer.count == 40 * ('vector' in observations)


def test_a_restored_learner_goes_on_to_the_bit():
  make = lambda: grid_cmdp.GridCmdp(seed=0, episode_length=20)
  expected, _ = _run(_agent(), make(), epochs=3)
  environment = make()
  learner, loop = _run(_agent(), environment, epochs=2)
  saved, number = jax.tree.map(np.array, learner.save()), environment.next_episode
  loop.run_episode()  # What is lost.
  environment.next_episode = number
  learner.restore(saved)
  loop._actor.update()  # As a checkpointer does. pylint: disable=protected-access
  loop.run_episode()
  jax.tree.map(np.testing.assert_array_equal, learner.save(), expected.save())


def test_advantages_and_targets_of_each_signal_have_discounts_of_their_own():
  environment = grid_cmdp.GridCmdp(seed=0, episode_length=3)
  writer = rollout_loop.rollouts.RolloutWriter(environment, num_steps=2, num_environments=1)
  rollout = writer._rollout._replace(  # pylint: disable=protected-access
      reward=np.ones((2, 1), np.float32), cost=np.full((2, 1, 1), 2.0, np.float32), is_last=np.array([[False], [True]]))
  zeros = np.zeros((2, 1, 2), np.float32)
  returns = learning.Returns(discounts=np.array([0.5, 0.1]), lambdas=np.array([0.5, 1.0]))
  advantages, targets = learning.estimate(rollout, zeros, zeros, returns)
  # Rewards 1, 1: 1 + 0.5 * 0.5 and, for the target, 1 + 0.5. Costs 2, 2: 2 + 0.1 * 2.
  np.testing.assert_allclose(advantages[:, 0], [[1.25, 2.2], [1.0, 2.0]], rtol=1e-6)
  np.testing.assert_allclose(targets[:, 0], [[1.5, 2.2], [1.0, 2.0]], rtol=1e-6)


def test_noise_of_actions_is_new_at_each_step_and_follows_from_the_number_of_an_episode(monkeypatch):
  monkeypatch.setattr(builder.acting, '_NOISE_STEPS', 3)  # Blocks of noise that end within this test.
  environment, agent = grid_cmdp.GridCmdp(seed=0), _agent()
  learner = agent.make_learner(environment, None, 0)
  actor = agent.make_actor(environment, learner, None, 1, evaluation=False)
  observation = {'vector': np.zeros((2, 2), np.float32)}

  def actions(episode):
    actor.reseed(episode)
    return np.concatenate([actor.select_actions(observation) for _ in range(8)])  # [8 * 2, A]

  first = actions(5)
  assert len(np.unique(first.round(5), axis=0)) == 16  # Steps and environments all differ.
  assert not np.any(np.isclose(first, actions(6)))
  np.testing.assert_array_equal(actions(5), first)
  # Standard normal noise times the policy's standard deviation, exp(-0.5), around one mean.
  many = np.concatenate([actions(episode) for episode in range(100)])
  assert np.std(many, axis=0) == pytest.approx(np.exp(-0.5), rel=0.06)


@pytest.mark.parametrize('noisy', [True, False])
def test_evaluation_stays_within_bounds_and_the_exported_policy_does_the_same(noisy, monkeypatch):
  monkeypatch.setattr(builder.acting, '_NOISE_STEPS', 2)  # Blocks of noise that end within an episode.
  environment = grid_cmdp.GridCmdp(seed=0)
  agent = _agent(noisy_evaluation=noisy)
  learner = agent.make_learner(environment, None, 0)
  actor = agent.make_actor(environment, learner, None, 1, evaluation=True)
  policy = agent.make_policy(environment, learner, 1)
  assert isinstance(agent, core.PolicyBuilder)
  step, carry, actions = jax.jit(policy.step), policy.carry, []
  for episode in (3, 4, 3):
    actor.reseed(episode)
    for i, value in enumerate((0.3, 0.3, 50.0, 0.3, 0.3)):
      observation = {'vector': np.full(2, value, np.float32)}
      actions.append(actor.select_action(observation))
      batch = {'vector': observation['vector'][None]}
      exported, carry = step(policy.variables, carry, batch, np.full(1, i == 0), np.uint32(episode))
      np.testing.assert_array_equal(actions[-1], exported[0])
      assert np.all(np.abs(actions[-1]) <= 1)
  np.testing.assert_array_equal(actions[:5], actions[10:])
  # Without noise an observation determines the action; with it no two steps and no two episodes are alike.
  assert len(np.unique(np.stack(actions).round(4), axis=0)) == (2 if not noisy else 10)


class _Free(grid_cmdp.GridCmdp):
  """A task without costs."""

  @property
  def constraint_names(self):
    return ()


@pytest.mark.parametrize('agent, environment, message', [
    (_agent(cost_limit=-1.0), grid_cmdp.GridCmdp(seed=0), 'cost_limit = -1.0: limits must be finite and not negative'),
    (_agent(cost_limit=(1.0, 2.0)), grid_cmdp.GridCmdp(seed=0), '1 costs, but cost_limit'),
    (_agent(), _Free(seed=0), 'has no cost'),
    (_agent(method=cpo.Cpo()), grid_cmdp.GridCmdp(seed=0, num_constraints=2), 'one constraint'),
])
def test_bad_input_is_a_clear_message(agent, environment, message):
  with pytest.raises(ValueError, match=message):
    agent.make_learner(environment, None, 0)


def test_the_loop_of_other_agents_is_refused():
  learner = _agent().make_learner(grid_cmdp.GridCmdp(seed=0), None, 0)
  with pytest.raises(ValueError, match='loop_factory = @RolloutLoop'):
    learner.step(1)
