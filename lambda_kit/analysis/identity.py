"""The identity of a run: task, algorithm, seed, protocol. Derived once from the configuration, when the run starts."""

from collections.abc import Mapping
import dataclasses
import re
from typing import Any

from lambda_kit import core
from lambda_kit.agents import naming
from lambda_kit.analysis.metrics import protocols
from lambda_kit.config import configuration
from lambda_kit.config import gin_text

# Parameters of what the agent sees. They belong to the agent, not to the task: the paper compares images with lidars.
_VIEW = ('task', 'observations', 'image_size', 'original_camera', 'multisampling', 'reflections')


@dataclasses.dataclass(frozen=True)
class Identity:
  """What a run is."""

  task: str
  algorithm: str
  parts: Mapping[str, str]  # The agent's components: names by role.
  seed: int
  protocol: protocols.Protocol
  config_hash: str  # Of `configuration`.
  configuration: tuple[str, ...]  # Lines of gin with all that can change the outcome, except for the seed.
  environment_steps: int  # Of the whole run, which may be longer than the protocol asks for.
  evaluate_every: int


def identify(
  agent: Any,
  spec: core.EnvironmentSpec,
  seed: int,
  environment_steps: int,
  evaluate_every: int,
  evaluation_episodes: int,
  bindings: gin_text.Bindings,
) -> Identity:
  """Identifies a run.

  A run of one of the paper's tasks has the paper's protocol if it is long enough and differs in nothing else. Any other
  run has its own protocol, with the score recorded at its end.

  Args:
    agent: The agent's configuration.
    spec: The environment's facts.
    seed: The run's seed.
    environment_steps: Length of the whole run.
    evaluate_every: Environment steps between two evaluations.
    evaluation_episodes: E.
    bindings: The whole configuration.
  """
  task, environment = _task(bindings, spec.task_name)
  limits = spec.cost_limits[:1] if len(set(spec.cost_limits)) == 1 else spec.cost_limits
  protocol = protocols.Protocol(task, environment_steps, evaluation_episodes, tuple(map(float, limits)), environment)
  paper = protocols.paper_protocol(task)
  if paper is not None and environment_steps >= paper.environment_steps:
    protocol_at_paper_steps = dataclasses.replace(protocol, environment_steps=paper.environment_steps)
    protocol = paper if protocol_at_paper_steps == paper else protocol
  return Identity(
    task,
    naming.name_of(agent).removesuffix('Agent'),
    naming.parts_of(agent),
    seed,
    protocol,
    gin_text.config_hash(bindings),
    tuple(gin_text.material_lines(bindings)),
    environment_steps,
    evaluate_every,
  )


def _task(bindings: gin_text.Bindings, default: str) -> tuple[str, tuple[tuple[str, str], ...]]:
  """Returns the name of the task, and the changes in its simulator."""
  reference = str(gin_text.get(bindings, 'make_environment.simulator', ''))
  simulator = re.split(r'[/.@]', reference)[-1]
  task = gin_text.get(bindings, f'{simulator}.task')
  # Safety-Gymnasium's id of the paper's PointGoal1 is SafetyPointGoal1-v0.
  name = re.sub(r'^Safety(\w+)-v0$', r'\1', task) if isinstance(task, str) else simulator or default
  changes = {
    key.removeprefix(f'{simulator}.'): configuration.format_value(gin_text.resolve(bindings, value))
    for key, value in bindings.items()
    if simulator and key.startswith(f'{simulator}.')
  }
  changes = {parameter: value for parameter, value in changes.items() if parameter not in _VIEW}
  if name == 'PointPush1' and changes.get('box_alpha') == '0.5':
    name = protocols.OBSERVABLE_PUSH
    del changes['box_alpha']
  return name, tuple(sorted(changes.items()))
