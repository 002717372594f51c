"""What batches from the replay cost beside the updates that use them, and whether they are prepared meanwhile.

Batches are the paper's, B = 32, L = 50 and 64x64 images. The learner that consumes them has small networks by default,
so that the measurement takes a minute or two: of its update, sampling takes far more than of the paper's. How much it
takes of that at most follows from the least time that such an update can take, its FLOP at the rate of a large product
in the same run. Where the update was measured itself, it is compared with, too.

A batch is prepared in the shadow of an update if, at the moment when it is complete, the learner's last update is not.
"""

from collections.abc import Callable, Sequence
import dataclasses
import threading
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks import learner_pieces
from benchmarks import learner_speed
from benchmarks import stand_ins
from lambda_kit import types
from lambda_kit.replay import sequences

TARGET_SHARE = 0.05  # Of an update at the paper's size.
_PAPER = stand_ins.SIZES['paper_images']
# The paper's batches, and next to nothing to do with them.
CHEAP = dataclasses.replace(
  _PAPER,
  gin_files=(*_PAPER.gin_files, 'gin/sizes/narrow.gin'),
  bindings=(
    'WIDTH = 32',
    'ImageEncoder.depth = 4',
    'ImageDecoder.depth = 4',
    'ImageDecoder.dense_size = 32',
    'LambdaAgent.num_start_states = 32',
    'LambdaAgent.num_samples = 2',
    'LambdaAgent.horizon = 5',
    'LambdaAgent.updates_per_call = 1',
  ),
)


def measure(
  search_paths: Sequence[str],
  size: stand_ins.Size = CHEAP,
  num_episodes: int = 20,
  episode_steps: int = 500,
  updates: int = 6,
  rounds: int = 3,
  paper: stand_ins.Size | None = _PAPER,
  paper_seconds: float | None = None,
) -> dict[str, Any]:
  """Times sampling alone, and updates with batches from the replay.

  Args:
    search_paths: Folders where gin files are looked up.
    size: Of the learner and of the batches.
    num_episodes: In the replay.
    episode_steps: Agent steps of each.
    updates: Of each call of the learner.
    rounds: Calls of the learner.
    paper: The size whose least time of an update is compared with; None to leave it out.
    paper_seconds: Seconds of its update, where they were measured in the same run.

  Returns:
    `batch_bytes`; `sample_ms`, `sample_cpu_ms`: of a batch on its own; `update_ms`, `update_cpu_ms`: of an update, the
    wait for its batch included; `share`, `cpu_share`: their ratios; `in_shadow`: the part of the time of sampling in
    which an update was under way; `threads`: in which batches were prepared; `paper_floor_seconds`,
    `share_of_paper_floor`; `share_of_paper_update`, where `paper_seconds` is given.
  """
  builder, environment = stand_ins.make_builder(size, search_paths)
  rng = np.random.default_rng(0)
  replay = builder.make_replay(environment_steps=1, seed=0)
  for _ in range(num_episodes):
    replay.add(stand_ins.random_episode(environment, episode_steps, rng))
  dataset: Any = builder.make_dataset(replay)
  batch = next(dataset.batches(1))
  sample = lambda: jax.block_until_ready(next(dataset.batches(1)))
  samples = np.median([_timed(sample) for _ in range(updates * rounds)], axis=0)

  watched = _WatchedReplay(replay)
  learner = watched.learner = builder.make_learner(builder.make_dataset(watched), seed=0)
  learner.step(1)  # Compiles.
  watched.records.clear()
  update = np.median([_timed(lambda: learner.step(updates)) for _ in range(rounds)], axis=0) / updates
  total = sum(record.seconds for record in watched.records)
  result = dict(
    batch_bytes=sum(leaf.nbytes for leaf in jax.tree.leaves(batch)),
    updates=updates,
    rounds=rounds,
    sample_ms=1e3 * samples[0],
    sample_cpu_ms=1e3 * samples[1],
    update_ms=1e3 * update[0],
    update_cpu_ms=1e3 * update[1],
    share=samples[0] / update[0],
    cpu_share=samples[1] / update[1],
    in_shadow=sum(record.seconds for record in watched.records if record.in_shadow) / total,
    threads=sorted({record.thread for record in watched.records}),
  )
  if paper is not None:
    floor = _least_seconds(paper, search_paths)
    result |= dict(paper_floor_seconds=floor, share_of_paper_floor=samples[0] / floor)
  if paper_seconds is not None:
    result['share_of_paper_update'] = samples[0] / paper_seconds
  return {name: float(value) if isinstance(value, np.floating) else value for name, value in result.items()}


