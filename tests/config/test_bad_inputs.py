"""Wrong settings through the real command: one sentence with the binding and a remedy, before anything is built."""

import re

import numpy as np
import pytest

from lambda_kit import errors
from lambda_kit.agents.lambda_ import builder
from lambda_kit.replay import offline
from lambda_kit.training import experiment
from tests.fakes import commands
from tests.fakes import replay as replay_fakes


@pytest.fixture(name='refuse')
def _refuse(monkeypatch, tmp_path):
  with commands.refusals(monkeypatch, tmp_path / 'run') as refuse:
    yield refuse


# Each is refused by its binding's name and what it should be, from the annotation of the parameter alone.
_COUNT = ('a whole number, 1 or more', '0', '-1', '2.5', "'16'", 'True')
_NOT_NEGATIVE = ('a finite number, 0 or more', '-1.0', '1e999')
_POSITIVE = ('a finite number, more than 0', '0.0', '-1.0', '1e999', 'True')
_CLIP = ('a number, more than 0', '0.0', '-1e999')
_SHARE = ('a number between 0 and 1', '-0.1', '1.5', '1e999')
_DISCOUNT = ('a number, more than 0 and at most 1', '0.0', '-0.1', '1.5')
_OUT_OF_RANGE = {
  'experiment.environment_steps': _COUNT,
  'experiment.evaluate_every': _COUNT,
  'experiment.evaluation_episodes': _COUNT,
  'experiment.checkpoint_steps': _COUNT,
  'experiment.checkpoint_seconds': _CLIP,
  'experiment.keep_checkpoints': _COUNT,
  'experiment.max_failed_episodes': ('a whole number, 0 or more', '-1', '0.5'),
  'experiment.seed': ('a whole number, 0 or more', '-1', '1.5'),
  'experiment.with_video': ('True or False', '1'),
  'make_environment.action_repeat': _COUNT,
  'GridCmdp.episode_length': _COUNT,
  'GridCmdp.slip': _SHARE,
  'GridCmdp.num_constraints': ('a whole number between 1 and 2', '0', '3'),
  'PeriodicUpdates.first': ('a whole number, 0 or more', '-1', '1.5'),
  'PeriodicUpdates.every': _COUNT,
  'PeriodicUpdates.updates': ('a whole number, 0 or more', '-1'),
  'EpisodeBuffer.sequence_length': _COUNT,
  'EpisodeBuffer.max_bytes': (*_COUNT, '1.5e9'),
  'EpisodeBuffer.max_episodes': _COUNT,
  'EpisodeBuffer.recent_share': _SHARE,
  'LambdaAgent.batch_size': _COUNT,
  'LambdaAgent.num_samples': _COUNT,
  'LambdaAgent.num_start_states': _COUNT,
  'LambdaAgent.horizon': _COUNT,
  'LambdaAgent.updates_per_call': _COUNT,
  'LambdaAgent.model_only_updates': ('a whole number, 0 or more', '-1'),
  'LambdaAgent.max_skips': ('a whole number, 0 or more', '-1'),
  'LambdaAgent.num_devices': _COUNT,
  'LambdaAgent.discount': _DISCOUNT,
  'LambdaAgent.cost_discount': _DISCOUNT,
  'LambdaAgent.lambda_': _SHARE,
  'LambdaAgent.entropy_scale': _NOT_NEGATIVE,
  'LambdaAgent.policy_learning_rate': _POSITIVE,
  'LambdaAgent.critic_learning_rate': _POSITIVE,
  'LambdaAgent.cost_critic_learning_rate': _POSITIVE,
  'LambdaAgent.policy_clip': _CLIP,
  'RecurrentWorldModel.stochastic_size': _COUNT,
  'RecurrentWorldModel.min_stddev': _POSITIVE,
  'RecurrentWorldModel.kl_balance': _SHARE,
  'RecurrentWorldModel.free_nats': _NOT_NEGATIVE,
  'RecurrentWorldModel.decoded_steps': _COUNT,
  'BernoulliCost.unsafe_weight': _POSITIVE,
  'SquashedGaussianPolicy.init_std': _POSITIVE,
  'SquashedGaussianPolicy.min_std': _NOT_NEGATIVE,
  'Swag.learning_rate': _POSITIVE,
  'Swag.clip_norm': _CLIP,
  'Swag.cyclic_factor': ('a finite number, 1 or more', '0.0'),
  'Swag.num_models': ('a whole number, 2 or more', '1'),
  'Swag.period': _COUNT,
  'Swag.decay': _DISCOUNT,
  'SlowTarget.rate': _DISCOUNT,
  'AugmentedLagrangian.initial_multiplier': _NOT_NEGATIVE,
  'AugmentedLagrangian.initial_penalty_factor': _POSITIVE,
  'AugmentedLagrangian.growth': _NOT_NEGATIVE,
  'EpisodicBudget.share': _SHARE,
}
_OTHER_PARTS = {
  ('agent', 'ppo'): {
    'RolloutLoop.steps_per_epoch': _COUNT,
    'RolloutLoop.num_environments': _COUNT,
    'RolloutLoop.num_processes': _COUNT,
    'OnPolicyAgent.discount': _DISCOUNT,
    'OnPolicyAgent.critic_batch_size': _COUNT,
    'OnPolicyAgent.critic_iterations': _COUNT,
    'OnPolicyAgent.critic_learning_rate': _POSITIVE,
    'GaussianPolicy.hidden_sizes': ('a sequence in which each is a whole number, 1 or more', '(64, 0)', '64'),
    'Ppo.clip': _POSITIVE,
    'Ppo.target_kl': _POSITIVE,
    'Ppo.batch_size': _COUNT,
  },
  ('agent', 'cpo'): {
    'Cpo.damping': _NOT_NEGATIVE,
    'Cpo.shrinkage': ('a number, more than 0 and less than 1', '0.0', '1.0'),
    'Cpo.cg_iterations': _COUNT,
  },
  ('parts', 'posterior_ensemble'): {'Ensemble.num_members': _COUNT, 'Ensemble.prior_scale': _NOT_NEGATIVE},
  ('parts', 'width_learned'): {
    'LearnedWidth.scales': ('a sequence in which each is a finite number, more than 0', '(1.0, -2.0)'),
    'LearnedWidth.memory': ('a finite number, 1 or more', '0.5'),
  },
  ('parts', 'planner_cem'): {
    'CemPlanner.horizon': _COUNT,
    'CemPlanner.discount': _DISCOUNT,
    'CemPlanner.elites': _COUNT,
  },
  ('parts', 'solver_pid'): {'PidLagrangian.kp': _NOT_NEGATIVE, 'PidLagrangian.smoothing': ('less than 1', '1.0')},
  ('parts', 'feedback_integral'): {'IntegralFeedback.gain': _POSITIVE},
  ('parts', 'recalibration_held_out'): {'HeldOutRatio.memory': ('a finite number, 1 or more', '0.0')},
  ('parts', 'isolated'): {'IsolatedEnvironment.step_timeout': _POSITIVE},
}


