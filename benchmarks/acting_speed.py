"""Time from an observation to an action: in one environment, and in k environments that are acted in at once.

What is timed is what the environment loop waits for: the call of the actor in training, from an observation in NumPy
arrays to an action in one, with the copy to the device, the filtering of the belief, the policy, and the copy back. The
actors take turns, so that they meet the same noise.
"""

from collections.abc import Callable, Sequence
import time
from typing import Any

import dm_env
import jax
import numpy as np

from benchmarks import stand_ins
from lambda_kit import core
from lambda_kit.agents import actor as actor_lib

TARGET_MS = 3.0  # Of the median in one environment, at the paper's size.
_OBSERVATIONS = 16  # Different ones, which the calls of a round go through.


def measure(
  size: stand_ins.Size,
  search_paths: Sequence[str],
  counts: Sequence[int] = (1, 2, 4, 8, 16),
  rounds: int = 5,
  calls: int = 100,
) -> dict[str, Any]:
  """Times the actors of a size.

  Args:
    size: Networks and observations.
    search_paths: Folders where gin files are looked up.
    counts: Numbers k of environments for batched acting.
    rounds: In each, all actors take their turn.
    calls: Of each actor in each round.

  Returns:
    `single`, for one environment, and `batched`, by k: of a call the `median_ms`, the `p95_ms` (95th percentile) and
    the mean `cpu_ms`, of all cores together; for k environments `ms_per_action` and `cpu_ms_per_action`, too.
  """
  builder, environment = stand_ins.make_builder(size, search_paths)
  source = _learned(builder)
  rng = np.random.default_rng(0)
  actors: dict[str | int, Callable[[int], np.ndarray]] = {'single': _single(builder, environment, source, rng)}
  actors |= {count: _batched(builder, environment, source, count, rng) for count in counts}
  for act in actors.values():
    act(0)  # Compiles.
  times: dict[str | int, list[tuple[float, float]]] = {name: [] for name in actors}
  for _ in range(rounds):
    for name, act in actors.items():
      times[name] += [_timed(act, i) for i in range(calls)]
  figures = {name: _figures(np.array(values)) for name, values in times.items()}
  batched = {
    str(count): figures[count]
    | dict(ms_per_action=figures[count]['median_ms'] / count, cpu_ms_per_action=figures[count]['cpu_ms'] / count)
    for count in counts
  }
  return dict(rounds=rounds, calls=calls, single=figures['single'], batched=batched)


def table(results: dict[str, dict[str, Any]]) -> tuple[str, list[str], list[list[str]]]:
  """Title, headings and rows for the figures of `measure`, given by the size's name."""
  rows = []
  for name, result in results.items():
    single = result['single']
    rows.append(
      [
        f'{name}, one environment',
        f'{single["median_ms"]:.2f}',
        f'{single["p95_ms"]:.2f}',
        f'{single["cpu_ms"]:.2f}',
        f'{single["median_ms"]:.2f}',
        f'{single["cpu_ms"]:.2f}',
      ]
    )
    for count, row in result['batched'].items():
      columns = ('median_ms', 'p95_ms', 'cpu_ms', 'ms_per_action', 'cpu_ms_per_action')
      rows.append([f'{name}, k = {count}', *(f'{row[column]:.2f}' for column in columns)])
  return (
    f'From observation to action (target: a median of {TARGET_MS:g} ms in one environment)',
    ['actor', 'median ms', 'p95 ms', 'CPU ms', 'ms per action', 'CPU ms per action'],
    rows,
  )


def _learned(builder: core.AgentBuilder) -> core.Learner:
  """A learner that says it has taken an update: before the first one, actors act at random."""
  replay = builder.make_replay(environment_steps=1, seed=0)
  learner = builder.make_learner(builder.make_dataset(replay), seed=0)
  state = learner.save()
  learner.restore(state._replace(updates=state.updates + 1))
  return learner


def _single(
  builder: core.AgentBuilder, environment: core.Environment, source: core.VariableSource, rng: np.random.Generator
) -> Callable[[int], np.ndarray]:
  actor = actor_lib.Actor(builder.make_actor_core(evaluation=False), source, seed=0)
  observations = [stand_ins.random_observations(environment, (), rng) for _ in range(_OBSERVATIONS)]
  actor.observe_first(dm_env.restart(observations[0]))
  return lambda i: actor.select_action(observations[i % _OBSERVATIONS])


def _batched(
  builder: core.AgentBuilder,
  environment: core.Environment,
  source: core.VariableSource,
  count: int,
  rng: np.random.Generator,
) -> Callable[[int], np.ndarray]:
  actor = actor_lib.Actor(builder.make_actor_core(evaluation=False), source, seed=0)
  observations = [stand_ins.random_observations(environment, (count,), rng) for _ in range(_OBSERVATIONS)]
  goes_on = np.zeros((count,), bool)
  actor.select_actions(observations[0], ~goes_on)
  return lambda i: actor.select_actions(observations[i % _OBSERVATIONS], goes_on)


def _timed(act: Callable[[int], np.ndarray], i: int) -> tuple[float, float]:
  """Milliseconds and CPU milliseconds of a call."""
  begin, cpu_begin = time.perf_counter(), time.process_time()
  jax.block_until_ready(act(i))
  return 1e3 * (time.perf_counter() - begin), 1e3 * (time.process_time() - cpu_begin)


def _figures(times: np.ndarray) -> dict[str, float]:
  """Of times [n, 2] as `_timed` returns them."""
  return dict(
    median_ms=float(np.median(times[:, 0])),
    p95_ms=float(np.percentile(times[:, 0], 95)),
    cpu_ms=float(np.mean(times[:, 1])),
  )