def table(result: dict[str, Any]) -> tuple[str, list[str], list[list[str]]]:
  """Title, headings and rows for the figures of `measure`."""
  rows = [
    ['a batch from the replay, alone', f'{result["sample_ms"]:.1f} ms, {result["sample_cpu_ms"]:.1f} CPU ms'],
    ['an update of the smallest networks', f'{result["update_ms"]:.0f} ms, {result["update_cpu_ms"]:.0f} CPU ms'],
    ['batch / that update', f'{result["share"]:.1%}, CPU {result["cpu_share"]:.1%}'],
    ['part of the time of sampling in which an update was under way', f'{result["in_shadow"]:.0%}'],
  ]
  if 'share_of_paper_floor' in result:
    rows.append(
      [
        f"batch / least time of an update at the paper's size, {result['paper_floor_seconds']:.1f} s",
        f'{result["share_of_paper_floor"]:.2%}',
      ]
    )
  if 'share_of_paper_update' in result:
    rows.append(["batch / update at the paper's size", f'{result["share_of_paper_update"]:.2%}'])
  return (
    f'Sampling of batches of {result["batch_bytes"] / 1e6:.1f} MB (target: below {TARGET_SHARE:.0%} of an update '
    "at the paper's size)",
    ['what', ''],
    rows,
  )


class _Record(NamedTuple):
  """How a batch was prepared."""

  seconds: float
  in_shadow: bool  # Whether an update was under way when it was complete.
  thread: str


class _WatchedReplay:
  """Draws from a buffer, and keeps records of the batches that are prepared."""

  def __init__(self, replay: Any):
    self._replay = replay
    self.learner: Any = None  # It learns from what is drawn here, so it is made later.
    self.records: list[_Record] = []

  def draw(self, num_batches: int, batch_size: int) -> '_WatchedDraws':
    return _WatchedDraws(self._replay.draw(num_batches, batch_size), self)

  def record(self, begin: float) -> None:
    """Keeps a record of a batch whose preparation began at `begin` and ends now."""
    end = time.perf_counter()
    try:
      in_shadow = not self.learner.save().updates.is_ready()
    except RuntimeError:  # Deleted: the state was given to an update that has not returned yet.
      in_shadow = True
    self.records.append(_Record(end - begin, in_shadow, threading.current_thread().name))


class _WatchedDraws:
  """`sequences.Draws` of a `_WatchedReplay`."""

  def __init__(self, draws: sequences.Draws, replay: _WatchedReplay):
    self._draws = draws
    self._replay = replay

  @property
  def num_batches(self) -> int:
    return self._draws.num_batches

  def batch(self, i: int) -> types.Trajectory:
    begin = time.perf_counter()
    batch = self._draws.batch(i)
    self._replay.record(begin)
    return batch


def _timed(work: Callable[[], Any]) -> np.ndarray:
  """Seconds and CPU seconds, [2]."""
  return learner_speed.timed(work)[1]


def _least_seconds(size: stand_ins.Size, search_paths: Sequence[str]) -> float:
  """FLOP of an update, at the best rate of a few large products."""
  gemm = learner_speed.make_gemm()
  seconds = min(gemm()[0] for _ in range(5))
  return learner_pieces.make_subject(size, search_paths).flop * seconds / (2 * learner_speed.GEMM_SIZE**3)
