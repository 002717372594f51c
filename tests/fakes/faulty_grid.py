"""The built-in CMDP with faults in some of its episodes, always in the same ones."""

import os
import random
import signal
import time

import numpy as np

import gin
from lambda_kit.environments import grid_cmdp


@gin.register
class FaultyGrid(grid_cmdp.GridCmdp):
  """Fails in the third step of one of `period` episodes."""

  def __init__(self, seed: int, episode_length: int = 20, fault: str = 'raises', period: int = 5):
    super().__init__(seed, episode_length=episode_length)
    self._fault, self._seed_of_faults, self._period, self._steps = fault, seed, period, 0

  def reset(self):
    self._steps = 0
    return super().reset()

  def step(self, action):
    self._steps += 1
    rng = random.Random(f'{self._seed_of_faults}-{self.next_episode}')
    if self._steps != 3 or rng.randrange(self._period):
      return super().step(action)
    if self._fault == 'raises':
      raise ArithmeticError('the walls are gone')
    if self._fault == 'hangs':
      time.sleep(3600)
    if self._fault == 'dies':
      os.kill(os.getpid(), signal.SIGKILL)
    timestep = super().step(action)
    return timestep._replace(reward=timestep.reward._replace(reward=np.float32(np.nan)))
