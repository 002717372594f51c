"""A constrained MDP that needs no simulator, and whose optimum is known exactly."""

from collections.abc import Sequence

import dm_env
from dm_env import specs
import numpy as np

import gin
from lambda_kit import core
from lambda_kit import types
from lambda_kit.environments import occupancy

# The short way from the starts (S) to the goal (G) leads through a pond of hazards (1, 2), the safe way along its bank.
DEFAULT_LAYOUT = ('.......', '.......', '.......', '.......', '..222..', 'S.111.G', 'SS111..')

# Limits on the costs of an episode that bind in the default room, by number of constraints. The optimum within them is
# 22.83 for one cost, 22.80 for two; without limits 25.86 at a cost of 53.3. Random actions earn 0.93 at a cost of 21.9.
DEFAULT_LIMITS = {1: (5.0,), 2: (2.5, 2.5)}

# The moves (x, y), which are also the actions that make them for certain: move 3 (x + 1) + y + 1. [9, 2]
MOVES = np.array([(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)])

_COLOURS = {  # Those of Safety-Gym, where it has them.
  '.': (235, 235, 235),
  'S': (235, 235, 235),
  '#': (60, 60, 60),
  'G': (0, 190, 60),
  '1': (60, 60, 255),
  '2': (150, 60, 255),
}
_AGENT_COLOUR = (230, 40, 40)


def move_probabilities(action: np.ndarray) -> np.ndarray:
  """The mixture [..., 9] of `MOVES` that an action [..., 2] stands for, before slips."""
  action = np.clip(np.asarray(action, float), -1.0, 1.0)
  # [..., 2, 3]: each axis moves by -1, 0 or 1.
  axes = np.stack([np.maximum(-action, 0.0), 1.0 - np.abs(action), np.maximum(action, 0.0)], axis=-1)
  return (axes[..., 0, :, None] * axes[..., 1, None, :]).reshape(action.shape[:-1] + (9,))


