"""A run's checkpoints: everything that it needs to resume as if it had never stopped.

An episode depends only on the learned variables and on its number, since environments and actors draw all noise from
their seed and that number. So a run can be resumed at the end of any episode. The checkpointer takes a snapshot in
memory at each of them. Snapshots go to disk before the first step, at intervals, after evaluations, and when the run
stops for any reason. A resumed run repeats the episode that was under way, to the bit.
"""

from collections.abc import Callable
import contextlib
import pathlib
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from lambda_kit import core
from lambda_kit.logs import diagnostics as diagnostics_lib
from lambda_kit.logs import run_logs
from lambda_kit.replay import archive as archive_lib
from lambda_kit.replay import buffer as buffer_lib
from lambda_kit.replay import episodes as episodes_lib
from lambda_kit.training import environment_loop
from lambda_kit.training.checkpoints import background
from lambda_kit.training.checkpoints import errors
from lambda_kit.training.checkpoints import store as store_lib


class Parts(NamedTuple):
  """The parts of a run that have state."""

  environment: core.Environment
  actor: core.Actor
  learner: core.Learner
  replay: buffer_lib.EpisodeBuffer | None
  loop: environment_loop.Loop
  diagnostics: diagnostics_lib.Diagnostics
  evaluations: list[dict[str, Any]]  # Rows.
  logs: run_logs.RunLogs


class _Snapshot(NamedTuple):
  step: int
  learner: Any
  state: dict[str, Any]
  score: dict[str, Any] | None


