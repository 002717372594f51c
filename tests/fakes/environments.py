"""Environments whose answers are arithmetic, and which fail on command. At module level, for other processes."""

import os
import signal
import sys
import time

import dm_env
from dm_env import specs
import numpy as np

import gin
from lambda_kit import core
from lambda_kit import types
from lambda_kit.environments import wrappers


class Counter(core.Environment):
  """Step t of an episode of `length` steps has reward t, costs (1, 10 t) and shows the action."""

  def __init__(self, seed=0, length=5, terminates=False, poison=None):
    del seed
    self._length, self._terminates, self._poison = length, terminates, poison
    self._next_episode, self._t, self._running = 0, 0, False

  def reset(self):
    self._t, self._running = 0, True
    self._next_episode += 1
    return dm_env.restart({'vector': np.zeros(2)})

  def step(self, action):
    if not self._running:
      return self.reset()
    self._t += 1
    value = self._poison if self._poison is not None and self._t == 2 else float(self._t)
    reward = types.CmdpReward(value, np.array([1.0, 10.0 * self._t]))
    observation = {'vector': np.asarray(action, np.float64)}
    if self._t < self._length:
      return dm_env.transition(reward, observation)
    self._running = False
    return (dm_env.termination if self._terminates else dm_env.truncation)(reward, observation)

  def observation_spec(self):
    return {'vector': specs.Array((2,), np.float64, name='vector')}

  def action_spec(self):
    return specs.BoundedArray((2,), np.float64, [-2.0, 0.0], [2.0, 10.0], name='action')

  def reward_spec(self):
    return types.CmdpReward(specs.Array((), np.float64), specs.Array((2,), np.float64))

  @property
  def constraint_names(self):
    return ('one', 'ten')

  @property
  def next_episode(self):
    return self._next_episode

  @next_episode.setter
  def next_episode(self, number):
    self._next_episode = number
    self._running = False

  @property
  def last_step_count(self):
    return int(self._t > 0)

  def render(self, height=256, width=256):
    return np.zeros((height, width, 3), np.uint8)


class FaultyCounter(Counter):
  """Raises in the third step of episode 1, and in the reset of episode 2."""

  def reset(self):
    if self._next_episode == 2:
      raise OSError('no second floor')
    return super().reset()

  def step(self, action):
    if self._next_episode == 2 and self._t == 2:
      raise ArithmeticError('lost count')
    return super().step(action)


class Failing(wrappers.EnvironmentWrapper):
  """Fails in the second step of episodes with some numbers. `failure` is called, and may raise anything."""

  def __init__(self, environment, episodes, failure=None):
    super().__init__(environment)
    self._episodes, self._failure, self._steps = frozenset(episodes), failure or self._raise, 0

  def reset(self):
    self._steps = 0
    return super().reset()

  def step(self, action):
    self._steps += 1
    if self._steps == 2 and self.next_episode - 1 in self._episodes:
      self._failure()
    return super().step(action)

  def _raise(self):
    raise ArithmeticError('the walls are gone')


# A first action of this value makes the environment ...
RAISE, EXIT, HANG, SPEND, CRASH, KILL, NAN = 101.0, 102.0, 103.0, 104.0, 105.0, 106.0, 107.0


