"""Dry runs: what they measure, and that what would die at its first update is refused in one sentence."""

import pathlib

import pytest

import gin
from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit import errors
from lambda_kit.agents import random_agent
from lambda_kit.config import configuration
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training import rehearsal

_ROOT = str(pathlib.Path(__file__).resolve().parents[2])
_TINY_LAMBDA = (
  'WIDTH = 8',
  'LambdaAgent.num_start_states = 16',
  'LambdaAgent.batch_size = 4',
  'LambdaAgent.num_samples = 2',
  'LambdaAgent.horizon = 3',
  'EpisodeBuffer.sequence_length = 5',
  'Swag.burn_in = 1',  # These three for the program that tests/launchers/test_run.py compiles, too.
  'Swag.period = 1',
  'Swag.num_models = 2',
  'PeriodicUpdates.first = 200',
)
_TINY_PPO = ('RolloutLoop.steps_per_epoch = 200', 'RolloutLoop.num_environments = 2')


def _rehearse(*bindings, agent='lambda'):
  files = ['gin/tasks/grid.gin', *([f'gin/agents/{agent}.gin'] if agent != 'lambda' else [])]
  configuration.parse(files, ('ENVIRONMENT_STEPS = 2000', *bindings), [_ROOT])
  try:
    with experiment_lib.build() as experiment:
      return rehearsal.rehearse(experiment)
  finally:
    gin.clear_config()


def test_lambda():
  measured = _rehearse(
    *_TINY_LAMBDA,
    'PeriodicUpdates.initial_updates = 10',
    'PeriodicUpdates.every = 100',
    'PeriodicUpdates.updates = 3',
    'experiment.evaluate_every = 600',
  )
  # 10, and 3 after each 100 of the 1,800 steps that follow. Evaluations at 600, 1,200, 1,800 and 2,000.
  assert (measured.updates, measured.agent_steps, measured.evaluations) == (10 + 3 * 18, 2000, 4)
  assert measured.update_seconds > 0.0 and measured.step_seconds > 0.0 and measured.evaluation_seconds > 0.0
  assert measured.peak_bytes > 2**26
  assert 'Peak memory: ' in measured.describe() and 'Estimated duration: ' in measured.describe()


def test_ppo():
  measured = _rehearse(*_TINY_PPO, agent='ppo')
  assert measured.updates == 10 and measured.update_seconds > 0.0 and not measured.has_replay  # 2,000 / 200.


def test_random():
  measured = _rehearse(agent='random')
  assert measured.agent_steps == 2000 and measured.seconds < 60.0


def test_the_duration_is_that_of_updates_steps_and_evaluations():
  measured = rehearsal.Rehearsal(
    updates=100,
    update_seconds=2.0,
    agent_steps=1000,
    step_seconds=0.01,
    evaluations=3,
    evaluation_seconds=20.0,
    peak_bytes=2**30,
    device_bytes=2**31,
    has_replay=True,
  )
  assert measured.seconds == 200.0 + 10.0 + 60.0
  assert measured.describe() == (
    'Peak memory: 1 GiB, and 2 GiB on the device; the replay grows beyond that.\n'
    'Estimated duration: 4.5 minutes: 100 updates of 2.0 s, 1,000 agent steps of 10 ms, 3 evaluations of 20.0 s.'
  )


@pytest.mark.parametrize(
  'agent, bindings, message',
  [
    ('lambda', (*_TINY_LAMBDA, 'LambdaAgent.num_start_states = 21'), 'num_start_states = 21 is more than the 20'),
    # Episodes have 100 steps, and 101 time steps.
    ('lambda', (*_TINY_LAMBDA, 'PeriodicUpdates.first = 99'), 'the replay has 0 finished episodes'),
    ('lambda', (*_TINY_LAMBDA, 'EpisodeBuffer.sequence_length = 102'), 'is longer than an episode, which has 101'),
    ('ppo', ('RolloutLoop.steps_per_epoch = 198', 'RolloutLoop.num_environments = 2'), 'No episode ended within 99'),
  ],
)
def test_what_would_die_at_its_first_update_is_refused(agent, bindings, message):
  with pytest.raises(errors.UserError, match=message) as caught:
    _rehearse(*bindings, agent=agent)
  assert len(configuration.format_error(caught.value).splitlines()) == 1


def test_any_other_error_is_one_sentence(monkeypatch):
  def step(self, num_updates):
    raise TypeError('shapes differ\nin detail')

  monkeypatch.setattr(random_agent.RandomLearner, 'step', step)
  with pytest.raises(errors.SetupError) as caught:
    _rehearse('PeriodicUpdates.first = 200', agent='random')
  assert str(caught.value) == 'The first update would fail with TypeError: shapes differ (--traceback shows where.)'


def test_without_updates_there_is_nothing_to_fail():
  assert _rehearse(*_TINY_LAMBDA[:-1], 'PeriodicUpdates.first = 3000').updates == 0
