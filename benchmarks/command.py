"""Measures speed and memory, as ratios inside one run where a machine's speed would show.

  lambda-kit benchmark                                   # PointGoal1's environment
  lambda-kit benchmark --task=SafetyCarGoal1-v0 --json=speed.json
  lambda-kit benchmark --parts=environment,parallel      # worker processes, too
  lambda-kit benchmark --parts=posterior,learner         # SWAG, and an update of the learner: no simulator
  lambda-kit benchmark --parts=learner --sizes=small --updates=20 --nosplit
  lambda-kit benchmark --parts=ensemble --sizes=small,small_images    # An ensemble beside a single model
  lambda-kit benchmark --parts=acting,replay             # Observation to action; batches beside updates
  lambda-kit benchmark --parts=shares                    # Where the time of a run on PointGoal1 goes
  lambda-kit benchmark --parts=baselines                 # PPO, TRPO, CPO beside bare steps
  lambda-kit benchmark --parts=scaling --scaling_folder=docs     # Growth with N, B, L, H and width
  lambda-kit benchmark --parts=report                    # A report about a thousand runs
  lambda-kit benchmark --parts=start                     # What a process costs before it does anything

Where `learner` comes before `replay` and `shares` with the size paper_images, these compare with its update.
An update at the paper's size takes half a minute on two busy cores, and compiling it as long.
"""

from collections.abc import Iterator
import functools
import json
import pathlib
from typing import Any

from absl import app
from absl import flags
from absl import logging
from rich import console as rich_console
from rich import table as rich_table

from benchmarks import acting_speed
from benchmarks import baseline_speed
from benchmarks import ensemble_speed
from benchmarks import environment_speed
from benchmarks import learner_speed
from benchmarks import parallel_speed
from benchmarks import posterior_speed
from benchmarks import replay_speed
from benchmarks import report_speed
from benchmarks import run_shares
from benchmarks import scaling
from benchmarks import stand_ins
from benchmarks import start_cost
from lambda_kit import resources
from lambda_kit.environments import factory
from lambda_kit.environments.safety_gym import environment

_ROOT = resources.root()

_PARTS = flags.DEFINE_list(
  'parts',
  ['environment'],
  'What to measure, in this order, of environment, parallel, posterior, ensemble, learner, '
  'acting, replay, shares, baselines, scaling, report and start.',
)
_TASK = flags.DEFINE_multi_string('task', ['SafetyPointGoal1-v0'], 'A Safety-Gymnasium task; may be repeated.')
_ROUNDS = flags.DEFINE_integer('rounds', 3, 'Episodes that each contender runs, in turns.', lower_bound=1)
_AGENT_STEPS = flags.DEFINE_integer('agent_steps', 500, 'Agent steps of an episode.', lower_bound=1)
_SIZES = flags.DEFINE_list('sizes', list(stand_ins.SIZES), f'Sizes of the learner, of {", ".join(stand_ins.SIZES)}.')
_UPDATES = flags.DEFINE_integer(
  'updates', 3, 'Updates of the learner that are timed, after one that is not.', lower_bound=1
)
_SPLIT = flags.DEFINE_bool('split', True, 'Also time the pieces of an update, each compiled on its own.')
_PAPER_MEMORY = flags.DEFINE_bool('paper_memory', True, "Also compile updates at the paper's size for `scaling`.")
_SCALING_FOLDER = flags.DEFINE_string('scaling_folder', None, 'Folder for the table and the figure of `scaling`.')
_JSON = flags.DEFINE_string('json', None, 'File to write the figures to.')


def _print_table(title: str, headings: list[str], rows: list[list[str]]) -> None:
  table = rich_table.Table(title=title, title_justify='left')
  for i, heading in enumerate(headings):
    table.add_column(heading, justify='right' if i else 'left', no_wrap=not i)
  for row in rows:
    table.add_row(*row)
  rich_console.Console(width=120).print(table)


def _measure_environments() -> Iterator[list[dict]]:
  results = []
  for task in _TASK.value:
    results.append(environment_speed.measure(task, _ROUNDS.value, _AGENT_STEPS.value))
    _print_environment(results[-1])
    yield results