@pytest.mark.parametrize('name', _OUT_OF_RANGE)
def test_a_value_out_of_range_is_refused(refuse, name):
  expected, *values = _OUT_OF_RANGE[name]
  for value in values:
    message = refuse(f'{name} = {value}')
    assert message.startswith(f'--gin_bindings="{name} = {value}": {name} = ') and f'should be {expected}' in message


@pytest.mark.parametrize('flag, choice', _OTHER_PARTS)
def test_values_of_other_parts_out_of_range_are_refused(refuse, flag, choice):
  for name, (expected, *values) in _OTHER_PARTS[flag, choice].items():
    for value in values:
      message = refuse(f'{name} = {value}', **{flag: choice})
      assert f': {name} = ' in message and 'should be ' in message and expected in message


_MISFITS = [
  ('ENVIRONMENT_STEPS = 1e5', 'ENVIRONMENT_STEPS = 100000.0 .* 1 or more. Write ENVIRONMENT_STEPS = 100000.'),
  ('WIDTH = 0', r'WIDTH = 0 \(used by RecurrentWorldModel.deterministic_size\) should be a whole number, 1 or more'),
  ('COST_LIMIT = -1.0', 'cost_limit = -1.0: a limit must not be negative; 0 allows no cost'),
  ('COST_LIMIT = 1e999', 'cost_limit = inf: a limit must be finite; to train without .* @Unconstrained'),
  ('COST_LIMIT = True', r'COST_LIMIT = True \(used by experiment.cost_limit\) should be a number or a sequence'),
  ('COST_LIMIT = (5.0, True)', 'COST_LIMIT = .* should be a number or a sequence'),
  ('COST_LIMIT = (5.0, 5.0)', '2 limits for the 1 constraints .*: give one for all of them, or one for each'),
  ('COST_LIMIT = ()', '0 limits for the 1 constraints'),
  ('VectorEncoder.hidden_sizes = 64', 'Write VectorEncoder.hidden_sizes = .64,'),
  ('reward_critic/Critic.hidden_sizes = (8, 0)', r'reward_critic/Critic.hidden_sizes = \(8, 0\) should be'),
  ('LambdaAgent.num_reward_samples = 9', 'num_reward_samples = 9 must be None, or at most LambdaAgent.num_samples = 3'),
  ('LambdaAgent.num_start_states = 999', 'num_start_states = 999 is more than the 160 states .*batch_size'),
  ('LambdaAgent.precision = "float8"', "LambdaAgent.precision = 'float8' is not supported: .* Bind it to"),
  ('LambdaAgent.num_devices = 1000', 'LambdaAgent.num_devices = 1000, and JAX sees'),
  ('LambdaAgent.offline_data = "/nowhere"', "LambdaAgent.offline_data = '/nowhere': There is no dataset folder"),
  ('LambdaAgent.offline_data = "/dev/null"', "LambdaAgent.offline_data = '/dev/null': There is no dataset folder"),
  ('EpisodeBuffer.sequence_length = 102', 'is longer than an episode, which has 101 time steps .* lower it'),
  # 28 bytes for each of 101 time steps.
  ('EpisodeBuffer.max_bytes = 2827', r'max_bytes = 2827 .* less than one episode of 101 time steps takes.*raise it'),
  ('AugmentedLagrangian.max_penalty_factor = 1e-9', 'initial_penalty_factor = .* must be at most .*max_penalty_factor'),
  ('GridCmdp.layout = ("S.", "G")', 'GridCmdp.layout is a tuple of rows of the same length'),
  ('GridCmdp.observations = ("sound",)', "GridCmdp.observations must be a tuple of 'vector', 'image' or both"),
  ('GridCmdp.image_size = 3', 'GridCmdp.image_size = 3 is too small for a room'),
  ('experiment.symptoms = [@EntropyCollapse(), @EntropyCollapse()]', 'experiment.symptoms has one twice'),
  (
    'experiment.symptoms = [@Swag]',
    'experiment.symptoms = .* should be a sequence in which each is an object of the kind',
  ),
]


