"""What runs need: memory of a GPU, bytes of replay and posterior, and days of a whole benchmark.

Memory is what the compiler plans for an update: nothing is run. Days follow from counted FLOP and from assumptions,
which the page states.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import heapq
import pathlib
from typing import Any, NamedTuple

import jax
import numpy as np

import gin
from lambda_kit.analysis.metrics import protocols
from lambda_kit.benchmarks import learner_pieces
from lambda_kit.benchmarks import stand_ins
from lambda_kit.config import configuration
from lambda_kit.environments import spec as spec_lib
from lambda_kit.posteriors import swag
from lambda_kit.replay import buffer
from lambda_kit.replay import episodes

GPU_GIGABYTES = (8, 16, 24, 80)
USABLE = 0.9  # Of a GPU's memory, as XLA_PYTHON_CLIENT_MEM_FRACTION=0.9 has it.
GPU_COUNTS = (1, 8, 64)
GPU_TFLOPS = (5, 20)  # Assumed to be sustained, in float32.
# Assumed: an agent step with a picture and action repeat 2; an environment step with vectors.
IMAGE_STEP_SECONDS, VECTOR_STEP_SECONDS = 8e-3, 5e-4
MODEL_BASED = ('lambda', 'greedy', 'unsafe', 'ensemble')  # Variants that learn from images by LAMBDA's updates.
MODEL_FREE = ('ppo', 'ppo_lagrangian', 'trpo_lagrangian', 'cpo')  # From vectors; their updates are left out.
SEEDS = 5
_EVALUATE_EVERY, _EPISODE = 25_000, 1_000  # The protocol's.


class Point(NamedTuple):
  """An update of another size than the paper's."""

  batch_size: int = 32  # B
  num_samples: int = 5  # N
  num_starts: int | None = None  # S; None is all B L.
  gradient: str = 'SelectedGradient'

  @property
  def bindings(self) -> tuple[str, ...]:
    return (
      f'LambdaAgent.batch_size = {self.batch_size}',
      f'LambdaAgent.num_samples = {self.num_samples}',
      f'LambdaAgent.num_start_states = {self.num_starts}',
      f'LambdaAgent.policy_gradient = @{self.gradient}()',
    )


POINTS = (
  Point(),
  Point(num_samples=20),
  Point(num_starts=400),
  Point(batch_size=64),
  Point(batch_size=128),
  Point(gradient='WholeGradient'),
)


def measure(
  search_paths: Sequence[str], size: stand_ins.Size, points: Sequence[Point] = POINTS
) -> Iterator[dict[str, Any]]:
  """Compiles an update for each point.

  Args:
    search_paths: Folders where gin files are looked up.
    size: The rest of the learner.
    points: The first one is the experiment as it is: the benchmark is reckoned from it.

  Yields:
    After each point, what is known so far: `points`, rows with the point's fields, `state_bytes` (of the learner),
    `temporary_bytes` (activations), `peak_bytes` and `gflop`; `posterior_bytes` of SWAG; `replay`; and `benchmark`.
  """
  rows, posterior = [], {}
  for point in points:
    bound = dataclasses.replace(size, bindings=(*size.bindings, *point.bindings))
    subject = learner_pieces.make_subject(bound, search_paths)
    memory = subject.update.lower(subject.state, subject.batch).compile().memory_analysis()
    rows.append(
      dict(
        point._asdict(),
        num_starts=point.num_starts or subject.batch.reward.size,
        gflop=subject.flop / 1e9,
        state_bytes=_bytes(subject.state),
        temporary_bytes=memory.temp_size_in_bytes,
        # What is donated is counted in arguments and in outputs.
        peak_bytes=(
          memory.argument_size_in_bytes
          + memory.output_size_in_bytes
          + memory.temp_size_in_bytes
          - memory.alias_size_in_bytes
        ),
      )
    )
    if isinstance(subject.state.posterior, swag.SwagState):
      moments = subject.state.posterior.moments
      posterior = dict(columns=moments.columns.shape[0], parameters=moments.columns.shape[1], bytes=_bytes(moments))
    yield dict(
      points=rows,
      posterior=posterior,
      replay=replay_bytes(),
      benchmark=plan_benchmark(rows[0]['gflop'] * 1e9, _updates(size, search_paths)),
    )


