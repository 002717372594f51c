"""Environments that break their contract: one sentence through the real command, before anything is built."""

import pathlib
import re
import sys

from dm_env import specs
import gymnasium
import numpy as np
import pytest

import gin
from lambda_kit import errors
from lambda_kit import types
from lambda_kit.analysis import run_record
from lambda_kit.config import configuration
from lambda_kit.environments import gymnasium_task
from lambda_kit.environments import spec as spec_lib
from lambda_kit.environments import trial
from lambda_kit.environments.safety_gym import loading
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training import rehearsal
from lambda_kit.training import train
from tests.fakes import broken  # noqa: F401 (registers)
from tests.fakes import commands
from tests.fakes import environments as fakes

_ROOT = str(pathlib.Path(__file__).resolve().parents[2])


@pytest.fixture(name='refuse')
def _refuse(monkeypatch, tmp_path):
  with commands.refusals(monkeypatch, tmp_path / 'run') as refuse:
    yield refuse


def _broken(fault: str) -> list[str]:
  return [
    'make_environment.simulator = @GymnasiumTask',
    "GymnasiumTask.task = 'Room-v0'",
    'GymnasiumTask.make = @broken.make_broken',
    f"broken.make_broken.fault = '{fault}'",
  ]


@pytest.mark.parametrize(
  'fault, sentence',
  [
    ('constructor raises', "Making the environment failed with KeyError: 'no such room'"),
    ('scalar actions', r'Room-v0 takes actions that are float32 \[\], and agents choose vectors .* Write a wrapper'),
    ('matrix actions', r'Room-v0 takes actions that are float32 \[2, 3\], and agents choose vectors'),
    ('integer actions', r'Room-v0 takes actions that are int64 \[2\], and agents choose vectors'),
    ('discrete actions', r'Room-v0 has the action space Discrete\(3\); actions must be continuous'),
    ('many discrete actions', r'Room-v0 has the action space MultiDiscrete.* must be continuous'),
    ('unbounded actions', 'without bounds, .*: entry 0 is between -inf and inf. Give them finite bounds'),
    ('inverted bounds', 'whose lower bounds are above the upper ones'),
    ('discrete observations', r'Observations in Discrete\(3\) are not supported: only boxes and dictionaries'),
    ('tuple of observations', 'Observations in Tuple.* are not supported'),
    ('two pictures', 'observes several pictures, and one is supported'),
    ('reset raises', 'The first reset of Room-v0 failed with ZeroDivisionError: no floor'),
    ('reset returns no info', r'`reset` of Room-v0 has to return an observation and a dictionary'),
    ('reset returns NaN', r"observation\['vector'\] with entries that are not finite"),
    ('reset returns an infinity', r"observation\['vector'\] with entries that are not finite"),
    ('reset returns another shape', r"'vector' as float32 \[3\] in its first reset, and its specs say float32 \[2\]"),
    ('reset returns text', 'The first reset of Room-v0 failed with ValueError: could not convert'),
    ('reset returns nothing', 'not finite'),
    ('step raises', r'The first step of Room-v0 failed with ArithmeticError: lost count \('),
    ('step returns four values', r'`step` of Room-v0 has to return \(observation, .*, and returned 4 values'),
    ('step returns NaN', r"observation\['vector'\] with entries that are not finite"),
    ('step returns another shape', r"'vector' as float32 \[3\] in its first step, and its specs say float32 \[2\]"),
    ('no cost', r"Room-v0 reports no cost \['cost'\]: `info` has \['expense'\]. Set GymnasiumTask.cost_keys"),
    ('cost is NaN', 'returned cost with entries that are not finite'),
    ('cost is None', r"reports the costs \{'cost': None\} in `info`, and each has to be one number"),
    ('cost is text', r"reports the costs \{'cost': 'high'\}"),
    ('cost has two numbers', r"reports the costs \{'cost': array"),
    ('reward is NaN', 'returned reward with entries that are not finite'),
    ('reward is None', 'The first step of Room-v0 failed with TypeError'),
  ],
)
def test_a_broken_environment_is_refused(refuse, fault, sentence):
  assert re.search(sentence, refuse(*_broken(fault)))


@pytest.mark.parametrize(
  'fault, sentence',
  [
    ('matrix actions', r'could not be built \(start_timeout = 300.0 s\): Room-v0 takes actions that'),
    ('step raises', r'Room-v0 failed in its process \(step_timeout = 60.0 s\): ArithmeticError: lost count \('),
  ],
)
def test_a_broken_environment_of_another_process_is_refused(refuse, fault, sentence):
  assert re.search(sentence, refuse(*_broken(fault), parts='isolated'))


def test_an_unknown_environment_is_refused(refuse):
  message = refuse('make_environment.simulator = @GymnasiumTask', "GymnasiumTask.task = 'Rom-v0'")
  assert message.startswith("GymnasiumTask.task = 'Rom-v0': ") and '`import my_module`' in message


