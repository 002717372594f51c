"""Time and memory of one update of the learner, beside the least time in which this machine could do it.

Each size is measured in a process of its own, so that the peaks of memory don't mix, and with JAX's compilation cache
off, so that compile times are those of a first run. Products of large matrices take turns with the updates: on a shared
machine, the ratio of the two says more than either.
"""

import concurrent.futures
import multiprocessing
import resource
import time
from typing import Any, Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from lambda_kit.benchmarks import learner_pieces

_GEMM_SIZE = 2048
_GEMMS = 3  # Of each round.


def measure(size: learner_pieces.Size, search_paths: Sequence[str], updates: int = 3, split: bool = True
            ) -> dict[str, Any]:
  """Measures the learner of a size in a new process.

  Args:
    size: What to measure.
    search_paths: Folders where gin files are looked up.
    updates: Timed ones, after one that is not.
    split: Whether to time the pieces of the update, too, each compiled on its own.

  Returns:
    `trace_seconds`, `compile_seconds`: until the update can run, without any cache;
    `seconds`: median of an update, batch and state in memory;
    `argument_bytes`, `output_bytes`, `temporary_bytes`, `donated_bytes`: as the compiler plans them. The last are
      counted in arguments and in outputs;
    `peak_rss_bytes`: of the process, after it compiled and ran the first update;
    `flop`: of an update, see `flops`;
    `gemm_flop_per_second`, `median_gemm_flop_per_second`: of large float32 products, the best and the median;
    `floor_ratio`: the time that `flop` takes at the best rate, divided by `seconds`;
    `pieces`: of each piece, `seconds`, `temporary_bytes`, `flop` and `floor_ratio`, if asked for.
  """
  context = multiprocessing.get_context('spawn')
  with concurrent.futures.ProcessPoolExecutor(max_workers=1, mp_context=context) as executor:
    return executor.submit(_measure_cold, size, search_paths, updates, split).result()


def measure_here(size: learner_pieces.Size, search_paths: Sequence[str], updates: int, split: bool) -> dict[str, Any]:
  """`measure` in this process: compilations may be cached, and the peak of memory is that of all it has done."""
  subject = learner_pieces.make_subject(size, search_paths)
  begin = time.perf_counter()
  lowered = subject.update.lower(subject.state, subject.batch)
  traced = time.perf_counter()
  compiled = lowered.compile()
  result = dict(trace_seconds=traced - begin, compile_seconds=time.perf_counter() - traced)
  memory = compiled.memory_analysis()
  result |= dict(argument_bytes=memory.argument_size_in_bytes, output_bytes=memory.output_size_in_bytes,
                 temporary_bytes=memory.temp_size_in_bytes, donated_bytes=memory.alias_size_in_bytes)

  state, _ = jax.block_until_ready(compiled(subject.state, subject.batch))
  result['peak_rss_bytes'] = peak_rss_bytes()
  gemm = make_gemm()
  times, rates = [], []
  for _ in range(updates):
    rates += [gemm() for _ in range(_GEMMS)]
    begin = time.perf_counter()
    state, _ = jax.block_until_ready(compiled(state, subject.batch))
    times.append(time.perf_counter() - begin)
  rates += [gemm() for _ in range(_GEMMS)]
  seconds, best = float(np.median(times)), max(rates)
  floor_ratio = lambda flop, seconds: flop / best / seconds
  result |= dict(updates=updates, seconds=seconds, flop=subject.flop, gemm_flop_per_second=best,
                 median_gemm_flop_per_second=float(np.median(rates)), floor_ratio=floor_ratio(subject.flop, seconds))
  if split:
    result['pieces'] = {}
    for name, piece in subject.pieces(state).items():
      figures = measure_piece(piece, updates)
      result['pieces'][name] = dict(figures, flop=piece.flop, floor_ratio=floor_ratio(piece.flop, figures['seconds']))
  return result


def measure_piece(piece: learner_pieces.Piece, rounds: int) -> dict[str, float]:
  """Compiles and times one piece: the median `seconds` of `rounds` calls after a first, and `temporary_bytes`."""
  function = jax.jit(piece.function, donate_argnums=(0,) if piece.carries else ())
  compiled = function.lower(*piece.arguments).compile()
  arguments, times = piece.arguments, []
  for _ in range(rounds + 1):
    begin = time.perf_counter()
    output = jax.block_until_ready(compiled(*arguments))
    times.append(time.perf_counter() - begin)
    if piece.carries:
      arguments = (output, *arguments[1:])
  return dict(seconds=float(np.median(times[1:])), temporary_bytes=compiled.memory_analysis().temp_size_in_bytes)


def make_gemm(size: int = _GEMM_SIZE) -> Callable[[], float]:
  """A function that multiplies two float32 matrices of `size` rows and columns, and returns FLOP per second."""
  matrix = jax.random.normal(jax.random.key(0), (size, size))
  multiply = jax.jit(jnp.matmul)
  multiply(matrix, matrix).block_until_ready()

  def gemm() -> float:
    begin = time.perf_counter()
    multiply(matrix, matrix).block_until_ready()
    return 2 * size**3 / (time.perf_counter() - begin)

  return gemm


def peak_rss_bytes() -> int:
  """The most memory that this process has had at once, in bytes."""
  return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # Linux counts in KiB.


def _measure_cold(*arguments: Any) -> dict[str, Any]:
  jax.config.update('jax_enable_compilation_cache', False)
  return measure_here(*arguments)