@gin.register
class GridCmdp(core.Environment):
  """A small room to cross again and again: +1 at the goal, then back to a random start, until the time is up.

  The action (a_x, a_y) in [-1, 1]^2 moves the agent one cell to the side of sign(a_x) with probability |a_x| and,
  independently, one cell up or down by sign(a_y) with probability |a_y|; with probability `slip` a uniformly random one
  of the nine moves is made instead. The horizontal part of a move comes first; walls stop each part on its own.

  The nine moves alone have the same optimum: every action is a mixture of them, and each of them is the action at a
  corner, an edge's centre or the centre of the box, so both action sets allow the same occupation measures. The optimum
  of the finite problem, which `occupancy.solve` finds exactly, is hence that of the continuous one. (It holds for
  single steps: an action repeat makes another problem.)

  Each step that ends in a hazard costs 1. Rewards have a shaping term, `shaping` times the number of moves by which
  the step came nearer to the goal: crossing the room earns the same on all ways.
  """

  def __init__(
    self,
    seed: int,
    layout: Sequence[str] = DEFAULT_LAYOUT,
    episode_length: int = 100,
    slip: float = 0.05,
    shaping: float = 0.1,
    num_constraints: int = 1,
    hazards_terminate: bool = False,
    observations: Sequence[str] = ('vector',),
    image_size: int = 16,
  ):
    """Makes the room.

    Args:
      seed: of starts and moves, together with the number of the episode.
      layout: rows from top to bottom, of free cells '.', starts 'S', goals 'G', hazards '1' and '2', and walls '#'.
      episode_length: T, steps until the time limit.
      slip: probability of a random move instead of the chosen one.
      shaping: reward for each move by which the agent came nearer to the goal, on the shortest way around walls.
      num_constraints: 1 for both types of hazards as one cost, 2 for a cost of each.
      hazards_terminate: whether the episode ends, with discount 0, at the first hazard.
      observations: one or both of 'vector' (position x, y in [-1, 1]; y points up) and 'image' (the room from above).
      image_size: height and width of the image.
    """
    self._grid = _parse(layout)
    self._observations = tuple(observations)
    if not self._observations or not set(self._observations) <= {'vector', 'image'}:
      raise ValueError(f"observations must be a tuple of 'vector', 'image' or both, got {observations!r}.")
    if num_constraints not in (1, 2):
      raise ValueError(f'num_constraints must be 1 (all hazards) or 2 (by type), got {num_constraints}.')
    if not 0.0 <= slip <= 1.0:
      raise ValueError(f'slip must be a probability, got {slip}.')
    if episode_length < 1:
      raise ValueError(f'episode_length must be at least 1, got {episode_length}.')
    if image_size < max(self._grid.shape):
      raise ValueError(f'An image of {image_size} pixels is too small for a room of {self._grid.shape} cells.')
    self._seed = seed
    self._episode_length = episode_length
    self._slip = slip
    self._image_size = image_size
    self._hazards_terminate = hazards_terminate
    self._room = np.array([[_COLOURS[cell] for cell in row] for row in self._grid], np.uint8)

    # States are the cells without walls, in reading order. [S, 2]
    self._cells = np.argwhere(self._grid != '#')
    rows, columns = self._cells.T / np.maximum(np.array(self._grid.shape) - 1, 1)[:, None]
    self._positions = np.stack([2.0 * columns - 1.0, 1.0 - 2.0 * rows], axis=-1).astype(np.float32)  # [S, 2]
    kind = self._grid[tuple(self._cells.T)]
    self._starts = np.flatnonzero(kind == 'S')
    self._is_goal = kind == 'G'
    hazards = np.stack([kind == '1', kind == '2'], axis=-1)
    self._is_hazard = hazards.any(-1)
    # Cost of a step that ends in a cell. [S, C]
    self._costs = (hazards if num_constraints == 2 else self._is_hazard[:, None]).astype(np.float32)
    self._landings = _landings(self._grid, self._cells)
    distances = _distances(self._landings, self._is_goal)
    if np.isinf(distances).any():
      raise ValueError(
        f'The goal can not be reached from (row, column) = {tuple(self._cells[np.isinf(distances).argmax()].tolist())}.'
      )
    self._rewards = self._is_goal[self._landings] + shaping * (distances[:, None] - distances[self._landings])

    self._next_episode = 0
    self._rng = None
    self._state = None  # The cell where the agent is.
    self._time = None  # Steps since the reset; None if a reset is due.
    self._last_step_count = 0

  def reset(self) -> dm_env.TimeStep:
    self._rng = np.random.default_rng((self._seed, self._next_episode))
    self._next_episode += 1
    self._state = self._start(self._rng.random())
    self._time = 0
    self._last_step_count = 0
    return dm_env.restart(self._observation())

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    if self._time is None:
      return self.reset()
    action = np.asarray(action)
    if action.shape != (2,) or not np.isfinite(action).all():
      raise ValueError(f'An action is two finite numbers, got {action}.')
    # As many numbers for each step, needed or not: the noise then is the same for all policies.
    for_x, for_y, for_slip, for_move, for_start = self._rng.random(5).tolist()
    if for_slip < self._slip:
      move = int(for_move * len(MOVES))
    else:
      x, y = action.tolist()
      move = 3 * (_sample_sign(x, for_x) + 1) + _sample_sign(y, for_y) + 1
    landing = self._landings[self._state, move]
    reward = types.CmdpReward(np.float32(self._rewards[self._state, move]), self._costs[landing].copy())
    self._state = self._start(for_start) if self._is_goal[landing] else landing
    self._time += 1
    self._last_step_count = 1
    if self._hazards_terminate and self._is_hazard[landing]:
      self._time = None
      return dm_env.termination(reward, self._observation())
    if self._time == self._episode_length:
      self._time = None
      return dm_env.truncation(reward, self._observation(), discount=1.0)
    return dm_env.transition(reward, self._observation(), discount=1.0)

  def observation_spec(self) -> dict[str, specs.Array]:
    shape = (self._image_size, self._image_size, 3)
    known = {
      'vector': specs.BoundedArray((2,), np.float32, -1.0, 1.0, name='vector'),
      'image': specs.BoundedArray(shape, np.uint8, 0, 255, name='image'),
    }
    return {name: known[name] for name in self._observations}

  def action_spec(self) -> specs.BoundedArray:
    return specs.BoundedArray((2,), np.float32, -1.0, 1.0, name='action')

  def reward_spec(self) -> types.CmdpReward:
    return types.CmdpReward(
      reward=specs.Array((), np.float32, name='reward'),
      cost=specs.BoundedArray((len(self.constraint_names),), np.float32, 0.0, 1.0, name='cost'),
    )

  @property
  def task_name(self) -> str:
    return 'GridCmdp ' + '/'.join(''.join(row) for row in self._grid)

  @property
  def mujoco_version(self) -> None:
    return None  # Also in a process that has imported MuJoCo for something else.

  @property
  def constraint_names(self) -> tuple[str, ...]:
    return ('hazards',) if self._costs.shape[1] == 1 else ('hazards_1', 'hazards_2')

  @property
  def episode_length(self) -> int:
    return self._episode_length

  def optimum(self, cost_limits: Sequence[float]) -> tuple[float, Sequence[float]] | None:
    try:
      solution = constrained_optimum(self, cost_limits)
    except occupancy.InfeasibleError:
      return None
    return solution.value, solution.cost_values

  @property
  def next_episode(self) -> int:
    return self._next_episode

  @next_episode.setter
  def next_episode(self, number: int) -> None:
    self._next_episode = number

  @property
  def last_step_count(self) -> int:
    return self._last_step_count

  @property
  def state(self) -> int:
    """The current state, as the policies of `occupancy` index it."""
    return int(self._state)

  def render(self, height: int = 256, width: int = 256) -> np.ndarray:
    room = self._room.copy()
    if self._state is not None:
      room[tuple(self._cells[self._state])] = _AGENT_COLOUR
    rows = np.arange(height) * room.shape[0] // height
    columns = np.arange(width) * room.shape[1] // width
    return room[rows[:, None], columns]

  def finite_cmdp(self) -> occupancy.FiniteCmdp:
    """This environment with `MOVES` for actions. With `hazards_terminate`, one last state stands for the end."""
    initial = np.bincount(self._starts, minlength=len(self._cells)) / len(self._starts)
    follows = np.eye(len(self._cells))  # From where a move ends to where the next one begins.
    follows[self._is_goal] = initial
    transitions, rewards, costs = follows[self._landings], self._rewards, self._costs[self._landings].astype(float)
    if self._hazards_terminate:
      ends = self._is_hazard[self._landings]
      transitions = np.pad(np.where(ends[..., None], 0.0, transitions), [(0, 1), (0, 0), (0, 1)])
      transitions[:-1, :, -1] = ends
      transitions[-1, :, -1] = 1.0
      rewards, costs = np.pad(rewards, [(0, 1), (0, 0)]), np.pad(costs, [(0, 1), (0, 0), (0, 0)])
      initial = np.pad(initial, (0, 1))
    with_slips = lambda table: (1.0 - self._slip) * table + self._slip * table.mean(1, keepdims=True)
    return occupancy.FiniteCmdp(
      with_slips(transitions), with_slips(rewards), with_slips(costs), initial, self._episode_length
    )

  def _start(self, uniform: float) -> int:
    return self._starts[int(uniform * len(self._starts))]

  def _observation(self) -> dict[str, np.ndarray]:
    observation = {}
    for name in self._observations:
      if name == 'image':
        observation[name] = self.render(self._image_size, self._image_size)
      else:
        observation[name] = self._positions[self._state].copy()
    return observation