class Walk(fakes.Walk):
  """Its task can be changed in ways that gymnasium's environments can't."""

  observations, reward = None, None

  def observation_spec(self):
    return self.observations or super().observation_spec()

  def step(self, action):
    timestep = super().step(action)
    return timestep if self.reward is None else timestep._replace(reward=self.reward)


def _check(environment):
  trial.check(environment, spec_lib.make_spec(environment, 1.0))


@pytest.mark.parametrize(
  'changes, sentence',
  [
    (dict(observations=[1]), r'observes \[1\], and not a mapping'),
    (dict(observations={'vector': specs.Array((2, 2), np.float32)}), r"as 'vector', which has to be real numbers"),
    (dict(observations={'vector': specs.Array((2,), np.int64)}), r"as 'vector', which has to be real numbers"),
    (dict(observations={'image': specs.Array((4, 5, 3), np.float32)}), r"as 'image', which has to be uint8"),
    (dict(observations={'vector': specs.Array((3,), np.float32)}), r"observation \['image', 'vector'\]"),
    (dict(reward=1.0), 'returned the reward 1.0, and not a reward with costs'),
    (dict(reward=types.CmdpReward(1.0, np.ones(2))), r'returned the cost array.* and not finite numbers \[3\]'),
    (dict(reward=types.CmdpReward(np.ones(1), np.ones(3))), r'returned the reward array.* and not finite numbers \[\]'),
    (dict(reward=types.CmdpReward(np.inf, np.ones(3))), 'returned the reward inf'),
    (dict(reward=types.CmdpReward(0.0, ['a'] * 3)), 'returned the cost .* and not finite numbers'),
  ],
)
def test_an_environment_that_is_not_as_its_specs_say_is_refused(changes, sentence):
  environment = Walk(0)
  vars(environment).update(changes)
  with pytest.raises(errors.SetupError, match=sentence) as error:
    _check(environment)
  assert '\n' not in str(error.value)


def test_an_environment_is_left_as_it_was():
  tried, fresh = Walk(3), Walk(3)
  tried.next_episode = fresh.next_episode = 5
  _check(tried)
  assert tried.next_episode == 5
  np.testing.assert_array_equal(tried.reset().observation['vector'], fresh.reset().observation['vector'])


def test_one_episode_that_fails_does_not_prevent_a_run():
  environment = fakes.BadReset(0)
  environment.next_episode = 1  # The one that can't be begun.
  _check(environment)
  environment.reset = lambda: 1 / 0
  with pytest.raises(errors.SetupError, match='^The first reset of BadReset failed with ZeroDivisionError: division'):
    _check(environment)


def _build(*bindings: str) -> experiment_lib.Experiment:
  bindings = ('ENVIRONMENT_STEPS = 20', 'experiment.evaluation_episodes = 1', *bindings)
  configuration.parse(['gin/tasks/grid.gin', 'gin/agents/random.gin'], bindings, [_ROOT])
  return experiment_lib.build()


@pytest.mark.parametrize(
  'fault, reason',
  [
    ('render raises', '`render` failed with RuntimeError: no brush.'),
    ('render returns nothing', '`render` returned None, and not uint8 [height, width, 3].'),
    ('render returns numbers', '`render` returned float64 [8, 8, 3], and not uint8 [height, width, 3].'),
  ],
)
def test_a_dry_run_says_that_there_will_be_no_video(caplog, fault, reason):
  with _build(*_broken(fault)) as experiment:
    rehearsal.rehearse(experiment)
  gin.clear_config()
  assert f'There will be no video: Room-v0 can not be drawn: {reason}' in caplog.text
  assert 'bind experiment.with_video = False' in caplog.text


def test_an_environment_of_ones_own_needs_neither_render_nor_safety_gymnasium(caplog, monkeypatch, tmp_path):
  monkeypatch.setattr(loading, 'safety_gymnasium', lambda: pytest.fail('It needs safety-gymnasium.'))
  monkeypatch.setitem(
    gymnasium.registry,
    'SafetyUndrawn-v0',
    gymnasium.envs.registration.EnvSpec(
      'SafetyUndrawn-v0', entry_point='tests.fakes.broken:Undrawn', max_episode_steps=20
    ),
  )
  with _build('make_environment.simulator = @GymnasiumTask', "GymnasiumTask.task = 'SafetyUndrawn-v0'") as experiment:
    rows = train.train(experiment, tmp_path)
  gin.clear_config()
  assert rows[-1]['environment_steps'] == 20 and (tmp_path / 'learning_curve.png').exists()
  assert not (tmp_path / 'video.mp4').exists() and run_record.is_finished(tmp_path)
  reason = 'SafetyUndrawn-v0 can not be drawn: `render` failed with NotImplementedError.'
  assert (
    f'There will be no video: {reason}' in caplog.text
    and f'There is no video of the last evaluation: {reason}' in caplog.text
  )


def test_without_gymnasium_the_remedy_is_told(monkeypatch):
  monkeypatch.setitem(sys.modules, 'gymnasium', None)
  with pytest.raises(loading.SimulatorMissing, match='Walk-v0 needs gymnasium, .* `pip install gymnasium`'):
    gymnasium_task.GymnasiumTask(0, 'Walk-v0')
