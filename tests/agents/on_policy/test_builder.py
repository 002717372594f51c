"""The agent behind the interfaces of an experiment: bad input, images, saving, acting."""

import functools

import jax
import numpy as np
import pytest

from lambda_kit.agents import actor as actor_lib
from lambda_kit.agents.on_policy import acting
from lambda_kit.agents.on_policy import builder
from lambda_kit.agents.on_policy import cpo
from lambda_kit.agents.on_policy import gaussian
from lambda_kit.agents.on_policy import learning
from lambda_kit.agents.on_policy import ppo
from lambda_kit.environments import grid_cmdp
from lambda_kit.models import encoders
from lambda_kit.training import exported
from lambda_kit.training import rollout_loop
from tests.fakes import loops
from tests.fakes import specs

_NARROW = dict(hidden_sizes=(8,), image_factory=functools.partial(encoders.ImageEncoder, depth=2, kernels=(4, 4)))


def _build(environment, method=None, **options):
  agent = builder.OnPolicyAgent(
    method or ppo.Ppo(iterations=2),
    functools.partial(gaussian.GaussianPolicy, **_NARROW),
    functools.partial(gaussian.ObservationCritic, **_NARROW),
    critic_iterations=2,
    **options,
  )
  return agent.build(specs.of(environment, 5.0))


class _Nowhere:
  """Takes rows."""

  def write(self, kind, row):
    self.row = row


def _run(agent, environment, epochs=1):
  learner = agent.make_learner(None, 0)
  actor = actor_lib.Actor(agent.make_actor_core(evaluation=False), learner, 1)
  loop = rollout_loop.RolloutLoop(
    loops.parts(environment, actor, learner, None), steps_per_epoch=40, num_environments=1
  )
  loop.connect(_Nowhere())
  for _ in range(epochs):
    loop.advance()
  return learner, loop


@pytest.mark.parametrize(
  'method, observations, num_constraints',
  [(None, ('vector',), 2), (None, ('image', 'vector'), 1), (cpo.Cpo(), ('image',), 1)],
)
def test_everything_learns_from_vectors_and_images(method, observations, num_constraints):
  environment = grid_cmdp.GridCmdp(
    seed=0, episode_length=20, observations=observations, num_constraints=num_constraints
  )
  agent = _build(environment, method, image_chunk_size=16)
  before = jax.tree.map(np.array, agent.make_learner(None, 0).save())
  learner, _ = _run(agent, environment)
  after = learner.save()
  for name in ('policy', 'critics'):
    for old, new in zip(jax.tree.leaves(getattr(before, name)), jax.tree.leaves(getattr(after, name)), strict=True):
      assert np.isfinite(new).all() and not np.array_equal(old, new), name
  assert after.normalizer.count == 40 * ('vector' in observations)


def test_a_restored_learner_goes_on_to_the_bit():
  make = lambda: grid_cmdp.GridCmdp(seed=0, episode_length=20)
  expected, _ = _run(_build(make()), make(), epochs=3)
  environment = make()
  learner, loop = _run(_build(environment), environment, epochs=2)
  saved, number = jax.tree.map(np.array, learner.save()), environment.next_episode
  loop.advance()  # What is lost.
  environment.next_episode = number
  learner.restore(saved)
  loop._actor.update()  # As a checkpointer does.
  loop.advance()
  jax.tree.map(np.testing.assert_array_equal, learner.save(), expected.save())


def test_advantages_and_targets_of_each_signal_have_discounts_of_their_own():
  environment = grid_cmdp.GridCmdp(seed=0, episode_length=3)
  writer = rollout_loop.rollouts.RolloutWriter(specs.of(environment), num_steps=2, num_environments=1)
  rollout = writer._rollout._replace(
    reward=np.ones((2, 1), np.float32), cost=np.full((2, 1, 1), 2.0, np.float32), is_last=np.array([[False], [True]])
  )
  zeros = np.zeros((2, 1, 2), np.float32)
  returns = learning.Returns(discounts=np.array([0.5, 0.1]), lambdas=np.array([0.5, 1.0]))
  advantages, targets = learning.estimate(rollout, zeros, zeros, returns)
  # Rewards 1, 1: 1 + 0.5 * 0.5 and, for the target, 1 + 0.5. Costs 2, 2: 2 + 0.1 * 2.
  np.testing.assert_allclose(advantages[:, 0], [[1.25, 2.2], [1.0, 2.0]], rtol=1e-6)
  np.testing.assert_allclose(targets[:, 0], [[1.5, 2.2], [1.0, 2.0]], rtol=1e-6)


