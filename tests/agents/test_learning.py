"""The learner and the actor, at tiny size on the built-in CMDP."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit import errors
from lambda_kit import types
from lambda_kit.agents.lambda_ import update
from lambda_kit.models import known_cost
from lambda_kit.models import optimizers
from lambda_kit.planners import mpc
from lambda_kit.posteriors import ensemble
from lambda_kit.posteriors import multiswag
from lambda_kit.posteriors import width
from lambda_kit.replay import archive
from lambda_kit.replay import buffer
from lambda_kit.safety import feedback
from lambda_kit.safety import recalibration
from tests.fakes import linear
from tests.fakes import tiny


@pytest.fixture(scope='module')
def parts():
  return tiny.Parts()


@pytest.fixture(scope='module', name='constrained_parts')
def _constrained_parts():
  """One limit is exceeded, the other is out of reach. All tests share what is slow: to compile the update."""
  parts = tiny.Parts(
    num_constraints=2, cost_limit=(0.0, 50.0), max_skips=2, feedback=feedback.IntegralFeedback(memory=1.0)
  )
  return parts, jax.tree.map(np.array, parts.learner.save())


@pytest.fixture
def constrained(constrained_parts):
  parts, start = constrained_parts
  parts.learner.restore(start)
  return parts


def test_updates_change_everything_that_learns(parts):
  before = jax.tree.map(np.array, parts.learner.save())
  metrics = parts.learner.step(6)
  after = parts.learner.save()
  assert all(np.isfinite(value) for value in metrics.values()), metrics
  for name in ('policy', 'critic', 'cost_critics', 'posterior', 'solver', 'normalizer'):
    changed = [
      not np.array_equal(a, b)
      for a, b in zip(jax.tree.leaves(getattr(before, name)), jax.tree.leaves(getattr(after, name)))
    ]
    assert any(changed), name
  assert int(after.updates) == int(before.updates) + 6
  for name in ('objective', 'cost_value/0', 'multiplier/0', 'kl', 'policy_gradient_norm', 'critic_loss'):
    assert name in metrics


def test_the_model_learns_first_and_alone():
  parts = tiny.Parts(model_only_updates=2, updates_per_call=1)
  copy = lambda: jax.tree.map(np.array, parts.learner.save())
  leaves = lambda state, name: jax.tree.leaves(getattr(state, name))
  changed = lambda name, one, other: any(
    not np.array_equal(a, b) for a, b in zip(leaves(one, name), leaves(other, name))
  )
  start = copy()
  imagined = ('policy', 'critic', 'target_critic', 'cost_critics', 'target_cost_critics', 'solver')
  metrics = parts.learner.step(2)
  waiting = copy()
  assert metrics['multiplier/0'] == pytest.approx(1e-6)  # That of the beginning.
  assert changed('posterior', start, waiting) and changed('normalizer', start, waiting) and waiting.updates == 2
  assert not any(changed(name, start, waiting) for name in imagined)
  parts.learner.step(1)
  # What is left, the target critics, follows when `target_update` says so.
  assert all(changed(name, waiting, copy()) for name in imagined if 'target' not in name)


def test_two_updates_from_one_state_agree_to_the_bit(parts):
  state, generator = jax.tree.map(np.array, parts.learner.save()), parts.replay.rng_state()
  results = []
  for _ in range(2):
    parts.learner.restore(state)
    parts.replay.set_rng_state(generator)
    metrics = parts.learner.step(3)
    results.append((jax.tree.map(np.array, parts.learner.save()), metrics))
  (first, first_metrics), (second, second_metrics) = results
  assert first_metrics == second_metrics
  jax.tree.map(np.testing.assert_array_equal, first, second)


def test_several_updates_in_one_call_are_those_of_as_many_calls():
  parts = tiny.Parts(updates_per_call=3)
  start, generator = jax.tree.map(np.array, parts.learner.save()), parts.replay.rng_state()
  many_metrics = parts.learner.step(7)  # Two calls for three updates each, and one more update.
  many = jax.tree.map(np.array, parts.learner.save())
  assert int(many.updates) == 7
  parts.learner.restore(start)
  parts.replay.set_rng_state(generator)
  parts.learner._updates_per_call = 1
  one_metrics = parts.learner.step(7)
  one = parts.learner.save()
  assert one_metrics.keys() == many_metrics.keys()
  for name, value in one_metrics.items():
    assert many_metrics[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name
  # XLA orders sums differently inside of a loop; Adam's first steps are the sign of a gradient, however small it is.
  difference = [
    np.abs(a - b).max() for a, b in zip(jax.tree.leaves(one.policy.params), jax.tree.leaves(many.policy.params))
  ]
  assert max(difference) < 1e-4, difference


def test_posterior_samples_differ_once_there_are_snapshots(parts):
  parts.learner.step(4)
  (samples,) = parts.learner.get_variables(['samples'])
  # The prior does not move at all while the KL is below its free nats.
  for leaf in jax.tree.leaves({name: params for name, params in samples.items() if 'prior' not in name}):
    assert not np.array_equal(leaf[0], leaf[1]) and not np.array_equal(leaf[1], leaf[2])


def test_the_actor_is_random_at_first_and_follows_the_policy_later():
  parts = tiny.Parts()
  early = np.concatenate([parts.play() for _ in range(8)])
  assert np.abs(early.mean()) < 0.2 and early.std() == pytest.approx(1 / np.sqrt(3), abs=0.08)  # Uniform in [-1, 1].
  parts.learner.step(1)
  parts.actor.update()
  evaluation, again = (parts.make_actor(seed=3, evaluation=True) for _ in range(2))
  observation = parts.environment.reset().observation
  np.testing.assert_array_equal(evaluation.select_action(observation), again.select_action(observation))
  assert not np.array_equal(parts.actor.select_action(observation), parts.actor.select_action(observation))
  # An episode's belief is forgotten at the next one: the same first observation is acted upon as before.
  episodes = parts.replay.num_episodes
  evaluation.observe_first(parts.environment.reset())
  assert parts.replay.num_episodes == episodes  # Evaluations are discarded.


def test_several_constraints_have_critics_and_multipliers_of_their_own(constrained):
  metrics = constrained.learner.step(5)
  assert metrics['multiplier/0'] > metrics['multiplier/1']
  leaf = jax.tree.leaves(constrained.learner.save().cost_critics.params)[0]
  assert leaf.shape[0] == 2 and not np.array_equal(leaf[0], leaf[1])


def test_a_planner_takes_the_place_of_the_policy():
  parts = tiny.Parts(planner_factory=functools.partial(mpc.CemPlanner, horizon=3, population=8, elites=3, iterations=2))
  parts.learner.step(1)
  parts.actor.update()
  actions = parts.play()
  assert np.abs(actions).max() <= 1 and len(np.unique(actions)) > 3


@pytest.mark.parametrize('planner', [None, mpc.CemPlanner])
def test_forecasts_of_new_episodes_are_of_the_policy_if_it_plays_them(planner):
  parts = tiny.Parts(planner_factory=planner and functools.partial(planner, horizon=3, population=8, elites=3))
  parts.learner.step(1)
  state, forecasts = parts.learner.save(), []
  for shift in (0.0, 1.0):
    policy = state.policy._replace(params=jax.tree.map(lambda x, shift=shift: x + shift, state.policy.params))
    parts.learner.restore(jax.tree.map(jnp.copy, state._replace(policy=policy)))
    parts.learner.observe_episode(_episode(12))
    forecasts.append(parts.learner.save().held_out.scores.raw_forecast)
  assert np.array_equal(*forecasts) == (planner is not None)


def test_episodes_are_written_and_start_another_run(tmp_path):
  """Algorithm 2, line 1: from an offline dataset."""
  first = tiny.Parts()
  archive.ReplayArchive(tmp_path / 'data', first.replay).save()
  assert first.replay.num_episodes == 2 and len(list((tmp_path / 'data').iterdir())) == 2
  second = tiny.Parts(offline_data=str(tmp_path / 'data'))
  assert second.replay.num_episodes == 4  # Two of its own come on top.
  for (_, ours), (_, theirs) in zip(second.replay.items(), first.replay.items()):
    np.testing.assert_array_equal(ours.action, theirs.action)
  with pytest.raises(ValueError, match='data'):
    tiny.Parts(num_constraints=2, offline_data=str(tmp_path / 'data'))


def test_gradients_that_are_not_finite_are_skipped_then_reported(constrained):
  parts = constrained
  parts.learner.step(1)
  state = parts.learner.save()
  nowhere = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), state.critic.params)
  poisoned = state._replace(critic=state.critic._replace(params=nowhere))
  parts.learner.restore(poisoned)
  policy = jax.tree.map(np.array, poisoned.policy.params)
  parts.learner.step(2)
  jax.tree.map(np.testing.assert_array_equal, policy, jax.tree.map(np.array, parts.learner.save().policy.params))
  with pytest.raises(optimizers.TrainingDiverged, match='policy'):
    parts.learner.step(1)


@pytest.mark.parametrize(
  'options,message',
  [
    (dict(num_samples=0), 'num_samples'),
    (dict(horizon=0), 'horizon'),
    (dict(batch_size=0), 'batch_size'),
    (dict(model_only_updates=-1), 'model_only_updates'),
  ],
)
def test_bad_numbers_are_named(options, message):
  with pytest.raises(ValueError, match=message):
    tiny.make_agent(**options)


def test_more_start_states_than_there_are_is_refused():
  with pytest.raises(ValueError, match='num_start_states = 100 is more than the 20'):
    tiny.Parts(num_start_states=100)


@pytest.mark.parametrize('count', [None, 7])
def test_start_states_know_their_sequence(count):
  states = np.arange(4 * 5).reshape(4, 5)
  chosen, rows = update._start_states(states, count, jax.random.PRNGKey(0))
  assert len(set(np.array(chosen))) == (count or 20)
  np.testing.assert_array_equal(rows, chosen // 5)


def test_budgets_may_be_for_the_latest_episodes():
  """The first update imagines the same, and compares something else with the budget."""
  replay = functools.partial(buffer.EpisodeBuffer, sequence_length=5, recent_share=0.25)
  rows = [tiny.Parts(replay_factory=replay, constrain_recent=recent).learner.step(1) for recent in (False, True)]
  assert rows[0]['imagined_cost/0'] == rows[1]['imagined_cost/0']
  assert abs(rows[0]['cost_value/0'] - rows[1]['cost_value/0']) > 1e-5


def test_without_latest_episodes_budgets_can_not_be_for_them():
  with pytest.raises(errors.SetupError, match='constrain_recent needs .*: raise EpisodeBuffer.recent_share'):
    tiny.Parts(constrain_recent=True)


@pytest.mark.slow
@pytest.mark.parametrize('posterior', [ensemble.Ensemble, multiswag.MultiSwag])
def test_ensembles_learn_at_a_learned_width_and_resume_to_the_bit(posterior):
  parts = tiny.Parts(
    posterior_factory=posterior, width=width.LearnedWidth(scales=(1.0, 9.0)), num_reward_samples=1, updates_per_call=1
  )
  parts.learner.step(2)
  parts.learner.observe_episode(_episode(12))
  state = jax.tree.map(np.array, parts.learner.save())
  replay_state = parts.replay.rng_state()
  metrics = parts.learner.step(2)
  assert metrics['held_out_log_likelihood/cost/1'] != metrics['held_out_log_likelihood/cost/9']
  after = jax.tree.map(np.array, parts.learner.save())
  parts.learner.restore(state)
  parts.replay.set_rng_state(replay_state)
  assert parts.learner.step(2) == metrics
  jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.array, parts.learner.save()), after)


def test_an_ensemble_of_a_model_without_a_loss_of_members_is_refused():
  with pytest.raises(errors.SetupError, match='posterior_factory = @Ensemble.*LinearModel has no member_loss'):
    tiny.Parts(posterior_factory=ensemble.Ensemble, world_model_factory=lambda **shapes: linear.LinearModel())


def test_a_batched_actor_keeps_its_rows_apart():
  parts = tiny.Parts()
  parts.learner.step(2)
  spec = parts.environment.observation_spec()['vector']
  observations = np.random.default_rng(0).uniform(-1, 1, (4, 3, *spec.shape)).astype(np.float32)  # [T, k, ...]
  firsts = np.array([[1, 1, 1], [0, 0, 0], [0, 1, 0], [0, 0, 0]], bool)

  def play(observations):
    actor = parts.make_actor(seed=3, evaluation=True)
    return np.stack([actor.select_actions({'vector': rows}, first) for rows, first in zip(observations, firsts)])

  actions = play(observations)
  assert actions.shape == (4, 3, *parts.environment.action_spec().shape)
  # What the second row saw before its new episode is forgotten, what the others saw is not; no row sees another.
  changed = observations.copy()
  changed[:2, 1] += 1.0
  again = play(changed)
  np.testing.assert_array_equal(again[:, [0, 2]], actions[:, [0, 2]])
  np.testing.assert_array_equal(again[2:, 1], actions[2:, 1])
  changed = observations.copy()
  changed[:2, 0] += 1.0
  assert not np.array_equal(play(changed)[2:, 0], actions[2:, 0])


def _episode(num_steps):
  """An episode of the built-in CMDP's shapes, made up."""
  normal = lambda *shape: np.random.default_rng(0).normal(size=shape).astype(np.float32)
  length = num_steps + 1
  return types.Trajectory(
    observation={'vector': normal(length, 2)},
    action=normal(length, 2),
    reward=normal(length),
    cost=np.zeros((length, 1), np.float32),
    terminal=np.zeros(length, np.float32),
  )


