"""A small constrained MDP that needs no simulator and has a known optimum."""

from collections.abc import Sequence
from typing import Annotated

import dm_env
from dm_env import specs
import numpy as np

import gin
from lambda_kit import core
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.environments import occupancy

# The short path from the starts (S) to the goal (G) leads through a pond of hazards (1, 2), the safe path around it.
# At a limit of 5 on the one cost, the optimum is 22.83; at limits of (2.5, 2.5) on two costs, 22.80; without limits
# 25.86 at a cost of 53.3. Random actions earn 0.93 at a cost of 21.9.
DEFAULT_LAYOUT = ('.......', '.......', '.......', '.......', '..222..', 'S.111.G', 'SS111..')

# The moves (x, y); move 3 (x + 1) + y + 1 is also the action that makes it with probability 1. [9, 2]
MOVES = np.array([(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)])

_COLOURS = {  # As in Safety-Gym, where it has the object.
  '.': (235, 235, 235),
  'S': (235, 235, 235),
  '#': (60, 60, 60),
  'G': (0, 190, 60),
  '1': (60, 60, 255),
  '2': (150, 60, 255),
}
_AGENT_COLOUR = (230, 40, 40)


@gin.register
@ranges.checked
class GridCmdp(core.Environment):
  """A small room to cross again and again: +1 at the goal, then back to a random start, until the time limit.

  The action (a_x, a_y) in [-1, 1]^2 moves the agent one cell in the direction sign(a_x) with probability |a_x| and,
  independently, one cell up or down by sign(a_y) with probability |a_y|. With probability `slip`, one of the nine
  moves is made instead, uniformly at random. The horizontal part of a move comes first; walls block each part
  separately.

  The finite problem with the nine moves as actions has the same optimum: every action is a mixture of moves, and every
  move is an action, so both action sets allow the same occupation measures. `occupancy.solve` finds it exactly. (An
  action repeat changes the problem.)

  Each step that ends in a hazard costs 1. Rewards have a shaping term, `shaping` times the number of moves by which
  the step came closer to the goal: crossing the room earns the same on all paths.
  """

  def __init__(
    self,
    seed: int,
    layout: Sequence[str] = DEFAULT_LAYOUT,
    episode_length: ranges.Count = 100,
    slip: ranges.Share = 0.05,
    shaping: ranges.Finite = 0.1,
    num_constraints: Annotated[int, ranges.Range(at_least=1, at_most=2)] = 1,
    hazards_terminate: bool = False,
    observations: Sequence[str] = ('vector',),
    image_size: ranges.Count = 16,
  ):
    """Makes the room.

    Args:
      seed: With the episode's number, it determines starts and moves.
      layout: Rows from top to bottom, of free cells '.', starts 'S', goals 'G', hazards '1' and '2', and walls '#'.
      episode_length: T, steps until the time limit.
      slip: Probability of a random move instead of the chosen one.
      shaping: Reward for each move by which the agent came closer to the goal, on the shortest path around walls.
      num_constraints: 1 for one cost of all hazards, 2 for one cost for each type.
      hazards_terminate: Whether the first hazard ends the episode, with discount 0.
      observations: 'vector' (position x, y in [-1, 1]; y points up), 'image' (the room from above), or both.
      image_size: Height and width of the image.
    """
    self._grid = _parse(layout)
    self._observations = tuple(observations)
    if not self._observations or not set(self._observations) <= {'vector', 'image'}:
      raise errors.SetupError(
        f"GridCmdp.observations must be a tuple of 'vector', 'image' or both, got {observations!r}."
      )
    if image_size < max(self._grid.shape):
      raise errors.SetupError(
        f'GridCmdp.image_size = {image_size} is too small for a room of {self._grid.shape} cells.'
      )
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
    self._is_hazard = np.isin(kind, ['1', '2'])
    # Cost of a step that ends in a cell. [S, C]
    self._costs = (hazards if num_constraints == 2 else self._is_hazard[:, None]).astype(np.float32)
    self._landings = _landings(self._grid, self._cells)
    distances = _distances(self._landings, self._is_goal)
    if np.isinf(distances).any():
      cell = self._cells[np.isinf(distances).argmax()].tolist()
      raise errors.SetupError(f'GridCmdp.layout: the goal can not be reached from (row, column) = {tuple(cell)}.')
    self._rewards = self._is_goal[self._landings] + shaping * (distances[:, None] - distances[self._landings])

    self._next_episode = 0
    self._rng = np.random.default_rng()  # Seeded by `reset`.
    self._state: int | None = None  # The agent's cell; None before the first episode.
    self._time = 0  # Steps since the reset.
    self._needs_reset = True
    self._last_step_count = 0

  def reset(self) -> dm_env.TimeStep:
    self._rng = np.random.default_rng((self._seed, self._next_episode))
    self._next_episode += 1
    self._state = self._start(self._rng.random())
    self._time = 0
    self._needs_reset = False
    self._last_step_count = 0
    return dm_env.restart(self._observation())

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    if self._needs_reset:
      return self.reset()
    action = np.asarray(action)
    if action.shape != (2,) or not np.isfinite(action).all():
      raise ValueError(f'An action is two finite numbers, got {action}.')
    # Every step draws the same number of random numbers, so that the noise doesn't depend on the policy.
    for_x, for_y, for_slip, for_move, for_start = self._rng.random(5).tolist()
    if for_slip < self._slip:
      move = int(for_move * len(MOVES))
    else:
      x, y = action.tolist()
      move = 3 * (_sample_sign(x, for_x) + 1) + _sample_sign(y, for_y) + 1
    landing = int(self._landings[self._state, move])
    reward = types.CmdpReward(np.float32(self._rewards[self._state, move]), self._costs[landing].copy())
    self._state = self._start(for_start) if self._is_goal[landing] else landing
    self._time += 1
    self._last_step_count = 1
    if self._hazards_terminate and self._is_hazard[landing]:
      self._needs_reset = True
      return dm_env.termination(reward, self._observation())
    if self._time == self._episode_length:
      self._needs_reset = True
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
    return None  # Even if something else in this process has imported MuJoCo.

  @property
  def constraint_names(self) -> tuple[str, ...]:
    return ('hazards',) if self._costs.shape[1] == 1 else ('hazards_1', 'hazards_2')

  @property
  def episode_length(self) -> int:
    return self._episode_length

  def optimum(self, cost_limits: Sequence[float]) -> tuple[float, Sequence[float]] | None:
    try:
      solution = occupancy.solve(self.finite_cmdp(), cost_limits)
    except occupancy.InfeasibleError:
      return None
    return solution.value, solution.cost_values.tolist()

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
  def state(self) -> int | None:
    """The current state, as `finite_cmdp` numbers it; None before the first episode."""
    return self._state

  def render(self, height: int = 256, width: int = 256) -> np.ndarray:
    room = self._room.copy()
    if self._state is not None:
      room[tuple(self._cells[self._state])] = _AGENT_COLOUR
    rows = np.arange(height) * room.shape[0] // height
    columns = np.arange(width) * room.shape[1] // width
    return room[rows[:, None], columns]

  def finite_cmdp(self) -> occupancy.FiniteCmdp:
    """This environment with `MOVES` as actions. With `hazards_terminate`, one more state, the last, means the end."""
    initial = np.bincount(self._starts, minlength=len(self._cells)) / len(self._starts)
    follows = np.eye(len(self._cells))  # From the cell where a move ends to the one where the next begins.
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
    return int(self._starts[int(uniform * len(self._starts))])

  def _observation(self) -> dict[str, np.ndarray]:
    observation = {}
    for name in self._observations:
      if name == 'image':
        observation[name] = self.render(self._image_size, self._image_size)
      else:
        observation[name] = self._positions[self._state].copy()
    return observation


