"""On-policy data: the steps of one epoch in arrays [T, k, ...]."""

import dm_env
import numpy as np

from lambda_kit import core
from lambda_kit import types


class RolloutWriter:
  """Writes batched time steps into arrays that are allocated once.

  Args:
    environment_spec: Of the environments.
    num_steps: T.
    num_environments: k.
  """

  def __init__(self, environment_spec: core.EnvironmentSpec, num_steps: int, num_environments: int):
    leading = (num_steps, num_environments)
    zeros = lambda spec: np.zeros((*leading, *spec.shape), spec.dtype)
    observations = lambda: {name: zeros(spec) for name, spec in environment_spec.observations.items()}
    self._rollout = types.Rollout(
      observation=observations(),
      action=np.zeros((*leading, *environment_spec.actions.shape), np.float32),
      reward=np.zeros(leading, np.float32),
      cost=np.zeros((*leading, environment_spec.num_constraints), np.float32),
      discount=np.ones(leading, np.float32),
      next_observation=observations(),
      is_last=np.zeros(leading, bool),
      weight=np.ones(leading, np.float32),
      cost_return=np.zeros(environment_spec.num_constraints, np.float32),
      episode_length=np.zeros((), np.float32),
    )
    self._t = 0

  def add(self, timestep: dm_env.TimeStep, actions: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
    """Adds a step of all k environments.

    Args:
      timestep: The time steps acted on, of which none is last.
      actions: [k, A]
      next_timestep: The time steps that followed. A row that is first marks an environment that failed: this step did
        not happen, and the one before was the last of its episode.
    """
    rollout, t = self._rollout, self._t
    for name, values in timestep.observation.items():
      rollout.observation[name][t] = values
      rollout.next_observation[name][t] = next_timestep.observation[name]
    rollout.action[t] = actions
    rollout.reward[t] = next_timestep.reward.reward
    rollout.cost[t] = next_timestep.reward.cost
    rollout.discount[t] = next_timestep.discount
    failed = next_timestep.step_type == dm_env.StepType.FIRST
    rollout.is_last[t] = failed | (next_timestep.step_type == dm_env.StepType.LAST)
    rollout.weight[t] = ~failed
    if t:
      rollout.is_last[t - 1] |= failed
    self._t += 1

  def finish(self, cost_return: np.ndarray, episode_length: float) -> types.Rollout:
    """The rollout, given the mean cost return of its episodes [C] and their mean length in agent steps.

    The next `add` begins to overwrite its arrays.
    """
    if self._t != len(self._rollout.reward):
      raise ValueError(f'A rollout of {len(self._rollout.reward)} steps has only {self._t} so far.')
    self._t = 0
    self._rollout.is_last[-1] = True  # Episodes in progress are cut.
    return self._rollout._replace(
      cost_return=np.asarray(cost_return, np.float32), episode_length=np.asarray(episode_length, np.float32)
    )