def test_new_episodes_are_scored_and_decide_on_the_width():
  parts = tiny.Parts(width=width.LearnedWidth(scales=(1.0, 9.0), rate=0.5))
  assert 'posterior_scale' not in parts.learner.step(4)  # Nothing that was played since can be scored.
  parts.learner.observe_episode(_episode(12))
  metrics = parts.learner.step(1)
  by_scale = [metrics[f'held_out_log_likelihood/cost/{scale}'] for scale in (1, 9)]
  assert by_scale[0] != by_scale[1]
  expected = 3.0 if by_scale[1] > by_scale[0] else 1.0  # Half-way from 1 to 9, or where it was.
  assert metrics['posterior_scale'] == pytest.approx(expected)
  assert metrics['held_out_cost/0'] == 0.0 and metrics['held_out_forecast/0'] > 0.0
  state = jax.tree.map(np.array, parts.learner.save())
  again = tiny.Parts(width=width.LearnedWidth(scales=(1.0, 9.0), rate=0.5))
  again.learner.restore(state)
  jax.tree.map(np.testing.assert_array_equal, again.learner.save().held_out, state.held_out)
  parts.learner.observe_episode(_episode(2))  # Shorter than the horizon: nothing to score.
  jax.tree.map(np.testing.assert_array_equal, parts.learner.save().held_out, state.held_out)