@pytest.mark.parametrize('binding, message', _MISFITS)
def test_what_does_not_fit_is_refused(refuse, binding, message):
  assert re.search(message, refuse(binding))


@pytest.mark.parametrize(
  'binding, message, flags',
  [
    ('Ensemble.num_members = 2', 'num_samples = 3 is more than the 2 models', dict(parts='posterior_ensemble')),
    ('LearnedWidth.evidence = ("hope",)', r"names \['hope'\], and episodes are scored by", dict(parts='width_learned')),
    (
      'LearnedWidth.scales = (3.0, 1.0)',
      'LearnedWidth.scales must be numbers that increase',
      dict(parts='width_learned'),
    ),
    ('CemPlanner.elites = 1000', 'CemPlanner.elites = 1000 must be at most', dict(parts='planner_cem')),
  ],
)
def test_other_parts_that_do_not_fit_are_refused(refuse, binding, message, flags):
  assert re.search(message, refuse(binding, **flags))


@pytest.mark.parametrize(
  'binding, message, flags',
  [
    # Found while the initial parameters are traced.
    ('GridCmdp.observations = ("image",)', 'ImageDecoder.kernels = .* have 16x16. Bind other', dict(learner='real')),
    ('INITIAL_MULTIPLIER = (1.0, 2.0)', '1 constraints, and the solver 2 initial multipliers', dict(learner='real')),
    ('GridCmdp.num_constraints = 2', 'Cpo solves for one constraint', dict(agent='cpo', learner='real')),
    # Found when the loop gets its learner.
    ('experiment.schedule = None', 'bind experiment.schedule = @PeriodicUpdates', dict(learner='empty')),
    ('RolloutLoop.steps_per_epoch = 7', 'must be a multiple of RolloutLoop', dict(agent='ppo', learner='empty')),
    ('RolloutLoop.num_processes = 999', 'num_processes = 999 must be between 1', dict(agent='ppo', learner='empty')),
  ],
)
def test_what_shows_with_the_learner_is_a_sentence(refuse, binding, message, flags):
  assert re.search(message, refuse(binding, **flags))


def test_offline_data_of_another_task_are_refused(refuse, tmp_path):
  offline.save_dataset(tmp_path / 'data', [replay_fakes.make_episode(0, 20)], replay_fakes.HEADER)
  message = refuse(f'LambdaAgent.offline_data = "{tmp_path / "data"}"')
  assert message.startswith('LambdaAgent.offline_data = ') and 'episode-000000.npz belongs to another task' in message


def test_an_older_run_stays_as_it_was(refuse, tmp_path):
  (tmp_path / 'run').mkdir()
  (tmp_path / 'run' / 'episode.jsonl').write_text('{}')
  for binding in ('LambdaAgent.horizon = 0', 'EpisodeBuffer.max_bytes = 10'):
    refuse(binding)


@pytest.mark.parametrize('binding', ['LambdaAgent.horizon = 0', 'EpisodeBuffer.max_bytes = 10', 'COST_LIMIT = -1'])
def test_a_dry_run_says_the_same(refuse, binding):
  assert refuse(binding, dry_run='true') == refuse(binding)


def test_python_gets_the_same_sentences():
  with pytest.raises(errors.SetupError, match=r'^LambdaAgent\.horizon = 0 should be a whole number, 1 or more\.$'):
    builder.LambdaAgent(horizon=0)
  with pytest.raises(errors.SetupError, match=r"^LambdaAgent\.batch_size = '16' should be"):
    builder.LambdaAgent(batch_size='16')
  with pytest.raises(errors.SetupError, match=r'^LambdaAgent\.policy_learning_rate = nan should be a finite number'):
    builder.LambdaAgent(policy_learning_rate=float('nan'))
  with pytest.raises(errors.SetupError, match=r'^experiment\.evaluate_every = 2\.5 should be a whole number'):
    experiment.build(None, None, None, environment_steps=1, evaluate_every=2.5)
  assert builder.LambdaAgent(batch_size=np.int64(3), discount=np.float32(0.5), num_reward_samples=None).horizon == 15
