"""What a run writes about its model's predictions, at tiny size and before anything was learned."""

import json
import types

import numpy as np
from PIL import Image
import pytest

from lambda_kit.agents import random_agent
from lambda_kit.training import evaluation
from lambda_kit.analysis import prediction
from lambda_kit.training import experiment as experiment_lib
from tests.agents import tiny

_SEEDS = experiment_lib.Seeds.derive(0)


def _make_experiment(agent, episode_length=12):
  """What a prediction needs of an experiment."""
  environment = tiny.make_environment(episode_length=episode_length)
  replay = agent.make_replay(environment, environment_steps=100, seed=0)
  learner = agent.make_learner(environment, agent.make_dataset_iterator(replay), seed=1)
  actor = agent.make_actor(environment, learner, None, seed=2, evaluation=True)
  return types.SimpleNamespace(
      agent=agent, evaluation_environment=environment, learner=learner, seeds=_SEEDS,
      evaluator=evaluation.Evaluator(environment, actor, num_episodes=2), settings=types.SimpleNamespace(title='Tiny'))


@pytest.fixture(scope='module')
def experiment():
  return _make_experiment(tiny.make_agent())


class TestWatching:

  def test_the_beginning_of_the_first_episode(self, experiment):
    observation, action, cost = experiment.evaluator.watch(number=3, num_steps=7)
    assert observation['vector'].shape == (8, 2) and action.shape == (7, 2) and cost.shape == (7, 1)
    environment = tiny.make_environment()
    environment.next_episode = 6  # Evaluation 3 of two episodes each.
    expected = [environment.reset().observation['vector']]
    expected += [environment.step(a).observation['vector'] for a in action]
    np.testing.assert_array_equal(observation['vector'], expected)

  def test_a_short_episode(self, experiment):
    observation, action, _ = experiment.evaluator.watch(number=0)
    assert observation['vector'].shape == (13, 2) and action.shape == (12, 2)

  @pytest.mark.parametrize('look', [lambda evaluator: evaluator.watch(0, 3),
                                    lambda evaluator: next(evaluator.record(0, 1.0))])
  def test_fresh_variables_are_acted_with(self, look):
    """A resumed run may film an evaluation that another process has run."""
    updated = []
    actor = types.SimpleNamespace(update=lambda wait: updated.append(wait), reseed=lambda _: None,
                                  observe_first=lambda _: None, observe=lambda *_: None,
                                  select_action=lambda _: np.zeros(2, np.float32))
    look(evaluation.Evaluator(tiny.make_environment(), actor, num_episodes=2))
    assert updated == [True]


class TestWriting:

  def test_files_and_errors(self, experiment, tmp_path):
    path = prediction.write_prediction(experiment, 1, 500, tmp_path)
    assert path == tmp_path / 'prediction.png'
    assert sorted(file.name for file in tmp_path.iterdir()) == ['prediction.json', 'prediction.png', 'prediction.svg']
    with Image.open(path) as image:
      assert image.format == 'PNG' and image.width > 800
    content = json.loads((tmp_path / 'prediction.json').read_text())
    assert (content['environment_steps'], content['evaluation'], content['num_seen']) == (500, 1, 5)
    # An episode of 12 steps has 13 observations, of which 5 are seen.
    observation, action, _ = experiment.evaluator.watch(1, 12)
    predictor = experiment.agent.make_predictor(experiment.evaluation_environment, experiment.learner,
                                                _SEEDS.evaluation_actor)
    result = predictor(observation, action, 5)
    errors = content['errors']['vector']
    assert len(errors['model']) == len(errors['last_seen']) == 8
    np.testing.assert_allclose(errors['model'], np.abs(result.truth['vector'] - result.model['vector']).mean(axis=1))
    np.testing.assert_allclose(errors['last_seen'],
                               [np.abs(truth - result.last_seen['vector']).mean() for truth in result.truth['vector']])

  def test_a_run_goes_on_as_if_nothing_had_been_predicted(self, experiment, tmp_path):
    before = experiment.evaluator.run(1)
    prediction.write_prediction(experiment, 1, 500, tmp_path / 'first')
    after = experiment.evaluator.run(1)
    prediction.write_prediction(experiment, 1, 500, tmp_path / 'second')
    np.testing.assert_equal(before, after)
    for name in ('prediction.json', 'prediction.png', 'prediction.svg'):
      assert (tmp_path / 'first' / name).read_bytes() == (tmp_path / 'second' / name).read_bytes()

  def test_agents_without_a_model_have_none(self, tmp_path):
    assert prediction.write_prediction(_make_experiment(random_agent.RandomAgent()), 0, 500, tmp_path) is None
    assert not list(tmp_path.iterdir())

  def test_an_episode_that_ends_too_soon_has_none(self, tmp_path):
    short = _make_experiment(tiny.make_agent(), episode_length=4)
    assert prediction.write_prediction(short, 0, 500, tmp_path) is None
    assert not list(tmp_path.iterdir())
