"""Episodes whose entries say where they come from, and an environment whose time steps say what led to them."""

import dm_env
from dm_env import specs
import numpy as np

from lambda_kit import core
from lambda_kit import types
from lambda_kit.replay import episodes

HEADER = episodes.Header(
  task='fake',
  observations={'vector': episodes.Field((2,), 'float32'), 'image': episodes.Field((2, 2, 3), 'uint8')},
  action_shape=(1,),
  constraint_names=('first', 'second'),
  action_repeat=1,
)


def make_episode(number: int, num_steps: int, terminal: bool = False) -> episodes.Episode:
  """Time step t of episode n has the vector (n, t), the image t mod 256, and 1000 n + t everywhere else."""
  times = np.arange(num_steps + 1, dtype=np.float32)
  where = 1000.0 * number + times
  ends = np.zeros_like(times)
  ends[-1] = terminal
  return episodes.Episode(
    observation={
      'vector': np.stack([np.full_like(times, number), times], axis=-1),
      'image': np.broadcast_to((times % 256).astype(np.uint8)[:, None, None, None], (num_steps + 1, 2, 2, 3)),
    },
    action=where[:, None],
    reward=where,
    cost=np.stack([where, -where], axis=-1),
    terminal=ends,
  )


def assert_equal(actual, expected) -> None:
  """Compares episodes or trajectories bit for bit."""
  actual, expected = episodes.flatten(actual), episodes.flatten(expected)
  assert actual.keys() == expected.keys()
  for name, array in expected.items():
    found = np.asarray(actual[name])
    assert (found.dtype, found.shape) == (array.dtype, array.shape), name
    assert found.tobytes() == np.asarray(array).tobytes(), name


class EchoEnvironment(core.Environment):
  """Each step gives back its action a as the vector (a, t), the reward 10 a and the costs (100 a, -100 a).

  The same arrays are used for all observations, which an adder must survive.
  """

  task_name = 'fake'
  constraint_names = ('first', 'second')
  next_episode = 0
  last_step_count = 1

  def __init__(self, num_steps: int, terminates: bool = False, discount: float = 1.0):
    self._num_steps, self._terminates, self._discount = num_steps, terminates, discount
    self._observation = {'vector': np.zeros(2, np.float64), 'image': np.zeros((2, 2, 3), np.uint8)}
    self._time = 0

  def _observe(self, action: float) -> dict[str, np.ndarray]:
    self._observation['vector'][:] = action, self._time
    self._observation['image'][:] = self._time % 256
    return self._observation

  def reset(self) -> dm_env.TimeStep:
    self._time = 0
    return dm_env.restart(self._observe(0.0))

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    self._time += 1
    action = float(action[0])
    reward = types.CmdpReward(10.0 * action, np.array([100.0 * action, -100.0 * action]))
    if self._time < self._num_steps:
      return dm_env.transition(reward, self._observe(action), discount=self._discount)
    if self._terminates:
      return dm_env.termination(reward, self._observe(action))
    return dm_env.truncation(reward, self._observe(action), discount=self._discount)

  def observation_spec(self):
    return {'vector': specs.Array((2,), np.float64), 'image': specs.Array((2, 2, 3), np.uint8)}

  def action_spec(self):
    return specs.BoundedArray((1,), np.float32, -1.0, 1.0)

  def render(self, height: int = 256, width: int = 256) -> np.ndarray:
    return np.zeros((height, width, 3), np.uint8)
