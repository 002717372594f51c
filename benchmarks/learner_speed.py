"""Time and memory of one update of the learner, beside the least time in which this machine could do it.

Each size is measured in a process of its own, so that the peaks of memory don't mix, and compiled with an empty cache,
so that compile times are those of a first run. Products of large matrices take turns with the updates: on a shared
machine, the ratio of the two says more than either. Seconds of all cores together (CPU seconds) are there, too: they
hardly depend on what else runs.
"""

from collections.abc import Callable, Iterator, Sequence
import concurrent.futures
import contextlib
import multiprocessing
import resource
import tempfile
import time
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache
import jax.numpy as jnp
import numpy as np

from benchmarks import learner_pieces
from benchmarks import stand_ins

GEMM_SIZE = 2048
_GEMMS = 3  # Of each round.


def measure(size: stand_ins.Size, search_paths: Sequence[str], updates: int = 3, split: bool = True) -> dict[str, Any]:
  """Measures the learner of a size in a new process.

  Args:
    size: What to measure.
    search_paths: Folders where gin files are looked up.
    updates: Timed ones, after one that is not.
    split: Whether to time the pieces of the update, too, each compiled on its own.

  Returns:
    `trace_seconds`, `compile_seconds`: until the update can run, without any cache;
    `cached_compile_seconds`: until it can run with JAX's cache on disk, tracing included;
    `seconds`, `cpu_seconds`: medians of an update, batch and state in memory;
    `argument_bytes`, `output_bytes`, `temporary_bytes`, `donated_bytes`: as the compiler plans them. The last are
      counted in arguments and in outputs;
    `peak_rss_bytes`: of the process, after it compiled and ran the first update;
    `flop`: of an update, see `flops`;
    `gemm_flop_per_second`, `gemm_flop_per_cpu_second`: the best rates of large float32 products;
    `floor_ratio`, `cpu_floor_ratio`: the time that `flop` takes at these rates, divided by `seconds`, `cpu_seconds`;
    `pieces`: of each piece its seconds, `temporary_bytes`, `flop` and ratios, if asked for.
  """
  context = multiprocessing.get_context('spawn')
  with concurrent.futures.ProcessPoolExecutor(max_workers=1, mp_context=context) as executor:
    return executor.submit(measure_here, size, search_paths, updates, split).result()


def measure_here(size: stand_ins.Size, search_paths: Sequence[str], updates: int, split: bool) -> dict[str, Any]:
  """`measure` in this process: the peak of memory is that of all it has done."""
  subject = learner_pieces.make_subject(size, search_paths)
  compiled, result = _compile_twice(subject)
  memory = compiled.memory_analysis()
  result |= dict(
    argument_bytes=memory.argument_size_in_bytes,
    output_bytes=memory.output_size_in_bytes,
    temporary_bytes=memory.temp_size_in_bytes,
    donated_bytes=memory.alias_size_in_bytes,
  )

  state, _ = jax.block_until_ready(compiled(subject.state, subject.batch))
  result['peak_rss_bytes'] = peak_rss_bytes()
  gemm = make_gemm()
  times, gemm_times = [], []
  for _ in range(updates):
    gemm_times += [gemm() for _ in range(_GEMMS)]
    (state, _), seconds = timed(compiled, state, subject.batch)
    times.append(seconds)
  gemm_times += [gemm() for _ in range(_GEMMS)]
  rates = 2 * GEMM_SIZE**3 / np.min(gemm_times, axis=0)
  result |= dict(
    updates=updates,
    gemm_flop_per_second=float(rates[0]),
    gemm_flop_per_cpu_second=float(rates[1]),
    **_figures(times, subject.flop, rates),
  )
  if split:
    result['pieces'] = {name: measure_piece(piece, updates, rates) for name, piece in subject.pieces(state).items()}
  return result


def _compile_twice(subject: learner_pieces.Subject) -> tuple[Any, dict[str, Any]]:
  """Compiles the update as a first run does, then as a second with its cache on disk does.

  Returns:
    The compiled update; and seconds to trace it, to compile it, and to trace it and load it from the cache.
  """
  clocks = [time.perf_counter()]
  with _empty_compilation_cache():
    lowered = subject.update.lower(subject.state, subject.batch)
    clocks.append(time.perf_counter())
    compiled = lowered.compile()
    clocks.append(time.perf_counter())
    jax.clear_caches()
    subject.update.lower(subject.state, subject.batch).compile()
    clocks.append(time.perf_counter())
  trace, compile_, cached = np.diff(clocks).tolist()
  return compiled, dict(trace_seconds=trace, compile_seconds=compile_, cached_compile_seconds=cached)


@contextlib.contextmanager
def _empty_compilation_cache() -> Iterator[None]:
  """JAX caches compilations in a folder that is empty at first, and of this context only."""
  before = {
    name: getattr(jax.config, name)
    for name in (
      'jax_compilation_cache_dir',
      'jax_enable_compilation_cache',
      'jax_persistent_cache_min_compile_time_secs',
    )
  }
  with tempfile.TemporaryDirectory() as folder:
    for name, value in zip(before, (folder, True, 0.0)):
      jax.config.update(name, value)
    compilation_cache.reset_cache()  # It keeps the folder of its first use.
    try:
      yield
    finally:
      for name, value in before.items():
        jax.config.update(name, value)
      compilation_cache.reset_cache()


def measure_piece(piece: learner_pieces.Piece, rounds: int, rates: np.ndarray) -> dict[str, float]:
  """Compiles and times one piece: medians of `rounds` calls after a first. `rates` [2] are FLOP per (CPU) second."""
  function = jax.jit(piece.function, donate_argnums=(0,) if piece.carries else ())
  compiled: Any = function.lower(*piece.arguments).compile()
  arguments, times = piece.arguments, []
  for _ in range(rounds + 1):
    output, seconds = timed(compiled, *arguments)
    times.append(seconds)
    if piece.carries:
      arguments = (output, *arguments[1:])
  return dict(_figures(times[1:], piece.flop, rates), temporary_bytes=compiled.memory_analysis().temp_size_in_bytes)


def make_gemm() -> Callable[[], np.ndarray]:
  """A function that multiplies two large float32 matrices, and returns its seconds and CPU seconds, [2]."""
  matrix = jax.random.normal(jax.random.key(0), (GEMM_SIZE, GEMM_SIZE))
  multiply = jax.jit(jnp.matmul)
  multiply(matrix, matrix).block_until_ready()
  return lambda: timed(multiply, matrix, matrix)[1]


def peak_rss_bytes() -> int:
  """The most memory that this process has had at once, in bytes."""
  return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # Linux counts in KiB.


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, np.ndarray]:
  """What a function returns, and the seconds and CPU seconds that it took, [2]."""
  clocks = lambda: np.array([time.perf_counter(), time.process_time()])
  begin = clocks()
  output = jax.block_until_ready(function(*arguments))
  return output, clocks() - begin


def _figures(times: Sequence[np.ndarray], flop: int, rates: np.ndarray) -> dict[str, float]:
  seconds = np.median(times, axis=0)
  ratios = flop / rates / seconds
  return dict(
    flop=flop,
    seconds=float(seconds[0]),
    cpu_seconds=float(seconds[1]),
    floor_ratio=float(ratios[0]),
    cpu_floor_ratio=float(ratios[1]),
  )
