"""Several seeds of one experiment in one process: each a run of its own, with their updates computed at once.

Each seed has a thread and a workdir, and runs as it would alone: environment, replay, logs, checkpoints, evaluations.
Only updates wait for each other: when all seeds have come to one, a single program takes it for all of them, `jax.vmap`
of the update. On small tasks, where most of an update's time goes to the program's many small steps, k updates at once
take less time than k updates.
"""

import contextlib
import io
import pathlib
import sys
import threading
from typing import Any, Callable, Sequence

import jax
import jax.numpy as jnp

from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training import train as train_lib


class SeedsError(RuntimeError):
  """Some seeds failed. The message says which, and why."""


class Stopped(Exception):  # pylint: disable=g-bad-exception-name
  """The process is about to end, and a seed is to save what it has."""


class UpdateGroup:
  """Learners whose updates are taken at once, whenever all that are still at work have come to one.

  Where they come to different ones, or some have left, each takes its own.

  Args:
    count: How many learners there will be.
  """

  def __init__(self, count: int):
    self._count = count
    self._active = set(range(count))
    self._condition = threading.Condition()
    self._waiting: dict[int, tuple[str, Callable[..., Any], tuple[Any, ...]]] = {}
    self._results: dict[int, Any] = {}
    self._together: dict[str, Callable[..., Any]] = {}
    self._stopped = False
    self.shared_updates = 0  # Programs for all learners that were run.

  def share(self, member: int, name: str, update: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a learner's update wait for those of the others.

    Args:
      member: Number of the learner.
      name: Of the update. All learners have the same ones.
      update: Jitted; its first argument is donated.
    """
    with self._condition:
      if name not in self._together:
        self._together[name] = jax.jit(_at_once(update.__wrapped__), donate_argnums=0)

    def wait_and_update(*arguments):
      with self._condition:
        self._waiting[member] = (name, update, arguments)
        self._take_if_all_wait()
        self._condition.wait_for(lambda: member in self._results or self._stopped)
        if member not in self._results:
          raise Stopped
        result = self._results.pop(member)
      if isinstance(result, Exception):
        raise result
      return result

    return wait_and_update

  def leave(self, member: int) -> None:
    """Says that a learner takes no further updates."""
    with self._condition:
      self._active.discard(member)
      self._take_if_all_wait()

  def stop(self) -> None:
    """Makes all learners raise `Stopped` at their next update."""
    with self._condition:
      self._stopped = True
      self._condition.notify_all()

  def _take_if_all_wait(self) -> None:
    if self._stopped or not self._active or self._waiting.keys() != self._active:
      return
    calls, self._waiting = dict(sorted(self._waiting.items())), {}
    names = {name for name, _, _ in calls.values()}
    try:
      if len(calls) == self._count and len(names) == 1:
        results = self._together[names.pop()](*zip(*(arguments for _, _, arguments in calls.values())))
        self.shared_updates += 1
      else:
        results = [update(*arguments) for _, update, arguments in calls.values()]
    except Exception as error:  # pylint: disable=broad-exception-caught
      results = [error] * len(calls)
    self._results.update(zip(calls, results))
    self._condition.notify_all()


def train(seeds: Sequence[int], workdir: pathlib.Path, configure: Callable[[int], None],
          allow_config_change: bool = False) -> None:
  """Trains all seeds to the end, each in the folder seed<n> of the workdir.

  Args:
    seeds: Different ones.
    workdir: If it holds some of these runs, they go on, each from where it was.
    configure: Makes gin's configuration that of a seed.
    allow_config_change: Whether runs may go on with another configuration.

  Raises:
    SeedsError: Some of them failed; the others were trained to the end.
  """
  group, errors = UpdateGroup(len(seeds)), {}
  configuring = threading.Lock()  # Gin has one configuration for all threads.

  def train_one(member: int, seed: int) -> None:

    def job(experiment: experiment_lib.Experiment) -> None:
      if not hasattr(experiment.learner, 'share_updates'):
        raise experiment_lib.SetupError(f'{type(experiment.learner).__name__} can not share its updates: give one --seed.')
      experiment.learner.share_updates(lambda name, update: group.share(member, name, update))
      train_lib.Training(workdir / f'seed{seed}', allow_config_change, _Lines(f'seed {seed}: '), turn.close)(experiment)

    with contextlib.ExitStack() as turn:
      turn.enter_context(configuring)
      try:
        configure(seed)
        experiment_lib.run_experiment(job=job)
      except Exception as error:  # pylint: disable=broad-exception-caught
        errors[seed] = error
      finally:
        group.leave(member)

  threads = [threading.Thread(target=train_one, args=arguments, name=f'seed{arguments[1]}')
             for arguments in enumerate(seeds)]
  try:
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
  except KeyboardInterrupt:
    group.stop()
    for thread in threads:
      thread.join()
    raise
  if errors:
    raise SeedsError('\n'.join(f'seed {seed}: {type(error).__name__}: {error}' for seed, error in errors.items()))


class _Lines(io.TextIOBase):
  """Writes whole lines to the standard output, with a word before each. No terminal: only one seed could have it."""

  def __init__(self, prefix: str):
    self._prefix = prefix
    self._rest = ''

  def write(self, text: str) -> int:
    *lines, self._rest = (self._rest + text).split('\n')
    for line in lines:
      sys.stdout.write(f'{self._prefix}{line}\n')
    return len(text)

  def flush(self) -> None:
    sys.stdout.flush()


def _at_once(update: Callable[..., Any]) -> Callable[..., Any]:
  """`update` for k learners: maps k of each argument to k results."""

  def updates(*arguments):
    stacked = [jax.tree.map(lambda *x: jnp.stack(x), *each) for each in arguments]
    results = jax.vmap(update)(*stacked)
    return [jax.tree.map(lambda x: x[i], results) for i in range(len(arguments[0]))]

  return updates
