"""What a checkpoint costs at different sizes of the replay: it must not grow with it.

The learner is a stand-in of fixed size, and episodes are images. What is measured is the real checkpointer with its
thread, its replay folder and its files.
"""

from collections.abc import Sequence
import pathlib
import tempfile
import time
import types
from typing import Any

import numpy as np

from lambda_kit.replay import buffer as buffer_lib
from lambda_kit.replay import episodes as episodes_lib
from lambda_kit.training import checkpointing
from lambda_kit.training import environment_loop

_IMAGE = (64, 64, 3)
_StandIn: Any = types.SimpleNamespace
_HEADER = episodes_lib.Header('checkpoint_speed', {'image': episodes_lib.Field(_IMAGE, 'uint8')}, (2,), ('cost',), 2)


def measure(
  num_episodes: Sequence[int] = (10, 100, 1000),
  episode_length: int = 100,
  num_parameters: int = 100_000,
  rounds: int = 5,
) -> list[dict[str, Any]]:
  """Takes checkpoints, each with one new episode, when the replay holds different numbers of episodes.

  Args:
    num_episodes: Sizes of the replay, ascending.
    episode_length: T.
    num_parameters: Of the learner.
    rounds: Checkpoints for each size, of which the median counts.

  Returns:
    A row for each size: `episodes`, the `replay_bytes` in memory, the `written_bytes` of a checkpoint, the
    `episode_bytes` among them, and the `seconds` until all is on disk.
  """
  episode = _make_episode(episode_length)
  with tempfile.TemporaryDirectory() as name:
    run = _Run(pathlib.Path(name), num_parameters)
    rows = []
    for target in num_episodes:
      # All but the last ones are taken at once. In a run they were there before, one for each checkpoint.
      while run.replay.num_episodes < target - rounds:
        run.replay.add(episode)
      run.take()
      measured = []
      for _ in range(rounds):
        run.replay.add(episode)
        measured.append(run.take())
      written, of_episode, seconds = np.median(measured, axis=0)
      rows.append(
        dict(
          episodes=run.replay.num_episodes,
          replay_bytes=run.replay.num_bytes,
          written_bytes=int(written),
          episode_bytes=int(of_episode),
          seconds=float(seconds),
        )
      )
    run.checkpointer.finish()
  return rows


class _Run:
  """Stand-ins for what a checkpointer reads of a run, at an arbitrary step."""

  def __init__(self, folder: pathlib.Path, num_parameters: int):
    self._folder = folder
    self._step = 10**6
    self.replay = buffer_lib.EpisodeBuffer(_HEADER, seed=0)
    parameters = np.random.default_rng(0).normal(size=num_parameters).astype(np.float32)
    self._loop = _StandIn()
    self.checkpointer = checkpointing.Checkpointer(
      folder,
      checkpointing.Parts(
        environment=_StandIn(task_name=_HEADER.task, next_episode=0),
        actor=_StandIn(),
        learner=_StandIn(save=lambda: parameters),
        replay=self.replay,
        loop=self._loop,
        diagnostics=_StandIn(save=dict),
        evaluations=[],
        logs=_StandIn(save=dict, sync=lambda: None),
      ),
      every_steps=1,
      every_seconds=1e9,
      keep=3,
    )

  def take(self) -> tuple[int, int, float]:
    """Takes a checkpoint. Returns the bytes written, those of episodes among them, and seconds."""
    self._step += 1
    self._loop.state = environment_loop.LoopState(0, self._step, 0, np.zeros(1), 0)
    before = set(self._folder.rglob('*'))
    started = time.perf_counter()
    self.checkpointer.take()
    self.checkpointer.wait()
    seconds = time.perf_counter() - started
    sizes = {path: path.stat().st_size for path in set(self._folder.rglob('*')) - before if path.is_file()}
    return sum(sizes.values()), sum(size for path, size in sizes.items() if path.suffix == '.npz'), seconds


def _make_episode(length: int) -> episodes_lib.Episode:
  """Images that compress about as well as a camera's: patches of one colour with a little noise."""
  rng = np.random.default_rng(0)
  patches = rng.integers(0, 250, (length + 1, 8, 8, 3)).repeat(8, axis=1).repeat(8, axis=2)
  numbers = np.zeros(length + 1, np.float32)
  return episodes_lib.Episode(
    {'image': (patches + rng.integers(0, 2, patches.shape)).astype(np.uint8)},
    np.zeros((length + 1, 2), np.float32),
    numbers,
    numbers[:, None],
    numbers,
  )
