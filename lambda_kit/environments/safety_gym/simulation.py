"""One safety-gymnasium task, stepped without unneeded work.

The steps are those of safety-gymnasium's `Builder.step`, in the same order and with the same draws from the same random
generator, so trajectories are identical to the bit. `mj_forward` is called just as often: each call changes the
solver's warm start, and with it the last digits of the physics.
"""

import difflib
from typing import NamedTuple

import numpy as np

from lambda_kit import errors
from lambda_kit.environments import opengl
from lambda_kit.environments.safety_gym import costs as costs_lib
from lambda_kit.environments.safety_gym import loading
from lambda_kit.environments.safety_gym import sensors
from lambda_kit.environments.safety_gym import world


class Advance(NamedTuple):
  """The result of one simulator step."""

  reward: float
  costs: dict[str, float]  # By safety-gymnasium's names, 'cost_sum' among them.
  terminated: bool
  truncated: bool


class Simulation:
  """Owns a task's `Builder`.

  Args:
    task_id: A registered id such as 'SafetyPointGoal1-v0'.
    episode_length: Simulator steps; None takes the task's own.
    frameskip_probability: The number of physics steps in a simulator step is binomial(10, this). At 1 the simulation
      has no noise of its own.
  """

  def __init__(self, task_id: str, episode_length: int | None = None, frameskip_probability: float = 1.0):
    spec = find_task(task_id)
    from safety_gymnasium import builder

    self._mujoco = opengl.import_mujoco()
    with world.quick_compilation(), np.errstate(over='ignore'):  # In gymnasium's spaces, at each start.
      self._builder = builder.Builder(**spec.kwargs)
    self.task_id = task_id
    self.task = self._builder.task
    self.task.sim_conf.frameskip_binom_p = frameskip_probability
    length = episode_length or min(spec.max_episode_steps, self.task.num_steps)
    self.task.num_steps = length
    self.reset(0)  # Builds the world, which the rest is made from.
    self._vector_sensors = sensors.VectorSensors(self.task)
    self._cost_functions = costs_lib.cost_functions(self.task)
    self._has_static_costs = bool(self.task._is_load_static_geoms and self.task.static_geoms_contact_cost)

  @property
  def vector_size(self) -> int:
    return self._vector_sensors.size

  @property
  def num_lidar_readings(self) -> int | None:
    """Lidar readings, at the end of the vector; None if the task doesn't say which they are."""
    return self._vector_sensors.num_readings

  @property
  def xml(self) -> str:
    """The MJCF of the current world."""
    return self.task.world.xml_string

  def reset(self, seed: int) -> None:
    """Begins an episode; `seed` determines its layout and noise."""
    self._builder.set_seed(seed)
    with world.quick_compilation():
      for _ in range(100):
        try:
          self._builder.reset()
          return
        except AssertionError as error:
          # Rarely, a layout has a cost at its start, or objects that can't be placed: draw another one.
          failure = error
    raise RuntimeError(f'No valid layout was found for {self.task_id} in 100 draws: {failure}')

  def advance(self, action: np.ndarray) -> Advance:
    """Takes one simulator step. `refresh` must follow before the next one."""
    task, builder = self.task, self._builder
    self._simulate(action)
    self._forward()
    reward = builder._reward()
    costs = self.costs()
    task.specific_step()
    terminated = False
    if task.goal_achieved:
      terminated = self._place_next_goal()
    terminated = terminated or not task.agent.is_alive()
    builder.steps += 1
    return Advance(float(reward), costs, terminated, builder.steps >= task.num_steps)

  def _simulate(self, action: np.ndarray) -> None:
    task = self.task
    task.agent.apply_action(action)
    count = task.random_generator.binomial(task.sim_conf.frameskip_binom_n, task.sim_conf.frameskip_binom_p)
    if not task._mocaps:
      if count:
        self._mujoco.mj_step(task.model, task.data, nstep=count)
      return
    for _ in range(count):
      for mocap in task._mocaps.values():
        mocap.move()
      self._mujoco.mj_step(task.model, task.data)

  def _place_next_goal(self) -> bool:
    """Returns whether the episode ends, because there is no room for another goal."""
    from safety_gymnasium.utils import common_utils

    task = self.task
    if not task.mechanism_conf.continue_goal:
      return True
    task.update_layout()
    try:
      task.update_world()
    except common_utils.ResamplingError:
      if not task.mechanism_conf.terminate_resample_failure:
        raise
      return True
    return False

  def costs(self) -> dict[str, float]:
    """Named costs of the current state, as indicators if the task is configured so."""
    task = self.task
    if self._has_static_costs:
      costs = task.calculate_cost()
    else:
      self._forward()
      costs = {}
      for cost_function in self._cost_functions:
        costs.update(cost_function())
      costs['cost_sum'] = sum(costs.values())
    if task.cost_conf.constrain_indicator:
      costs = {name: float(value > 0) for name, value in costs.items()}
    return costs

  def refresh(self) -> None:
    """Brings sensors up to date after `advance`."""
    self._forward()

  def vector(self) -> np.ndarray:
    """The vector observation of the current state, float64 [vector_size]."""
    return self._vector_sensors.read()

  def _forward(self) -> None:
    self._mujoco.mj_forward(self.task.model, self.task.data)


def find_task(task_id: str) -> loading.TaskSpec:
  """Returns the registration of a task that `Builder` builds."""
  known = {
    name: spec
    for name, spec in loading.tasks().items()
    if spec.entry_point == 'safety_gymnasium.builder:Builder' and 'Vision' not in name and 'Debug' not in name
  }
  if task_id in known:
    return known[task_id]
  near = difflib.get_close_matches(task_id, known, n=3, cutoff=0.4)
  raise errors.SetupError(
    f'There is no safety-gymnasium task {task_id!r}.'
    + (f' Did you mean {", ".join(near)}?' if near else '')
    + ' (Images are a matter of `observations`, not of the task id.)'
  )