def _print_environment(result: dict) -> None:
  labels = {
    'images': 'agent step, 64x64 image, action repeat 2',
    'vectors': 'environment step, vector',
    'resets': 'reset, vector',
  }
  rows = []
  for name, label in labels.items():
    row = result[name]
    floor = [f'{row["floor_ms"]:.2f}', f'{row["times_floor"]:.2f}'] if 'floor_ms' in row else ['', '']
    rows.append([label, f'{row["theirs_ms"]:.2f}', f'{row["ours_ms"]:.2f}', f'{row["times_faster"]:.1f}', *floor])
  _print_table(
    f'{result["task"]}: time of a step in ms, resets included (median of {result["rounds"]} rounds)',
    ['what', 'safety-gymnasium', 'lambda_kit', 'times faster', 'floor', 'times the floor'],
    rows,
  )


def _measure_parallel() -> Iterator[list[dict]]:
  results = []
  for task in _TASK.value:
    rates = {}
    for name in ('image', 'vector'):
      simulator = functools.partial(environment.SafetyGymnasium, task=task, observations=(name,))
      rates[name] = parallel_speed.measure_scaling(
        functools.partial(factory.make_environment, simulator=simulator, action_repeat=2)
      )
    results.append(dict(task=task, steps_per_second=rates))
    _print_table(
      f'{task}: agent steps per second, action repeat 2, resets included',
      ['observation', *rates['image']],
      [[name, *(f'{rate:.0f}' for rate in row.values())] for name, row in rates.items()],
    )
    yield results


def _measure_posterior() -> Iterator[dict]:
  result = posterior_speed.measure()
  time, memory = (lambda name: f'{result[name]:.2f}'), (lambda name: f'{result[name] / 1e6:.1f}')
  _print_table(
    f'SWAG: {result["num_parameters"]:,} parameters, K = {result["num_models"]}, N = {result["num_samples"]} '
    f'(median of {result["rounds"]} rounds)',
    ['what', 'ms', 'ms, otherwise', 'temporary MB', 'result MB'],
    [
      [
        'N samples (otherwise: jax.random.normal)',
        time('sample_ms'),
        time('plain_sample_ms'),
        memory('sample_temporary_bytes'),
        memory('samples_bytes'),
      ],
      [
        'update between snapshots (otherwise: Adam alone)',
        time('update_ms'),
        time('point_update_ms'),
        memory('update_temporary_bytes'),
        memory('state_bytes'),
      ],
      ['update with a snapshot', time('snapshot_ms'), '', '', ''],
    ],
  )
  yield result


def _measure_ensemble() -> Iterator[dict[str, dict]]:
  results = {}
  for name in _SIZES.value:
    results[name] = ensemble_speed.measure(stand_ins.SIZES[name], [str(_ROOT)], _ROUNDS.value)
    yield results
  _print_table(
    f'An ensemble: times the time of a single model (median of {_ROUNDS.value} rounds)',
    ['size', 'whole update', 'model update'],
    [[name, f'{row["update_times_point"]:.2f}', f'{row["model_times_point"]:.2f}'] for name, row in results.items()],
  )


def _measure_learner() -> Iterator[dict[str, dict]]:
  results = {}
  for name in _SIZES.value:
    size = stand_ins.SIZES[name]
    results[name] = learner_speed.measure(size, [str(_ROOT)], _UPDATES.value, _SPLIT.value)
    if _SPLIT.value:
      _print_pieces(name, results[name])
    yield results
  _print_table(
    f'An update of the learner (median of {_UPDATES.value}). Floor: its FLOP at the rate of a large product',
    ['size', 'compile s', 'cached s', 'update s', 'CPU s', 'GFLOP', 'product GFLOP/s', 'floor / s', 'floor / CPU s'],
    [
      [
        name,
        f'{row["trace_seconds"] + row["compile_seconds"]:.0f}',
        f'{row["cached_compile_seconds"]:.0f}',
        f'{row["seconds"]:.2f}',
        f'{row["cpu_seconds"]:.2f}',
        f'{row["flop"] / 1e9:.0f}',
        f'{row["gemm_flop_per_second"] / 1e9:.0f}',
        f'{row["floor_ratio"]:.2f}',
        f'{row["cpu_floor_ratio"]:.2f}',
      ]
      for name, row in results.items()
    ],
  )
  memory = {
    'arguments': 'argument_bytes',
    'outputs': 'output_bytes',
    'donated': 'donated_bytes',
    'temporary': 'temporary_bytes',
    'peak RSS of the process': 'peak_rss_bytes',
  }
  _print_table(
    'Memory of an update in GB, as compiled; donated: in arguments and outputs',
    ['size', *memory],
    [[name, *(f'{row[column] / 1e9:.2f}' for column in memory.values())] for name, row in results.items()],
  )