def replay_bytes() -> list[dict[str, Any]]:
  """Of whole runs of the paper's tasks, by what is observed."""
  rows = []
  for steps, num_actions in sorted(
    {(steps, 12 if task.startswith('Doggo') else 2) for task, steps in protocols.SG6_STEPS.items()}
  ):
    row = dict(environment_steps=steps, num_actions=num_actions)
    for name, shape in {'image': (64, 64, 3), 'vector': (60,)}.items():
      environment = stand_ins.SpecEnvironment(stand_ins.Size((), {name: shape}, num_actions=num_actions))
      row[name] = buffer.estimate_bytes(episodes.Header.of(spec_lib.make_spec(environment, 25.0)), steps, _EPISODE)
    rows.append(row)
  return rows


def plan_benchmark(flop: float, updates: dict[int, int]) -> list[dict[str, Any]]:
  """Spreads all runs of SG6 over GPUs, one at a time on each, longest first.

  Args:
    flop: Of an update.
    updates: Of a run, by its environment steps.

  Returns:
    Rows with `gpus`, `tflops`, `days`, and `busy`, the share of that time in which GPUs have a run.
  """
  # Evaluations are episodes, too.
  episodes_share = 1 + protocols.SG6_EPISODES * _EPISODE / _EVALUATE_EVERY
  rows = []
  for tflops in GPU_TFLOPS:
    hours = []
    for steps in protocols.SG6_STEPS.values():
      learning = updates[steps] * flop / (tflops * 1e12)
      hours += [(steps / 2 * episodes_share * IMAGE_STEP_SECONDS + learning) / 3600] * SEEDS * len(MODEL_BASED)
      hours += [steps * episodes_share * VECTOR_STEP_SECONDS / 3600] * SEEDS * len(MODEL_FREE)
    for count in GPU_COUNTS:
      span = makespan(hours, count)
      rows.append(
        dict(
          gpus=count,
          tflops=tflops,
          runs=len(hours),
          gpu_hours=sum(hours),
          days=span / 24,
          busy=sum(hours) / (span * count),
        )
      )
  return rows


def makespan(hours: Sequence[float], count: int) -> float:
  """Until all runs are done: each goes, the longest first, to whichever of `count` machines is free first."""
  free = [0.0] * count
  for duration in sorted(hours, reverse=True):
    heapq.heappush(free, heapq.heappop(free) + duration)
  return max(free)


