"""The costs of safety-gymnasium's objects, from arrays instead of names.

At each step, for each kind of object, safety-gymnasium asks MuJoCo for the names of all geoms in contact. Here names
are looked up once. For other kinds of objects, safety-gymnasium's own method is called.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

CostFunction = Callable[[], dict[str, float]]


def cost_functions(task: Any) -> list[CostFunction]:
  """A function for each kind of object in a built task; each returns the named costs of the current state."""
  from safety_gymnasium.assets import free_geoms
  from safety_gymnasium.assets import geoms
  from safety_gymnasium.assets import mocaps

  contact_kinds = {
    geoms.Pillars: ('pillar', 'cost_pillars', 'cost'),
    mocaps.Gremlins: ('gremlin', 'cost_gremlins', 'contact_cost'),
  }
  functions: list[CostFunction] = []
  for obstacle in task._obstacles:
    kind: Any = type(obstacle)
    if kind is geoms.Hazards:
      functions.append(_hazards(task, obstacle))
    elif kind is free_geoms.Vases and not obstacle.displace_cost:
      functions.append(_vases(task, obstacle))
    elif kind is geoms.Buttons:
      functions.append(_buttons(task, obstacle))
    elif kind in contact_kinds:
      functions.append(_contacts(task, obstacle, *contact_kinds[kind]))
    elif kind.cal_cost is not kind.__mro__[-3].cal_cost:  # The base class's, which returns no cost.
      functions.append(obstacle.cal_cost)
  return functions


def touches(task: Any, prefix: str) -> Callable[[], np.ndarray]:
  """Returns a function that lists the ids of geoms named `prefix...` that touch the agent, one for each contact."""
  model = task.model
  names = [model.geom(i).name for i in range(model.ngeom)]
  is_agent = np.array([name in task.agent.body_info.geom_names for name in names])
  is_other = np.array([name.startswith(prefix) for name in names])

  def touched() -> np.ndarray:
    contact = task.data.contact
    first, second = contact.geom1, contact.geom2
    hits = (is_agent[first] & is_other[second]) | (is_agent[second] & is_other[first])
    if not hits.any():
      return _NOTHING
    return np.where(is_other[second], second, first)[hits]

  return touched


_NOTHING = np.zeros(0, int)


def _hazards(task: Any, hazards: Any) -> CostFunction:
  bodies = np.array([task.model.body(f'hazard{i}').id for i in range(hazards.num)], int)
  agent = task.model.body('agent').id

  def cost() -> dict[str, float]:
    if not hazards.is_constrained:
      return {}
    positions = task.data.xpos
    distances = np.sqrt(np.sum(np.square(positions[bodies, :2] - positions[agent, :2]), axis=1))
    inside = distances[distances <= hazards.size]
    return {'cost_hazards': sum(hazards.cost * (hazards.size - inside))}

  return cost


def _vases(task: Any, vases: Any) -> CostFunction:
  touched = touches(task, 'vase')
  joints = [task.model.body(f'vase{i}').jntadr[0] for i in range(vases.num)]
  # A free joint's first three velocities are the linear velocity of its body.
  velocities = np.array([task.model.jnt_dofadr[joint] for joint in joints], int)[:, None] + np.arange(3)

  def cost() -> dict[str, float]:
    if not vases.is_constrained:
      return {}
    costs = {'cost_vases_contact': vases.contact_cost * len(touched())}
    if vases.velocity_cost:
      speeds = np.sqrt(np.sum(np.square(task.data.qvel[velocities]), axis=1))
      costs['cost_vases_velocity'] = sum(vases.velocity_cost * speeds[speeds >= vases.velocity_threshold])
    return costs

  return cost


def _buttons(task: Any, buttons: Any) -> CostFunction:
  touched = touches(task, 'button')
  geoms = [task.model.geom(f'button{i}').id for i in range(buttons.num)]

  def cost() -> dict[str, float]:
    if not buttons.is_constrained or buttons.timer != 0:
      return {}
    wrong = touched() != geoms[buttons.goal_button]
    return {'cost_buttons': buttons.cost * int(wrong.sum())}

  return cost


def _contacts(task: Any, obstacle: Any, prefix: str, name: str, price: str) -> CostFunction:
  touched = touches(task, prefix)

  def cost() -> dict[str, float]:
    if not obstacle.is_constrained:
      return {}
    return {name: getattr(obstacle, price) * len(touched())}

  return cost
