"""Timed pieces of work in processes of their own, run in turns.

On a shared machine absolute times say little. Contenders that take turns meet the same noise, so the ratio of their
times in one run does say something.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import multiprocessing
import time
from typing import Any

import numpy as np
import numpy.typing as npt

# Called in the child with keyword arguments; returns a function that does one round of work for a seed, and
# returns how many steps it took.
Preparation = Callable[..., Callable[[int], int]]


def take_turns(contenders: Mapping[str, tuple[Preparation, dict[str, Any]]], rounds: int) -> dict[str, np.ndarray]:
  """Returns, for each contender, the seconds per step of each round, [rounds].

  Round i of all contenders has the same seed. A round before the first is not counted: it compiles and warms up.
  """
  with contextlib.ExitStack() as stack:
    pipes = {name: stack.enter_context(_process(*contender)) for name, contender in contenders.items()}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for seed in range(-1, rounds):
      for name, pipe in pipes.items():
        pipe.send(seed + 1)
        answer = pipe.recv()
        if isinstance(answer, str):
          raise RuntimeError(f'{name} failed: {answer}')
        if seed >= 0:
          times[name].append(answer)
  return {name: np.array(values) for name, values in times.items()}


def ratio(slow: npt.ArrayLike, fast: npt.ArrayLike) -> float:
  """How many times faster `fast` is: the median over rounds, so that one disturbed round doesn't matter."""
  return float(np.median(np.asarray(slow) / np.asarray(fast)))


@contextlib.contextmanager
def _process(preparation: Preparation, arguments: dict[str, Any]) -> Iterator[Any]:
  context = multiprocessing.get_context('spawn')
  ours, theirs = context.Pipe()
  process = context.Process(target=_serve, args=(theirs, preparation, arguments), daemon=True)
  process.start()
  theirs.close()
  try:
    yield ours
  finally:
    ours.close()
    process.join(timeout=10)
    process.kill()


def _serve(pipe: Any, preparation: Preparation, arguments: dict[str, Any]) -> None:
  try:
    work = preparation(**arguments)
    while True:
      seed = pipe.recv()
      started = time.perf_counter()
      steps = work(seed)
      pipe.send((time.perf_counter() - started) / steps)
  except EOFError:
    pass
  except Exception as error:
    pipe.send(f'{type(error).__name__}: {error}')
