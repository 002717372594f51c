"""What a run writes about its model's predictions, at tiny size and before anything was learned."""

import json
import types

import numpy as np
from PIL import Image
import pytest

from lambda_kit.agents import actor as actor_lib
from lambda_kit.agents import random_agent
from lambda_kit.analysis import prediction
from lambda_kit.training import evaluation
from tests.fakes import specs
from tests.fakes import tiny

_SEED = 3


class _Experiment:
  """What a prediction needs of an experiment."""

  def __init__(self, agent, episode_length=12):
    environment = tiny.make_environment(episode_length=episode_length)
    spec = specs.of(environment)
    builder = agent.build(spec)
    learner = builder.make_learner(builder.make_dataset(builder.make_replay(environment_steps=100, seed=0)), seed=1)
    actor = actor_lib.Actor(builder.make_actor_core(evaluation=True), learner, seed=2)
    self.evaluator = evaluation.Evaluator(environment, actor, spec, num_episodes=2)
    self.predictor = builder.make_predictor(learner, _SEED)

  def write(self, number, folder):
    return prediction.write_prediction(self.predictor, self.evaluator.watch, number, 500, 'Tiny', folder)


@pytest.fixture(scope='module')
def experiment():
  return _Experiment(tiny.make_agent())


class TestWatching:
  def test_the_beginning_of_the_first_episode(self, experiment):
    observation, action, _, cost = experiment.evaluator.watch(number=3, num_steps=7)
    assert observation['vector'].shape == (8, 2) and action.shape == (7, 2) and cost.shape == (7, 1)
    environment = tiny.make_environment()
    environment.next_episode = 6  # Evaluation 3 of two episodes each.
    expected = [environment.reset().observation['vector']]
    expected += [environment.step(a).observation['vector'] for a in action]
    np.testing.assert_array_equal(observation['vector'], expected)

  def test_a_short_episode(self, experiment):
    observation, action, *_ = experiment.evaluator.watch(number=0)
    assert observation['vector'].shape == (13, 2) and action.shape == (12, 2)

  @pytest.mark.parametrize(
    'look', [lambda evaluator: evaluator.watch(0, 3), lambda evaluator: next(evaluator.record(0))]
  )
  def test_fresh_variables_are_acted_with(self, look):
    """A resumed run may film an evaluation that another process has run."""
    updated = []
    actor = types.SimpleNamespace(
      update=lambda: updated.append(True),
      reseed=lambda _: None,
      observe_first=lambda _: None,
      observe=lambda *_: None,
      select_action=lambda _: np.zeros(2, np.float32),
    )
    environment = tiny.make_environment()
    look(evaluation.Evaluator(environment, actor, specs.of(environment), num_episodes=2))
    assert updated == [True]


class TestWriting:
  def test_files_and_errors(self, experiment, tmp_path):
    path = experiment.write(1, tmp_path)
    assert path == tmp_path / 'prediction.png'
    assert sorted(file.name for file in tmp_path.iterdir()) == ['prediction.json', 'prediction.png', 'prediction.svg']
    with Image.open(path) as image:
      assert image.format == 'PNG' and image.width > 800
    content = json.loads((tmp_path / 'prediction.json').read_text())
    assert (content['environment_steps'], content['evaluation'], content['num_seen']) == (500, 1, 5)
    # An episode of 12 steps has 13 observations, of which 5 are seen.
    observation, action, *_ = experiment.evaluator.watch(1, 12)
    result = experiment.predictor(observation, action, 5)
    errors = content['errors']['vector']
    assert len(errors['model']) == len(errors['last_seen']) == 8
    np.testing.assert_allclose(errors['model'], np.abs(result.truth['vector'] - result.model['vector']).mean(axis=1))
    np.testing.assert_allclose(
      errors['last_seen'], [np.abs(truth - result.last_seen['vector']).mean() for truth in result.truth['vector']]
    )

  def test_a_run_goes_on_as_if_nothing_had_been_predicted(self, experiment, tmp_path):
    before = experiment.evaluator.run(1)
    experiment.write(1, tmp_path / 'first')
    after = experiment.evaluator.run(1)
    experiment.write(1, tmp_path / 'second')
    np.testing.assert_equal(before, after)
    for name in ('prediction.json', 'prediction.png', 'prediction.svg'):
      assert (tmp_path / 'first' / name).read_bytes() == (tmp_path / 'second' / name).read_bytes()

  def test_agents_without_a_model_have_none(self, tmp_path):
    assert _Experiment(random_agent.RandomAgent()).write(0, tmp_path) is None
    assert not list(tmp_path.iterdir())

  def test_an_episode_that_ends_too_soon_has_none(self, tmp_path):
    assert _Experiment(tiny.make_agent(), episode_length=4).write(0, tmp_path) is None
    assert not list(tmp_path.iterdir())