class Walk(core.Environment):
  """Adds actions to a start that is random in (seed, episode).

  Episode n lasts 3 + n % 3 steps. Even episodes end in a terminal state (discount 0), odd ones by a time limit.
  """

  def __init__(self, seed: int, scale: float = 1.0, bias: float = 0.0):
    self._seed = seed
    self._scale = scale
    self._bias = bias
    self._next_episode = 0
    self._position = None

  def reset(self) -> dm_env.TimeStep:
    rng = np.random.default_rng([self._seed, self._next_episode])
    self._position = rng.normal(size=2).astype(np.float32)
    self._left = 3 + self._next_episode % 3
    self._is_terminal = self._next_episode % 2 == 0
    self._next_episode += 1
    return dm_env.restart(self._observation())

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    if self._position is None:
      return self.reset()
    self._fail(action[0])
    self._position = self._position + action
    self._left -= 1
    reward = types.CmdpReward(
      np.float32(self._scale * self._position[0] + self._bias), np.abs(np.append(self._position, 1)).astype(np.float32)
    )
    observation = self._observation()
    if self._left:
      return dm_env.transition(reward, observation, np.float32(1))
    self._position = None
    return dm_env.TimeStep(dm_env.StepType.LAST, reward, np.float32(0 if self._is_terminal else 1), observation)

  def _observation(self) -> types.Observation:
    pixel = np.uint8(np.abs(self._position).sum() * 50 % 256)
    return {
      'vector': np.append(self._position, self._left).astype(np.float32),
      'image': np.full((4, 5, 3), pixel) + np.arange(3, dtype=np.uint8),
    }

  def _fail(self, command: float) -> None:
    if command == RAISE:
      raise ArithmeticError('the walk has left the plane')
    if command == EXIT:
      os._exit(7)
    if command == HANG:
      time.sleep(3600)
    if command == SPEND:
      time.sleep(0.5)
    if command == CRASH:
      os.abort()
    if command == KILL:
      os.kill(os.getpid(), signal.SIGKILL)
    if command == NAN:
      self._position = np.full(2, np.nan, np.float32)

  def observation_spec(self):
    return {'vector': specs.Array((3,), np.float32, 'vector'), 'image': specs.Array((4, 5, 3), np.uint8, 'image')}

  def action_spec(self):
    return specs.BoundedArray((2,), np.float32, -1, 1, 'action')

  def reward_spec(self):
    return types.CmdpReward(specs.Array((), np.float32), specs.Array((3,), np.float32))

  def discount_spec(self):
    return specs.BoundedArray((), np.float32, 0, 1)

  @property
  def constraint_names(self) -> tuple[str, ...]:
    return ('x', 'y', 'time')

  @property
  def next_episode(self) -> int:
    return self._next_episode

  @next_episode.setter
  def next_episode(self, number: int) -> None:
    self._next_episode = number

  @property
  def last_step_count(self) -> int:
    return 2

  def render(self, height: int = 256, width: int = 256) -> np.ndarray:
    return np.zeros((height, width, 3), np.uint8)


class BadReset(Walk):
  """Its second episode can't be begun."""

  def reset(self) -> dm_env.TimeStep:
    if self._next_episode == 1:
      raise OSError('no map of the second plane')
    return super().reset()


class FaultyWalk(Walk):
  """Fails by itself in the second step of each episode whose number leaves the remainder 1 when divided by 3."""

  def __init__(self, seed: int, fault: float):
    super().__init__(seed)
    self._fault = fault

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    if self._position is not None and (self._next_episode - 1) % 3 == 1 and self._left == 3:  # Of 4.
      self._fail(self._fault)
    return super().step(action)


def make_faulty_walk(seed: int, fault: float) -> core.Environment:
  return wrappers.SinglePrecision(FaultyWalk(seed, fault))


class BadShape(Walk):
  """Doesn't keep to its spec."""

  def observation_spec(self):
    return super().observation_spec() | {'vector': specs.Array((4,), np.float32)}


class BadClose(Walk):
  """Can't be closed."""

  def close(self) -> None:
    raise OSError('the plane is stuck')


class SlowClose(Walk):
  """Takes for ever to close."""

  def close(self) -> None:
    time.sleep(3600)


class SeedShape(Walk):
  """Its specs depend on its seed."""

  def action_spec(self):
    return specs.BoundedArray((2,), np.float32, -1, self._seed)


class Modules(Walk):
  """Its reward tells whether its process has imported jax."""

  def reset(self) -> dm_env.TimeStep:
    self._bias, self._scale = float('jax' in sys.modules), 0.0
    return super().reset()


def refuse(seed: int) -> core.Environment:
  raise LookupError(f'no plane for {seed}')


def sleep_for_ever(seed: int) -> core.Environment:
  time.sleep(3600)


@gin.register
def make_walk(seed: int, scale: float = 1.0, bias: float = 0.0, walk_factory=Walk) -> core.Environment:
  return walk_factory(seed, scale=scale, bias=bias)


@gin.register
def add(left: float, right: float = 0.25) -> float:
  return left + right


@gin.configurable
def configured_bias(value: float = 0.0) -> float:
  return value


def register_late(seed: int) -> core.Environment:
  """Stands for a factory that imports a module with configurables only when it's called."""
  gin.external_configurable(Walk, name='late.Walk')
  return Walk(seed)


@gin.register
def make_biased_walk(seed: int) -> core.Environment:
  """Calls a configurable itself, rather than taking it as an argument."""
  return Walk(seed, bias=configured_bias())
