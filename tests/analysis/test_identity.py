"""What runs are called, from what was configured."""

import dataclasses
import pathlib

import pytest

import gin
from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit.agents import naming
from lambda_kit.agents import random_agent
from lambda_kit.agents.lambda_ import builder as lambda_builder
from lambda_kit.agents.on_policy import builder as on_policy_builder
from lambda_kit.agents.on_policy import ppo
from lambda_kit.analysis import identity
from lambda_kit.analysis.metrics import protocols
from lambda_kit.config import configuration
from lambda_kit.config import gin_text
from lambda_kit.planners import mpc
from lambda_kit.posteriors import ensemble
from lambda_kit.posteriors import width
from lambda_kit.safety import bounds
from lambda_kit.safety import feedback
from lambda_kit.safety import pid
from lambda_kit.safety import recalibration
from lambda_kit.safety import unconstrained
from tests.fakes import specs

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_LAMBDA = lambda_builder.LambdaAgent


class MyEnsemble(ensemble.Ensemble):
  """A posterior that a user wrote."""


class MySolver(unconstrained.Unconstrained):
  """A solver that a user wrote, and named."""

  display_name = 'my own'


@dataclasses.dataclass(frozen=True)
class SomethingNewAgent:
  width: int = 3


@pytest.mark.parametrize(
  'agent, name',
  [
    (_LAMBDA(), 'LAMBDA'),
    (_LAMBDA(solver=unconstrained.Unconstrained()), 'LAMBDA (unsafe)'),
    (_LAMBDA(reward_bound=bounds.MeanBound(), cost_bound=bounds.MeanBound()), 'LAMBDA (greedy)'),
    (_LAMBDA(reward_bound=bounds.MeanBound()), 'LAMBDA (MeanBound/UpperBound)'),
    (_LAMBDA(planner_factory=mpc.CemPlanner), 'CEM-MPC'),
    (_LAMBDA(posterior_factory=ensemble.Ensemble, solver=MySolver()), 'LAMBDA (ensemble, my own)'),
    (_LAMBDA(posterior_factory=MyEnsemble), 'LAMBDA (MyEnsemble)'),
    (_LAMBDA(width=width.LearnedWidth(), feedback=feedback.IntegralFeedback()), 'LAMBDA (learned width, feedback)'),
    (_LAMBDA(recalibration=recalibration.HeldOutRatio()), 'LAMBDA (recalibrated)'),
    (on_policy_builder.OnPolicyAgent(), 'PPO'),
    (on_policy_builder.OnPolicyAgent(policy_optimizer=ppo.Ppo(solver=pid.PidLagrangian())), 'PPO (PID)'),
    (random_agent.RandomAgent(), 'Random'),
    (SomethingNewAgent(), 'SomethingNew'),
  ],
)
def test_algorithms(agent, name):
  assert identity.identify(agent, specs.make(), 0, 100, 10, 2, {}).algorithm == name


@pytest.mark.parametrize(
  'layer, name',
  [
    (None, 'LAMBDA'),
    ('parts/unsafe', 'LAMBDA (unsafe)'),
    ('parts/greedy', 'LAMBDA (greedy)'),
    ('parts/planner_cem', 'CEM-MPC'),
    ('parts/posterior_ensemble', 'LAMBDA (ensemble)'),
    ('parts/posterior_multiswag', 'LAMBDA (MultiSWAG)'),
    ('parts/posterior_point', 'LAMBDA (single model)'),
    ('parts/posterior_variational', 'LAMBDA (variational)'),
    ('parts/solver_pid', 'LAMBDA (PID)'),
    ('agents/random', 'Random'),
    ('agents/ppo', 'PPO'),
    ('agents/ppo_lagrangian', 'PPO-Lagrangian'),
    ('agents/trpo_lagrangian', 'TRPO-Lagrangian'),
    ('agents/cpo', 'CPO'),
  ],
)
def test_the_projects_own_files(layer, name):
  layers = ['gin/sg6_doggogoal1.gin', *([f'gin/{layer}.gin'] if layer else [])]
  configuration.parse(layers, search_paths=[str(_ROOT)])
  agent = gin.query_parameter('experiment.agent').__deepcopy__({})  # As gin would pass it.
  found = identity.identify(
    agent, specs.make(), 0, 2_000_000, 25_000, 10, gin_text.read_bindings(configuration.resolved_config())
  )
  gin.clear_config()
  assert found.algorithm == name and found.protocol == protocols.paper_protocol('DoggoGoal1')


def test_parts_by_role():
  parts = naming.parts_of(_LAMBDA(posterior_factory=MyEnsemble))
  assert (
    parts['posterior'] == 'MyEnsemble'
    and parts['budget'] == 'raw_budget'
    and parts['solver'] == ('AugmentedLagrangian')
    and 'horizon' not in parts
    and 'planner' not in parts
  )


def _protocol(text, limits=(25.0,), steps=2_000_000):
  return identity.identify(
    random_agent.RandomAgent(), specs.make(cost_limits=limits), 0, steps, 25_000, 10, gin_text.read_bindings(text)
  ).protocol


def test_tasks():
  base = 'make_environment.simulator = @SafetyGymnasium\n'
  push = base + "TASK = 'SafetyPointPush1-v0'\nSafetyGymnasium.task = %TASK\n"
  assert _protocol(push) == _protocol(push, (25.0, 25.0)) == protocols.paper_protocol('PointPush1')
  assert _protocol(push + "SafetyGymnasium.observations = ('vector',)") == protocols.paper_protocol('PointPush1')
  assert _protocol(push + 'SafetyGymnasium.box_alpha = 0.5') == protocols.paper_protocol('ObservablePointPush1')
  noisy = _protocol(push + 'SafetyGymnasium.frameskip_probability = 0.9')
  assert noisy.task == 'PointPush1' and noisy.environment == (('frameskip_probability', '0.9'),)
  assert _protocol(push, (25.0, 10.0)).cost_limit == (25.0, 10.0)
  assert _protocol(push, steps=1_000).environment_steps == 1_000
  assert _protocol('make_environment.simulator = @mine.MyTask').task == 'MyTask'
  assert _protocol('').task == 'Task'


def test_hash_ignores_the_seed_devices_macros_and_sources():
  texts = [
    'A.x = 1  # a.gin:3\nexperiment.seed = 1\nLambdaAgent.num_devices = 4',
    'ONE = 1\nA.x = %ONE\nexperiment.seed = 2\n# A.y = 3',
    'A.x = 2\nexperiment.seed = 1',
  ]
  first, second, third = (gin_text.config_hash(gin_text.read_bindings(text)) for text in texts)
  assert first == second != third