def test_noise_of_actions_is_new_at_each_step_and_follows_from_the_number_of_an_episode(monkeypatch):
  monkeypatch.setattr(acting, '_NOISE_STEPS', 3)  # Blocks of noise that end within this test.
  agent = _build(grid_cmdp.GridCmdp(seed=0))
  actor = actor_lib.Actor(agent.make_actor_core(evaluation=False), agent.make_learner(None, 0), 1)
  observation, is_first = {'vector': np.zeros((2, 2), np.float32)}, np.zeros(2, bool)

  def actions(episode):
    actor.reseed(episode)
    return np.concatenate([actor.select_actions(observation, is_first) for _ in range(8)])  # [8 * 2, A]

  first = actions(5)
  assert len(np.unique(first.round(5), axis=0)) == 16  # Steps and environments all differ.
  assert not np.any(np.isclose(first, actions(6)))
  np.testing.assert_array_equal(actions(5), first)
  # Standard normal noise times the policy's standard deviation, exp(-0.5), around one mean.
  many = np.concatenate([actions(episode) for episode in range(100)])
  assert np.std(many, axis=0) == pytest.approx(np.exp(-0.5), rel=0.06)


@pytest.mark.parametrize('noisy', [True, False])
def test_evaluation_stays_within_bounds_and_the_exported_policy_does_the_same(noisy, monkeypatch, tmp_path):
  monkeypatch.setattr(acting, '_NOISE_STEPS', 2)  # Blocks of noise that end within an episode.
  environment = grid_cmdp.GridCmdp(seed=0)
  agent = _build(environment, noisy_evaluation=noisy)
  learner, actor_core = agent.make_learner(None, 0), agent.make_actor_core(evaluation=True)
  actor = actor_lib.Actor(actor_core, learner, 1)
  exported.save(
    tmp_path / 'policy',
    actor_core,
    learner.get_variables(actor_core.variable_names),
    jax.random.PRNGKey(1),
    exported.Description.of(specs.of(environment), {}),
  )
  policy, actions = exported.load(tmp_path / 'policy'), []
  for episode in (3, 4, 3):
    actor.reseed(episode)
    policy.reset(episode)
    for value in (0.3, 0.3, 50.0, 0.3, 0.3):
      observation = {'vector': np.full(2, value, np.float32)}
      actions.append(actor.select_action(observation))
      np.testing.assert_array_equal(actions[-1], policy(observation))
      assert np.all(np.abs(actions[-1]) <= 1)
  np.testing.assert_array_equal(actions[:5], actions[10:])
  # Without noise an observation determines the action; with it no two steps and no two episodes are alike.
  assert len(np.unique(np.stack(actions).round(4), axis=0)) == (2 if not noisy else 10)


class _Free(grid_cmdp.GridCmdp):
  """A task without costs."""

  @property
  def constraint_names(self):
    return ()


@pytest.mark.parametrize(
  'method, environment, message',
  [(None, _Free(seed=0), 'has no cost'), (cpo.Cpo(), grid_cmdp.GridCmdp(seed=0, num_constraints=2), 'one constraint')],
)
def test_bad_input_is_a_clear_message(method, environment, message):
  with pytest.raises(ValueError, match=message):
    _build(environment, method).make_learner(None, 0)


def test_the_loop_of_other_agents_is_refused():
  learner = _build(grid_cmdp.GridCmdp(seed=0)).make_learner(None, 0)
  with pytest.raises(ValueError, match='loop_factory = @RolloutLoop'):
    learner.step(1)
