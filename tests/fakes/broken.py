"""A gymnasium environment that breaks its contract in the way that gin asks for. Broken.fault names the way."""

import gymnasium
from gymnasium import spaces
import numpy as np

import gin

_ACTIONS = {
  'scalar actions': spaces.Box(-1.0, 1.0, ()),
  'matrix actions': spaces.Box(-1.0, 1.0, (2, 3)),
  'discrete actions': spaces.Discrete(3),
  'many discrete actions': spaces.MultiDiscrete([3, 2]),
  'integer actions': spaces.Box(0, 5, (2,), np.int64),
  'unbounded actions': spaces.Box(-np.inf, np.inf, (2,)),
  'fixed actions': spaces.Box(1.0, 1.0, (2,)),
}
_OBSERVATIONS = {
  'discrete observations': spaces.Discrete(3),
  'tuple of observations': spaces.Tuple([spaces.Box(-1.0, 1.0, (2,))]),
  'two pictures': spaces.Dict({name: spaces.Box(0, 255, (4, 4, 3), np.uint8) for name in ('left', 'right')}),
}


class Broken(gymnasium.Env):
  """Two numbers and a cost of 1 for each step, apart from its fault."""

  metadata = {'render_modes': ['rgb_array']}

  def __init__(self, fault: str = 'none', render_mode: str | None = None):
    if fault == 'constructor raises':
      raise KeyError('no such room')
    self.fault, self.render_mode = fault, render_mode
    self.action_space = _ACTIONS.get(fault, spaces.Box(-1.0, 1.0, (2,)))
    if fault == 'inverted bounds':
      self.action_space = spaces.Box(-1.0, 1.0, (2,))
      self.action_space.low, self.action_space.high = self.action_space.high, self.action_space.low
    self.observation_space = _OBSERVATIONS.get(fault, spaces.Box(-np.inf, np.inf, (2,), np.float64))
    self._steps = 0

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self._steps = 0
    if self.fault == 'reset raises':
      raise ZeroDivisionError('no floor')
    if self.fault == 'reset returns no info':
      return self._observe('reset')
    return self._observe('reset'), {}

  def step(self, action):
    del action
    self._steps += 1
    if self.fault == 'step raises':
      raise ArithmeticError('lost count\nin detail')
    cost = {
      'cost is NaN': np.nan,
      'cost is None': None,
      'cost is text': 'high',
      'cost has two numbers': np.ones(2),
    }.get(self.fault, 1.0)
    info = {'expense': 1.0} if self.fault == 'no cost' else {'cost': cost}
    reward = {'reward is NaN': np.nan, 'reward is None': None, 'reward has two numbers': np.ones(2)}.get(
      self.fault, 1.0
    )
    if self.fault == 'step returns four values':
      return self._observe('step'), reward, False, info
    return self._observe('step'), reward, False, self._steps == 20, info

  def render(self):
    if self.fault == 'render raises':
      raise RuntimeError('no brush')
    if self.fault == 'render returns nothing':
      return None
    if self.fault == 'render returns numbers':
      return np.zeros((8, 8, 3))
    return np.zeros((8, 8, 3), np.uint8)

  def _observe(self, call):
    if self.fault in (f'{call} returns NaN', f'{call} returns an infinity'):
      return np.array([0.0, np.nan if 'NaN' in self.fault else np.inf])
    if self.fault == f'{call} returns another shape':
      return np.zeros(3)
    if self.fault == f'{call} returns text':
      return np.array(['a', 'b'])
    if self.fault == f'{call} returns nothing':
      return None
    return np.zeros(2)


class Undrawn(Broken):
  """Takes no `render_mode`, and has no `render`."""

  metadata = {'render_modes': []}
  render = gymnasium.Env.render

  def __init__(self):
    super().__init__()


@gin.register(module='broken')
def make_broken(task: str, render_mode: str, fault: str = 'none') -> gymnasium.Env:
  """Broken, as `gymnasium.make` would make it."""
  environment = Broken(fault, render_mode)
  environment.spec = gymnasium.envs.registration.EnvSpec(task, max_episode_steps=20)
  return environment