def test_models_are_drawn_at_the_width():
  parts = tiny.Parts(width=width.LearnedWidth(scales=(1.0, 9.0)))
  parts.learner.step(6)
  state = parts.learner.save()
  (narrow,) = parts.learner.get_variables(['samples'])
  parts.learner.restore(state._replace(width=state.width._replace(log_scale=jnp.log(9.0))))
  (wide,) = parts.learner.get_variables(['samples'])
  spread = lambda samples: np.sqrt(sum(np.sum(np.var(leaf, axis=0)) for leaf in jax.tree.leaves(samples)))
  assert spread(wide) == pytest.approx(3.0 * spread(narrow), rel=1e-3)


def test_rewards_may_have_samples_of_their_own_width():
  parts = tiny.Parts(num_samples=3, num_reward_samples=1, width=width.LearnedWidth())
  metrics = parts.learner.step(6)
  assert metrics['value_spread'] == 0.0 and metrics['cost_value_spread/0'] > 0.0  # Of one sample, and of all three.
  state = parts.learner.save()
  (before,) = parts.learner.get_variables(['samples'])
  parts.learner.restore(state._replace(width=state.width._replace(log_scale=jnp.log(9.0))))
  (after,) = parts.learner.get_variables(['samples'])
  for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after)):
    np.testing.assert_array_equal(old[0], new[0])
    np.testing.assert_allclose(new[1] - new[2], 3.0 * (old[1] - old[2]), rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize(
  'count, message', [(0, 'should be a whole number, 1 or more, or None'), (3, 'must be None, or at most .* = 2')]
)
def test_rewards_can_not_have_more_samples_than_there_are(count, message):
  with pytest.raises(ValueError, match=f'num_reward_samples = {count} {message}'):
    tiny.Parts(num_samples=2, num_reward_samples=count)


def test_new_episodes_decide_on_the_factors_of_expected_costs():
  make = lambda: tiny.Parts(recalibration=recalibration.HeldOutRatio(memory=1.0, prior=0.0, lowest=0.1, highest=10.0))
  parts = make()
  before = parts.learner.step(4)['imagined_cost/0']
  parts.learner.observe_episode(_episode(12)._replace(cost=np.full((13, 1), 0.3, np.float32)))
  state = jax.tree.map(np.array, parts.learner.save())
  (factors,) = parts.learner.get_variables(['cost_factors'])
  np.testing.assert_allclose(factors, 0.3 / state.recalibration.forecast, rtol=1e-3)
  # The factors are those of what is imagined next, and of the next forecast.
  metrics = parts.learner.step(1)
  assert metrics['imagined_cost/0'] == pytest.approx(before * float(np.mean(factors)), rel=0.2)
  assert metrics['held_out_forecast/0'] == pytest.approx(metrics['held_out_raw_forecast/0'])
  parts.learner.observe_episode(_episode(12))
  metrics = parts.learner.step(1)
  assert metrics['held_out_forecast/0'] != pytest.approx(metrics['held_out_raw_forecast/0'])
  again = make()
  again.learner.restore(state)
  jax.tree.map(np.testing.assert_array_equal, again.learner.get_variables(['cost_factors']), [factors])


def test_new_episodes_are_as_surprising_as_they_cost_beyond_the_forecast():
  replay = functools.partial(buffer.EpisodeBuffer, sequence_length=5, surprise_share=0.5)
  parts = tiny.Parts(replay_factory=replay)
  episode = _episode(11)  # Padded to 12.
  assert not np.any(parts.learner.observe_episode(episode))  # Nothing was learned, so nothing was forecast.
  parts.learner.step(2)
  assert not np.any(parts.learner.observe_episode(episode))  # It costs nothing.
  dear = np.zeros((12, 1), np.float32)
  dear[9] = 50.0
  surprise = np.asarray(parts.learner.observe_episode(episode._replace(cost=dear)))
  metrics = parts.learner.step(1)
  assert surprise.shape == (12,) and metrics['held_out_cost/0'] > 0.0
  # Windows of three steps begin at 0, 1, 2, ..., 8: those from 6, 7 and 8 on include step 9.
  np.testing.assert_array_equal(surprise > 0.0, [6 <= t <= 11 for t in range(12)])
  np.testing.assert_allclose(surprise[6:9] / surprise[9], [0.25, 0.5, 0.75], rtol=0.01)
  assert 40.0 < surprise[9] < 50.0
  # Episodes that are played are stored with it, and learned from.
  parts.actor = parts.make_actor(seed=2, evaluation=False, adder=parts.builder.make_adder(parts.replay, parts.learner))
  parts.play()
  stored = [episode.surprise for _, episode in parts.replay.items()]
  assert stored[:2] == [None, None] and stored[2].shape == (13,) and np.isfinite(stored[2]).all()
  parts.learner.step(1)


def test_models_may_know_costs_from_observations_as_they_came():
  head = functools.partial(known_cost.KnownCost, margin=lambda x: x['vector'][..., :1] - 3.0, hidden_sizes=(8,))
  parts = tiny.Parts(
    world_model_factory=functools.partial(
      tiny.make_agent().world_model_factory, cost_factory=head, overshooting_steps=1
    )
  )
  model = parts.builder._networks.world_model
  original_loss = model.loss

  def loss_with_mean(params, batch, *rest):
    loss, output = original_loss(params, batch, *rest)
    return loss, output._replace(metrics={**output.metrics, 'raw': jnp.mean(batch.raw['vector'])})

  model.loss = loss_with_mean
  learner = parts.builder.make_learner(parts.builder.make_dataset(parts.replay), seed=1)
  state = parts.replay.rng_state()
  batch = parts.replay.sample(4)
  parts.replay.set_rng_state(state)
  metrics = learner.step(1)
  assert metrics['raw'] == pytest.approx(batch.observation['vector'].mean(), rel=1e-5)
  assert np.isfinite(metrics['loss']) and metrics['imagined_cost/0'] > 0.0 and np.isfinite(metrics['cost_log_prob'])


def test_costs_of_episodes_correct_the_budgets_and_are_saved(constrained):
  parts = constrained
  parts.learner.step(1)
  state = parts.learner.save()
  awake = state.feedback._replace(may_tighten=jnp.ones_like(state.feedback.may_tighten))
  parts.learner.restore(state._replace(feedback=awake))
  parts.learner.observe_episode(_episode(num_steps=12)._replace(cost=np.full((13, 2), 1e6, np.float32)))
  # A gain of 0.05, for an excess that counts as 4 limits.
  assert parts.learner.step(1)['budget_share/0'] == pytest.approx(np.exp(-0.2), rel=1e-5)
  np.testing.assert_allclose(parts.learner.save().feedback.log_share, [-0.2, -0.2], rtol=1e-5)
