"""A pool of actors that are processes of Ray, on this machine or on a cluster."""

from collections.abc import Sequence
import copy
import os
import pathlib
import tempfile
import time
from typing import Any

import dm_env
import numpy as np

import gin
from lambda_kit import core
from lambda_kit import errors
from lambda_kit.agents import actor as actor_lib
from lambda_kit.config import configuration
from lambda_kit.environments import spec as spec_lib
from lambda_kit.training import distributed_loop
from lambda_kit.training import experiment as experiment_lib


class RayMissing(errors.UserError, ValueError):
  """Ray is not installed. The message has the remedy."""


class EpisodeActor:
  """Plays episodes of the experiment that a configuration describes, with variables that it is given.

  Args:
    config: What `configuration.resolved_config` wrote.
  """

  def __init__(self, config: str):
    from lambda_kit import components  # noqa: F401 (registers)

    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder) / 'config.gin'
      path.write_text(config, encoding='utf-8')
      configuration.parse([str(path)])
    # Gin calls what is bound to @X() when it is copied.
    bound = lambda name: copy.deepcopy(gin.query_parameter(f'experiment.{name}'))
    self._seeds = experiment_lib.Seeds.derive(_query('seed', 0))
    self._environment: core.Environment = bound('environment_factory')(seed=self._seeds.environment)
    spec = spec_lib.make_spec(self._environment, _query('cost_limit', experiment_lib.DEFAULT_COST_LIMIT))
    self._actor_core = bound('agent').build(spec).make_actor_core(evaluation=False)
    self._source = _Variables()
    self._actor: core.Actor | None = None

  def play(self, number: int, variables: Sequence[Any]) -> distributed_loop.Played:
    started = time.perf_counter()
    self._source.variables = variables
    if self._actor is None:
      self._actor = actor_lib.Actor(self._actor_core, self._source, self._seeds.actor)
    self._actor.update()
    self._environment.next_episode = number
    self._actor.reseed(number)
    first = timestep = self._environment.reset()
    self._actor.observe_first(timestep)
    actions, timesteps, counts = [], [], []
    while not timestep.last():
      actions.append(self._actor.select_action(timestep.observation))
      timestep = self._environment.step(actions[-1])
      self._actor.observe(actions[-1], timestep)
      timesteps.append(_copy(timestep))
      counts.append(self._environment.last_step_count)
    return distributed_loop.Played(
      _copy(first), actions, timesteps, counts, time.perf_counter() - started, self._environment.mujoco_version
    )


class _Variables(core.VariableSource):
  """Has the variables of the last episode that was asked for."""

  variables: Sequence[Any] = ()

  def get_variables(self, names: Sequence[str]) -> list[Any]:
    return list(self.variables)


@gin.register
class RayActors:
  """Actors on a Ray cluster. A process that dies costs its episode, and is replaced.

  Args:
    num_actors: How many.
    address: host:port of the cluster, 'auto' for one that runs on this machine; None starts one for this run.
    cores: Of each actor.
  """

  def __init__(self, num_actors: int, address: str | None = None, cores: float = 1.0):
    try:
      import ray
    except ModuleNotFoundError as error:
      raise RayMissing(
        "RayActors needs Ray, which is not installed: pip install -e '.[ray]', or bind "
        'experiment.loop_factory to @EnvironmentLoop.'
      ) from error
    self.size = num_actors
    self._ray = ray
    root = str(pathlib.Path(__file__).resolve().parents[2])
    options = dict(runtime_env={'env_vars': {'PYTHONPATH': root, 'OMP_NUM_THREADS': '1', 'JAX_PLATFORMS': 'cpu'}})
    if address is None:
      num_cpus = max(os.cpu_count() or 1, int(np.ceil(num_actors * cores)))
      ray.init(address='local', num_cpus=num_cpus, log_to_driver=False, include_dashboard=False, **options)
    else:
      from lambda_kit.training import ray_cluster

      ray_cluster.connect(address, 'or bind RayActors.address to None, for a cluster of this run.', **options)
    config = configuration.resolved_config()
    # Ray pickles the class by name: `EpisodeActor` is imported where it runs.
    self._make = lambda: ray.remote(num_cpus=cores)(EpisodeActor).remote(config)
    self._actors = [self._make() for _ in range(num_actors)]
    self._variables: Any = None
    self._pending: dict[Any, int] = {}

  def publish(self, variables: Sequence[Any]) -> None:
    self._variables = self._ray.put(variables)

  def play(self, actor: int, number: int) -> None:
    self._pending[self._actors[actor].play.remote(number, self._variables)] = actor

  def wait(self) -> tuple[int, distributed_loop.Played | Exception]:
    (ended,), _ = self._ray.wait(list(self._pending), num_returns=1)
    actor = self._pending.pop(ended)
    try:
      return actor, self._ray.get(ended)
    except self._ray.exceptions.RayActorError as error:
      self._actors[actor] = self._make()
      return actor, error
    except Exception as error:
      return actor, error

  def close(self) -> None:
    for actor in self._actors:
      self._ray.kill(actor)
    self._ray.shutdown()


def _query(name: str, default: Any) -> Any:
  """What a parameter of the experiment is bound to, macros resolved."""
  try:
    return copy.deepcopy(gin.query_parameter(f'experiment.{name}'))
  except ValueError:  # Not bound.
    return default


def _copy(timestep: dm_env.TimeStep) -> dm_env.TimeStep:
  """Environments may use their arrays again."""
  return copy.deepcopy(timestep)