class Checkpointer:
  """Takes snapshots of a run's parts, writes them in the background, and restores them.

  Args:
    folder: The workdir: checkpoints go to `checkpoints/`, episodes to `replay/`.
    parts: What to save and restore.
    every_steps: Environment steps between two writes.
    every_seconds: Seconds between two writes; whichever is due first counts.
    keep: Number of latest checkpoints to keep, in addition to the best safe one.
    run_id: Of the run, which all files carry. None for runs that are older than ids.
    writing: Entered for each write, which it may refuse.
  """

  def __init__(
    self,
    folder: pathlib.Path,
    parts: Parts,
    every_steps: int,
    every_seconds: float,
    keep: int,
    run_id: str | None = None,
    writing: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
  ):
    self._folder = folder
    self._parts = parts
    self._every_steps, self._every_seconds = every_steps, every_seconds
    self._writing = writing
    self._store = store_lib.CheckpointStore(folder / 'checkpoints', keep, run_id, writing)
    self._saver = background.BackgroundSaver(self._store)
    self._replay: tuple[buffer_lib.EpisodeBuffer, archive_lib.ReplayArchive] | None = None
    if parts.replay is not None:
      self._replay = parts.replay, archive_lib.ReplayArchive(folder / 'replay', parts.replay, run_id)
    self._snapshot: _Snapshot | None = None
    self._written_step, self._written_time = 0, time.monotonic()

  def begin(self) -> None:
    """Saves the parts as they are before the first step: a run without a checkpoint has lost its checkpoints."""
    self._store.remove_leftovers()
    if self._replay is not None:
      _, archive = self._replay
      archive.restore_none()
    self._parts.logs.restore({})
    self._write(self._make_snapshot(score=None))
    self.wait()

  def resume(self) -> int:
    """Restores the parts from the newest good checkpoint with good episodes. Later ones are set aside.

    Returns:
      Its environment steps.

    Raises:
      CheckpointError: No checkpoint can be used, or they belong to another run.
      EpisodeFileError: All of them need an episode that is missing or damaged. Nothing on disk was changed.
      StrangeEpisodeError: The run did not write one of its episodes. Nothing on disk was changed.
    """
    self._store.restore_replaced()
    checkpoint = self._store.newest()
    if checkpoint is None:
      raise errors.CheckpointError(
        f'The run in {self._folder} has begun, but its checkpoints are gone from {self._folder / "checkpoints"}. Put '
        f'them back, or give --restart, which moves all that is left to {self._folder}.before-1 and starts anew.'
      )
    check_task(checkpoint, self._parts.environment)
    unusable: list[tuple[store_lib.Checkpoint, episodes_lib.EpisodeFileError]] = []
    while checkpoint is not None:
      try:
        self._restore(checkpoint)
      except episodes_lib.EpisodeFileError as error:
        unusable.append((checkpoint, error))
        checkpoint = self._store.newest(before=checkpoint.step)
      else:
        for later, reason in unusable:
          self._store.set_aside(later, reason)
        self._store.remove_leftovers()
        return checkpoint.step
    raise unusable[0][1]

  def _restore(self, checkpoint: store_lib.Checkpoint) -> None:
    parts, state = self._parts, checkpoint.state
    # The learner comes before the replay: if its arrays don't fit, no episode file has been deleted.
    parts.learner.restore(checkpoint.load('learner', parts.learner.save()))
    if self._replay is not None:
      buffer, archive = self._replay
      archive.restore(*state['replay']['span'])
      buffer.set_rng_state(state['replay']['rng'])
    parts.loop.state = environment_loop.LoopState.from_json(state['loop'])
    parts.environment.next_episode = state['next_episode']
    parts.diagnostics.restore(state['diagnostics'])
    parts.evaluations[:] = state['evaluations']
    if 'logs' in state:
      parts.logs.restore(state['logs'])
    else:
      parts.logs.adopt(checkpoint.step)
    parts.actor.update()
    self._written_step = checkpoint.step

  def take(self, score: dict[str, Any] | None = None) -> None:
    """Takes a snapshot at the end of an episode, and starts to write it if that is due.

    Args:
      score: Result of an evaluation at this time step, if any. Such snapshots are always written.
    """
    snapshot = self._snapshot = self._make_snapshot(score)
    due = snapshot.step >= self._written_step + self._every_steps
    if due or score is not None or time.monotonic() >= self._written_time + self._every_seconds:
      self._write(snapshot)

  def _make_snapshot(self, score: dict[str, Any] | None) -> _Snapshot:
    """Copies the state of all parts. Episodes go to disk at once."""
    parts = self._parts
    replay = None
    if self._replay is not None:
      buffer, archive = self._replay
      with self._writing():
        replay = dict(span=archive.save(), rng=buffer.rng_state())
    return _Snapshot(
      parts.loop.state.environment_steps,
      jax.tree.map(np.array, parts.learner.save()),  # Copies: updates overwrite the learner's buffers.
      dict(
        task=parts.environment.task_name,
        next_episode=parts.environment.next_episode,
        loop=parts.loop.state.to_json(),
        replay=replay,
        diagnostics=parts.diagnostics.save(),
        evaluations=list(parts.evaluations),
        logs=parts.logs.save(),
      ),
      score,
    )

  def finish(self) -> pathlib.Path | None:
    """Writes the last snapshot unless it is on disk, and waits for it. Returns its folder."""
    try:
      if self._snapshot is not None and self._snapshot.step > self._written_step:
        self._write(self._snapshot)
      return self.wait()
    finally:
      self._saver.close()

  def wait(self) -> pathlib.Path | None:
    """Blocks until pending writes end. Returns the last checkpoint's folder, or raises the error of the last write."""
    return self._saver.wait()

  def _write(self, snapshot: _Snapshot) -> None:
    self._parts.logs.sync()  # A resumed run doesn't produce rows before its checkpoint again: they must be on disk.
    self._saver.save(snapshot.step, dict(learner=snapshot.learner), snapshot.state, snapshot.score)
    self._written_step, self._written_time = snapshot.step, time.monotonic()
    if self._replay is not None:
      _, archive = self._replay
      with self._writing():
        archive.prune(min(state['replay']['span'][0] for state in [*self._store.states(), snapshot.state]))


def check_task(checkpoint: store_lib.Checkpoint, environment: core.Environment) -> None:
  """Refuses a checkpoint of another task."""
  found, expected = checkpoint.state.get('task'), environment.task_name
  if found != expected:
    raise errors.MismatchError(
      f'{checkpoint.path} is of the task {found!r}, and the configuration asks for '
      f'{expected!r}. Give the gin files of the run that wrote it.'
    )
