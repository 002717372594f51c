"""What a run is, told from its configuration: task, algorithm, seed, protocol."""

import dataclasses
import re
from typing import Any

from lambda_kit.config import configuration
from lambda_kit.analysis.metrics import protocols
from lambda_kit.config import gin_text

# What of the simulator an agent sees, which is the agent's business: the paper compares images with lidars.
_VIEW = ('task', 'observations', 'image_size', 'original_camera', 'multisampling', 'reflections')
_AGENTS = {'lambda': 'LAMBDA', 'random': 'Random', 'ppo': 'PPO', 'cpo': 'CPO', 'trpo': 'TRPO',
           'ppolagrangian': 'PPO-Lagrangian', 'trpolagrangian': 'TRPO-Lagrangian'}
# Parts of LAMBDA after which its variants are called, and those of the paper.
_PARTS = {'posterior_factory': 'Swag', 'solver': 'AugmentedLagrangian', 'world_model_factory': 'RecurrentWorldModel'}
_NAMES = {'Unconstrained': 'unsafe', 'PidLagrangian': 'PID', 'PrimalDual': 'primal-dual', 'Ensemble': 'ensemble',
          'Variational': 'variational', 'Point': 'single model', 'FeedForwardWorldModel': 'feed-forward model'}
_BOUNDS = ('UpperBound', 'UpperBound')  # Of reward and cost.


@dataclasses.dataclass(frozen=True)
class Identity:
  """What a run is."""
  task: str
  algorithm: str
  seed: int
  protocol: protocols.Protocol
  config_hash: str
  environment_steps: int  # Of the whole run, which may be longer than the protocol asks for.
  evaluate_every: int


def identify(bindings: gin_text.Bindings) -> Identity:
  """Tells what a run with these bindings is.

  A task of the paper has the paper's protocol if the run is long enough for it and differs in nothing else; any other
  run has a protocol of its own, recorded at its end.

  Raises:
    GinTextError: The bindings are not those of an experiment.
  """
  number = lambda name, default: _number(bindings, f'experiment.{name}', default)
  steps = number('environment_steps', None)
  evaluate_every = number('evaluate_every', 25_000)  # Here and below, defaults are those of `experiment.build`.
  limits = gin_text.get(bindings, 'experiment.cost_limit', protocols.SG6_LIMIT)
  limits = tuple(limits) if isinstance(limits, (tuple, list)) else (limits,)
  if not all(isinstance(limit, (int, float)) for limit in limits):
    raise gin_text.GinTextError(f'experiment.cost_limit is no number: {limits}')
  task, environment = _task(bindings)
  protocol = protocols.Protocol(task, steps, number('evaluation_episodes', 10), tuple(map(float, limits)), environment)
  paper = protocols.paper_protocol(task)
  if paper is not None and steps >= paper.environment_steps:
    protocol_at_paper_steps = dataclasses.replace(protocol, environment_steps=paper.environment_steps)
    protocol = paper if protocol_at_paper_steps == paper else protocol
  return Identity(task, algorithm_name(bindings), number('seed', 0), protocol, gin_text.config_hash(bindings), steps,
                  evaluate_every)


def algorithm_name(bindings: gin_text.Bindings) -> str:
  """Names an agent as the paper does, and variants of LAMBDA by the parts that were swapped."""
  agent = _class_name(gin_text.get(bindings, 'experiment.agent', ''))
  if agent == 'OnPolicyAgent':
    return _baseline_name(bindings)
  agent = agent.removesuffix('Agent') or agent
  name = _AGENTS.get(agent.lower(), agent or 'unknown')
  if name != 'LAMBDA':
    return name
  part = lambda parameter, default: _class_name(gin_text.get(bindings, f'LambdaAgent.{parameter}', default))
  variations = [_NAMES.get(part(parameter, default), part(parameter, default)) for parameter, default in _PARTS.items()
                if part(parameter, default) != default]
  bounds = part('reward_bound', _BOUNDS[0]), part('cost_bound', _BOUNDS[1])
  if bounds == ('MeanBound', 'MeanBound'):
    variations.append('greedy')
  elif bounds != _BOUNDS:
    variations.append('/'.join(bounds))
  name = 'CEM-MPC' if part('planner_factory', 'None') != 'None' else name
  return f'{name} ({", ".join(variations)})' if variations else name


def _baseline_name(bindings: gin_text.Bindings) -> str:
  """Names a model-free baseline by its optimiser, and by what it does about constraints."""
  optimizer = _class_name(gin_text.get(bindings, 'OnPolicyAgent.policy_optimizer', 'Ppo'))
  name = _AGENTS.get(optimizer.lower(), optimizer)
  solver = _class_name(gin_text.get(bindings, f'{optimizer}.solver', 'Unconstrained'))
  suffix = {'Unconstrained': '', 'SoftplusLagrangian': '-Lagrangian'}.get(solver)
  return f'{name} ({_NAMES.get(solver, solver)})' if suffix is None else name + suffix


def _task(bindings: gin_text.Bindings) -> tuple[str, tuple[tuple[str, str], ...]]:
  """The name of the task, and what was changed in its simulator."""
  simulator = _class_name(gin_text.get(bindings, 'make_environment.simulator', ''))
  task = gin_text.get(bindings, f'{simulator}.task')
  # Safety-Gymnasium's id of the paper's PointGoal1 is SafetyPointGoal1-v0.
  name = re.sub(r'^Safety(\w+)-v0$', r'\1', task) if isinstance(task, str) else simulator or 'unknown'
  changes = {key.removeprefix(f'{simulator}.'): configuration.format_value(gin_text.resolve(bindings, value))
             for key, value in bindings.items() if key.startswith(f'{simulator}.')}
  changes = {parameter: value for parameter, value in changes.items() if parameter not in _VIEW}
  if name == 'PointPush1' and changes.get('box_alpha') == '0.5':
    name = protocols.OBSERVABLE_PUSH
    del changes['box_alpha']
  return name, tuple(sorted(changes.items()))


def _class_name(value: Any) -> str:
  """'Critic' of '@reward_critic/Critic()'; what is no reference as it is."""
  text = str(value)
  return re.split(r'[/.]', text[1:].removesuffix('()'))[-1] if text.startswith('@') else text


def _number(bindings: gin_text.Bindings, key: str, default: int | None) -> int:
  value = gin_text.get(bindings, key, default)
  if not isinstance(value, int) or isinstance(value, bool):
    raise gin_text.GinTextError(f'{key} is no whole number: {value}')
  return value