def _parse(layout: Sequence[str]) -> np.ndarray:
  """The layout as an array of characters, [height, width]."""
  if isinstance(layout, str) or len({len(row) for row in layout}) != 1:
    raise errors.SetupError(f'GridCmdp.layout is a tuple of rows of the same length, got {layout!r}.')
  grid = np.array([list(row) for row in layout])
  unknown = set(grid.flat) - set(_COLOURS)
  if unknown:
    raise errors.SetupError(f'GridCmdp.layout is made of {"".join(_COLOURS)!r}, got {"".join(sorted(unknown))!r}.')
  for cell, meaning in (('S', 'start'), ('G', 'goal')):
    if cell not in grid:
      raise errors.SetupError(f'GridCmdp.layout has no {meaning} {cell!r}: {layout!r}.')
  return grid


def _sample_sign(mean: float, uniform: float) -> int:
  """The sign of `mean` with probability |mean|, otherwise 0."""
  return 0 if uniform >= abs(mean) else 1 if mean > 0.0 else -1


def _landings(grid: np.ndarray, cells: np.ndarray) -> np.ndarray:
  """The cell in which each move from each cell ends, without slips: indices [S, 9]."""
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
  """The fewest moves from each cell to a goal, [S]; infinite where no path exists."""
  distances = np.where(is_goal, 0.0, np.inf)
  for _ in distances:
    distances = np.minimum(distances, 1.0 + distances[landings].min(-1))
  return distances