def _print_pieces(name: str, result: dict) -> None:
  _print_table(
    f'{name}: pieces of an update, each on its own',
    ['piece', 's', 'CPU s', 'of the update', 'GFLOP', 'floor / s', 'floor / CPU s', 'temporary GB'],
    [
      [
        piece,
        f'{row["seconds"]:.3f}',
        f'{row["cpu_seconds"]:.3f}',
        f'{row["cpu_seconds"] / result["cpu_seconds"]:.0%}',
        f'{row["flop"] / 1e9:.1f}',
        f'{row["floor_ratio"]:.2f}',
        f'{row["cpu_floor_ratio"]:.2f}',
        f'{row["temporary_bytes"] / 1e9:.2f}',
      ]
      for piece, row in result['pieces'].items()
    ],
  )


def _measure_acting() -> Iterator[dict[str, dict]]:
  figures = {}
  for name in ('paper_vectors', 'paper_images'):
    figures[name] = acting_speed.measure(stand_ins.SIZES[name], [str(_ROOT)])
    yield figures
  _print_table(*acting_speed.table(figures))


def _measure_replay(earlier: dict[str, Any]) -> Iterator[dict]:
  figures = replay_speed.measure([str(_ROOT)], paper_seconds=_paper_seconds(earlier))
  _print_table(*replay_speed.table(figures))
  yield figures


def _measure_shares(earlier: dict[str, Any]) -> Iterator[dict]:
  figures = run_shares.measure([str(_ROOT)], paper_seconds=_paper_seconds(earlier))
  _print_table(*run_shares.table(figures))
  yield figures


def _measure_baselines() -> Iterator[dict[str, dict]]:
  figures = {}
  for name in baseline_speed.ALGORITHMS:
    figures[name] = baseline_speed.measure(name, [str(_ROOT)], rounds=_ROUNDS.value)
    yield figures
  _print_table(*baseline_speed.table(figures))


def _measure_scaling() -> Iterator[dict]:
  figures = scaling.measure([str(_ROOT)])
  yield figures
  if _PAPER_MEMORY.value:
    figures['paper'] = scaling.measure_memory(stand_ins.SIZES['paper_vectors'], [str(_ROOT)])
    yield figures
  _print_table(*scaling.table(figures))
  if _SCALING_FOLDER.value:
    scaling.write(figures, pathlib.Path(_SCALING_FOLDER.value))


def _measure_report() -> Iterator[list[dict]]:
  figures = report_speed.measure()
  _print_table(*report_speed.table(figures))
  yield figures


def _measure_start() -> Iterator[list[dict]]:
  rows = start_cost.measure(_ROUNDS.value)
  _print_table(*start_cost.table(rows))
  yield rows


def _paper_seconds(earlier: dict[str, Any]) -> float | None:
  """Seconds of an update at the paper's size, where this run has measured them."""
  return earlier.get('learner', {}).get('paper_images', {}).get('seconds')


def _check_names(flag: flags.FlagHolder, allowed: list[str]) -> None:
  unknown = [name for name in flag.value if name not in allowed]
  if unknown:
    raise app.UsageError(f'--{flag.name}: {", ".join(unknown)} is none of {", ".join(allowed)}.')


def main(argv: list[str]) -> None:
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.WARNING)  # Absl's own default in a program is INFO.
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}.')
  _check_names(_PARTS, list(_MEASUREMENTS))
  _check_names(_SIZES, list(stand_ins.SIZES))
  results: dict[str, Any] = {}
  for part in _PARTS.value:
    key, measure = _MEASUREMENTS[part]
    for figures in measure(results):
      results[key] = figures
      if _JSON.value:  # Each time: what follows may fail, or take too long.
        pathlib.Path(_JSON.value).write_text(json.dumps(results, indent=2), encoding='utf-8')


# By part: where its figures stand in the file, and what takes and prints them. It is given the figures of earlier
# parts, and yields its own so far.
_MEASUREMENTS = {
  'environment': ('environments', lambda _: _measure_environments()),
  'parallel': ('parallel', lambda _: _measure_parallel()),
  'posterior': ('posterior', lambda _: _measure_posterior()),
  'ensemble': ('ensemble', lambda _: _measure_ensemble()),
  'learner': ('learner', lambda _: _measure_learner()),
  'acting': ('acting', lambda _: _measure_acting()),
  'replay': ('replay', _measure_replay),
  'shares': ('shares', _measure_shares),
  'baselines': ('baselines', lambda _: _measure_baselines()),
  'scaling': ('scaling', lambda _: _measure_scaling()),
  'report': ('report', lambda _: _measure_report()),
  'start': ('start', lambda _: _measure_start()),
}
