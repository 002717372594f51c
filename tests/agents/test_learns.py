"""The learning proof in short: LAMBDA in a room of fifteen cells."""

import numpy as np
import pytest

from lambda_kit.environments import grid_cmdp
from lambda_kit.environments import occupancy
from tests.fakes import grid
from tests.faults import runs

# The straight way to the goal leads through a hazard. Going around it takes as many moves.
_LAYOUT = ('.....', '.....', 'S.1.G')
_LIMIT = 2.0
_BINDINGS = (
  f'GridCmdp.layout = {_LAYOUT}',
  'GridCmdp.episode_length = 50',
  f'COST_LIMIT = {_LIMIT}',
  'WIDTH = 32',
  'ENVIRONMENT_STEPS = 5_000',
  'experiment.evaluate_every = 500',
  'experiment.with_video = False',
  'PeriodicUpdates.first = 1_000',
  'PeriodicUpdates.initial_updates = 200',
  'PeriodicUpdates.updates = 25',
  'EpisodeBuffer.sequence_length = 12',
  'LambdaAgent.batch_size = 8',
  'LambdaAgent.num_start_states = 64',
  'LambdaAgent.horizon = 6',
  'LambdaAgent.num_samples = 2',
  'Swag.burn_in = 100',
  'EpisodeBuffer.max_episodes = 105',
  'AugmentedLagrangian.initial_multiplier = 0.01',
  'AugmentedLagrangian.initial_penalty_factor = 3e-4',
)


@pytest.mark.slow
def test_lambda_learns_to_go_around_a_hazard(tmp_path):
  workdir = tmp_path / 'run'
  runs.finish(workdir, ('--gin_file=gin/tasks/grid.gin', *(f'--gin_bindings={binding}' for binding in _BINDINGS)))
  last = runs.rows(workdir, 'evaluation')[-2:]
  episode_return, cost_return = (np.mean([row[name] for row in last]) for name in ('episode_return', 'cost_return'))
  environment = grid_cmdp.GridCmdp(0, layout=_LAYOUT, episode_length=50)
  random, optimum = grid.random_value(environment), occupancy.solve(environment.finite_cmdp(), [_LIMIT])
  # At least 85% of the way from random actions to the optimum.
  assert episode_return >= 0.15 * random.value + 0.85 * optimum.value and cost_return <= _LIMIT, last
  # Random actions cost more than the limit, and the agent stays below it in training, too, once it has learned.
  assert random.cost_values[0] > _LIMIT
  late = [row['cost_return'][0] for row in runs.rows(workdir, 'episode') if row['environment_steps'] > 3_000]
  assert sum(late) / len(late) <= _LIMIT


# Each crossing of this corridor earns 1 and costs 1, and the cost head (`fakes/half_blind.py`) reports half of it.
_BLIND_BINDINGS = (
  "GridCmdp.layout = ('S1G',)",
  'GridCmdp.episode_length = 50',
  'COST_LIMIT = 5.0',
  'WIDTH = 32',
  'RecurrentWorldModel.cost_factory = @HalfBlindCost',
  'HalfBlindCost.hidden_sizes = (32, 32)',
  'HalfBlindCost.unsafe_weight = 3.0',
  'HalfBlindCost.correct_for_weight = True',
  'ENVIRONMENT_STEPS = 40_000',
  'experiment.evaluate_every = 40_000',
  'experiment.with_video = False',
  'PeriodicUpdates.first = 1_000',
  'PeriodicUpdates.initial_updates = 200',
  'PeriodicUpdates.every = 50',
  'PeriodicUpdates.updates = 12',
  'EpisodeBuffer.sequence_length = 12',
  'EpisodeBuffer.max_episodes = 40',
  'LambdaAgent.batch_size = 8',
  'LambdaAgent.num_start_states = 64',
  'LambdaAgent.horizon = 6',
  'LambdaAgent.num_samples = 2',
  'LambdaAgent.cost_bound = @MeanBound()',
  'LambdaAgent.entropy_scale = 0.03',
  'Swag.burn_in = 100',
  'PidLagrangian.kp = 2.0',
  'PidLagrangian.ki = 3e-3',
  'PidLagrangian.kd = 0.0',
)


def _late_costs(tmp_path, parts, *bindings):
  """The mean cost of the second half of training's episodes."""
  half_blind = tmp_path / 'half_blind.gin'
  half_blind.write_text('import tests.fakes.half_blind\n')
  workdir = tmp_path / parts
  arguments = (
    '--gin_file=gin/tasks/grid.gin',
    f'--gin_file={half_blind}',
    f'--parts={parts}',
    *(f'--gin_bindings={binding}' for binding in (*_BLIND_BINDINGS, *bindings)),
  )
  runs.finish(workdir, arguments, PYTHONPATH=str(runs.ROOT))
  rows = runs.rows(workdir, 'episode')
  return np.mean([row['cost_return'][0] for row in rows[len(rows) // 2 :]])


@pytest.mark.slow
def test_feedback_finds_the_limit_though_models_see_half_of_the_costs(tmp_path):
  feedback = _late_costs(
    tmp_path, 'solver_pid,feedback_integral', 'IntegralFeedback.gain = 0.02', 'IntegralFeedback.highest = 2.0'
  )
  assert feedback == pytest.approx(5.0, rel=0.05)
  assert _late_costs(tmp_path, 'solver_pid') > 1.5 * 5.0