def constrained_optimum(environment: GridCmdp, limits: Sequence[float]) -> occupancy.Solution:
  """The largest expected return of an episode with expected costs within the limits [C]."""
  return occupancy.solve(environment.finite_cmdp(), limits)


def unconstrained_optimum(environment: GridCmdp) -> occupancy.Solution:
  """The largest expected return of an episode, whatever its costs."""
  return occupancy.solve(environment.finite_cmdp())


def random_value(environment: GridCmdp) -> occupancy.Value:
  """The expected return and costs of actions that are uniform in [-1, 1]^2.

  E|a| = 1/2 on each axis, to both sides alike: -1, 0 and 1 with probabilities 1/4, 1/2 and 1/4.
  """
  cmdp = environment.finite_cmdp()
  policy = np.outer([0.25, 0.5, 0.25], [0.25, 0.5, 0.25]).reshape(-1)
  return occupancy.evaluate(cmdp, np.broadcast_to(policy, cmdp.rewards.shape))


def _parse(layout: Sequence[str]) -> np.ndarray:
  """The layout as an array of characters, [height, width]."""
  if isinstance(layout, str) or len({len(row) for row in layout}) != 1:
    raise ValueError(f'A layout is a tuple of rows of the same length, got {layout!r}.')
  grid = np.array([list(row) for row in layout])
  unknown = set(grid.flat) - set(_COLOURS)
  if unknown:
    raise ValueError(f'A layout is made of {"".join(_COLOURS)!r}, got {"".join(sorted(unknown))!r}.')
  for cell, meaning in (('S', 'start'), ('G', 'goal')):
    if cell not in grid:
      raise ValueError(f'The layout has no {meaning} {cell!r}: {layout!r}.')
  return grid


def _sample_sign(mean: float, uniform: float) -> int:
  """The sign of `mean` with probability |mean|, otherwise 0."""
  return 0 if uniform >= abs(mean) else 1 if mean > 0.0 else -1


def _landings(grid: np.ndarray, cells: np.ndarray) -> np.ndarray:
  """Where each move from each cell ends without a slip, [S, 9] indices of cells."""
  walled = np.pad(grid, 1, constant_values='#')
  index = np.full(walled.shape, -1)
  index[tuple(cells.T + 1)] = np.arange(len(cells))
  landings = np.empty((len(cells), len(MOVES)), int)
  for state, (row, column) in enumerate(cells + 1):
    for move, (x, y) in enumerate(MOVES):
      column_after = column if walled[row, column + x] == '#' else column + x
      row_after = row if walled[row - y, column_after] == '#' else row - y
      landings[state, move] = index[row_after, column_after]
  return landings


def _distances(landings: np.ndarray, is_goal: np.ndarray) -> np.ndarray:
  """The fewest moves from each cell to a goal, [S]; infinite where none leads there."""
  distances = np.where(is_goal, 0.0, np.inf)
  for _ in distances:
    distances = np.minimum(distances, 1.0 + distances[landings].min(-1))
  return distances