def to_markdown(result: dict[str, Any]) -> str:
  """The page."""
  gigabytes = lambda count: f'{count / 1e9:.2f}'
  fits = lambda row, size: (
    str(int(USABLE * size * 1e9 // row['peak_bytes'])) if row['peak_bytes'] <= (USABLE * size * 1e9) else '-'
  )
  posterior, first = result['posterior'], result['points'][0]
  sections = [
    '# Capacity planning',
    '',
    *_INTRODUCTION,
    '',
    '## What a GPU fits',
    '',
    *_table(
      [
        'gradient',
        'B',
        'N',
        'start states',
        'GFLOP',
        'state GB',
        'activations GB',
        'peak GB',
        *(f'{size} GB GPU' for size in GPU_GIGABYTES),
      ],
      [
        [
          row['gradient'],
          row['batch_size'],
          row['num_samples'],
          row['num_starts'],
          f'{row["gflop"]:.0f}',
          gigabytes(row['state_bytes']),
          gigabytes(row['temporary_bytes']),
          gigabytes(row['peak_bytes']),
          *(fits(row, size) for size in GPU_GIGABYTES),
        ]
        for row in result['points']
      ],
    ),
    '',
    *_FITS,
  ]
  if posterior:
    sections += [
      '',
      f'SWAG has {gigabytes(posterior["bytes"])} GB of that state: the mean of all parameters, and '
      f'variance and K = {posterior["columns"]} columns of the {posterior["parameters"]:,} that are '
      'sampled.',
    ]
  sections += [
    '',
    '## Replay',
    '',
    *_table(
      ['environment steps', 'actions', '64x64 images, GB', 'vectors of 60, GB'],
      [
        [f'{row["environment_steps"]:,}', row['num_actions'], gigabytes(row['image']), gigabytes(row['vector'])]
        for row in result['replay']
      ],
    ),
    '',
    *_REPLAY,
  ]
  benchmark = result['benchmark']
  sections += [
    '',
    '## The whole of SG6',
    '',
    *_benchmark_text(first, benchmark),
    '',
    *_table(
      [
        'GPUs',
        *(f'days at {tflops} TFLOP/s' for tflops in GPU_TFLOPS),
        *(f'busy at {tflops} TFLOP/s' for tflops in GPU_TFLOPS),
      ],
      [
        [
          count,
          *(f'{row["days"]:.1f}' for row in benchmark if row['gpus'] == count),
          *(f'{row["busy"]:.0%}' for row in benchmark if row['gpus'] == count),
        ]
        for count in GPU_COUNTS
      ],
    ),
  ]
  return '\n'.join([*sections, ''])


def write(result: dict[str, Any], folder: pathlib.Path) -> None:
  """Writes capacity.md."""
  folder.mkdir(parents=True, exist_ok=True)
  (folder / 'capacity.md').write_text(to_markdown(result), encoding='utf-8')


_INTRODUCTION = (
  'Written by `python launchers/benchmark.py --parts=capacity --capacity_folder=docs`, which compiles updates and',
  'runs none. How the time of an update grows with N, B, L, H and width is in [scaling.md](scaling.md); how to use',
  'several devices and hosts is told in [scale.md](scale.md).',
)
_FITS = (
  f'How many runs of this size fit, if {USABLE:.0%} of the memory can be used (XLA_PYTHON_CLIENT_MEM_FRACTION); none:',
  '-. The learner alone, from 64x64 images, as XLA compiles it for a CPU; other sizes are those of the paper (L = 50,',
  'H = 15). The plan for a GPU differs, and convolutions there want working memory on top. On n devices',
  '(`LambdaAgent.num_devices`) each has the state and a part of the activations.',
)
_REPLAY = (
  'In the memory of the host, and as much on disk (`replay/`); `EpisodeBuffer.max_bytes` is its ceiling. Action',
  'repeat 2.',
)


def _benchmark_text(first: dict[str, Any], benchmark: Sequence[dict[str, Any]]) -> list[str]:
  hours = {row['tflops']: row['gpu_hours'] for row in benchmark}
  return [
    f'{benchmark[0]["runs"]} runs: {len(protocols.SG6_TASKS)} tasks, {SEEDS} seeds, {", ".join(MODEL_BASED)} from '
    f'images, {", ".join(MODEL_FREE)}',
    'from vectors; one run at a time on each GPU, the longest first. Assumed: '
    "GPUs that sustain the given rate on an update's",
    f'{first["gflop"]:.0f} GFLOP (counted for LAMBDA, and taken '
    f'for its variants), {IMAGE_STEP_SECONDS * 1e3:g} ms for an agent step with a picture and',
    f'{VECTOR_STEP_SECONDS * 1e3:g} ms for one without, acting included, evaluations as in the protocol; updates of '
    'the model-free baselines',
    'take no time. Measure your own: `--parts=environment,learner`. In all '
    + ', '.join(f'{value:,.0f} GPU hours at {tflops} TFLOP/s' for tflops, value in hours.items())
    + '.',
  ]


def _table(headings: Sequence[Any], rows: Sequence[Sequence[Any]]) -> list[str]:
  return [f'| {" | ".join(map(str, line))} |' for line in (headings, ['---'] * len(headings), *rows)]


def _updates(size: stand_ins.Size, search_paths: Sequence[str]) -> dict[int, int]:
  """Updates of whole runs, by their environment steps."""
  configuration.parse(size.gin_files, size.bindings, search_paths)
  schedule = gin.get_configurable('PeriodicUpdates')()
  return {steps: schedule(steps) for steps in set(protocols.SG6_STEPS.values())}


def _bytes(tree: Any) -> int:
  return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
