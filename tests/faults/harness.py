"""Hurts small runs in all ways that a long run meets, and prints what became of them.

  python -m tests.faults.harness                     # all of it: 10 minutes on two cores
  python -m tests.faults.harness --parts=kills,disk --json=faults.json
  python -m tests.faults.harness --parts=cost        # what a checkpoint costs at growing sizes of the replay

Exits with 1 if a run did not come to the same end as one that nobody hurt, to the bit. Its files stay then.
"""

from collections.abc import Callable, Iterator
import dataclasses
import json
import pathlib
import shutil
import signal
import sys
import tempfile
from typing import Any

from absl import app
from absl import flags
from absl import logging
from rich import console as rich_console
from rich import table as rich_table

from benchmarks import checkpoint_speed
from lambda_kit import signals
from tests.faults import injection
from tests.faults import runs
from tests.faults import scenarios

_PARTS = flags.DEFINE_list(
  'parts',
  ['kills', 'signals', 'checkpoints', 'episodes', 'logs', 'writers', 'disk', 'cost'],
  'What to do, of kills, signals, checkpoints, episodes, logs, writers, disk and cost.',
)
_KILLS = flags.DEFINE_integer(
  'kills', 30, "How often the random agent's run is killed; LAMBDA's: a fifth of it.", lower_bound=5
)
_SEED = flags.DEFINE_integer('seed', 0, 'Of the moments.')
_JSON = flags.DEFINE_string('json', None, 'File to write the results to.')

_FILES = ('learner.safetensors', 'state.json', 'manifest.json')
_DAMAGES = (injection.truncate, injection.flip_bit, injection.delete)
_MESSAGE_WIDTH = 150


class _Runs:
  """The kinds of runs that are hurt, each with a reference that is made when it is first asked for."""

  def __init__(self, folder: pathlib.Path):
    self._folder = folder
    self._made: dict[str, scenarios.Run] = {}

  def __call__(self, name: str) -> scenarios.Run:
    if name not in self._made:
      arguments = {
        'random': runs.RANDOM,
        'long random': (*runs.RANDOM, '--gin_bindings=ENVIRONMENT_STEPS = 20_000'),
        'gather': runs.GATHER,
        'lambda': runs.LAMBDA,
      }[name]
      self._made[name] = scenarios.Run(self._folder / name.replace(' ', '-'), arguments)
    return self._made[name]


def _kill(made: _Runs) -> Iterator[scenarios.Result]:
  for name, times in (('long random', _KILLS.value), ('lambda', _KILLS.value // 5)):
    result = scenarios.kills(made(name), times, _SEED.value)
    yield dataclasses.replace(result, fault=f'{result.fault} in one run ({name})')


def _signal(made: _Runs) -> Iterator[scenarios.Result]:
  for name, numbers in (
    ('long random', (*signals.ENDING, signal.SIGINT, signal.SIGINT)),
    ('lambda', (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGINT)),
  ):
    result = scenarios.signals(made(name), numbers, _SEED.value)
    yield dataclasses.replace(result, fault=f'{result.fault} ({name})')


def _damage_checkpoints(made: _Runs) -> Iterator[scenarios.Result]:
  run = made('random')
  stopped = run.stop('stopped', 0.75)
  yield scenarios.damaged_checkpoints(run, stopped, _FILES, _DAMAGES)
  yield scenarios.one_good_checkpoint(run, stopped)
  yield scenarios.no_good_checkpoint(run, stopped)
  run = made('lambda')
  result = scenarios.damaged_checkpoints(run, run.stop('stopped', 0.75), _FILES[:1], _DAMAGES[1:2])
  yield dataclasses.replace(result, fault=f'{result.fault} (lambda)')


def _damage_episodes(made: _Runs) -> Iterator[scenarios.Result]:
  run = made('gather')
  stopped = run.stop('stopped', 0.75)
  yield scenarios.lost_episodes(run, stopped)
  yield scenarios.episodes_lost_to_all(run, stopped)


def _damage_logs(made: _Runs) -> Iterator[scenarios.Result]:
  run = made('random')
  yield scenarios.damaged_logs(run, run.stop('stopped-for-logs', 0.66))


def _write_twice(made: _Runs) -> Iterator[scenarios.Result]:
  for name in ('random', 'gather'):
    result = scenarios.second_writer(made(name), 0.3)
    yield dataclasses.replace(result, fault=f'{result.fault} ({name})')


def _fill_disk(made: _Runs) -> Iterator[scenarios.Result]:
  for name, shares in (('random', (0.0, 0.1, 0.3, 0.6)), ('gather', (0.2, 0.5))):
    result = scenarios.full_disk(made(name), shares)
    yield dataclasses.replace(result, fault=f'{result.fault} ({name})')


_FAULTS: dict[str, Callable[[_Runs], Iterator[scenarios.Result]]] = {
  'kills': _kill,
  'signals': _signal,
  'checkpoints': _damage_checkpoints,
  'episodes': _damage_episodes,
  'logs': _damage_logs,
  'writers': _write_twice,
  'disk': _fill_disk,
}


def _print_results(results: list[scenarios.Result], folder: pathlib.Path) -> None:
  table = rich_table.Table(title='Faults, and what became of the runs', title_justify='left')
  for heading in ('fault', 'injected', 'survived', 'rows lost', 'message seen'):
    table.add_column(heading, justify='left' if heading in ('fault', 'message seen') else 'right')
  for result in results:
    message = result.message.replace(f'{folder}/', '')
    message = message[:_MESSAGE_WIDTH] if result.is_good else message[-3 * _MESSAGE_WIDTH :]
    table.add_row(result.fault, str(result.injected), str(result.survived), str(result.rows_lost), message)
  rich_console.Console(width=140).print(table)


def _print_cost(rows: list[dict[str, Any]]) -> None:
  table = rich_table.Table(title='A checkpoint, by the size of the replay', title_justify='left')
  for heading in ('episodes', 'replay MB', 'written KB', 'of these, episode KB', 'seconds'):
    table.add_column(heading, justify='right')
  for row in rows:
    table.add_row(
      f'{row["episodes"]:,}',
      f'{row["replay_bytes"] / 1e6:.1f}',
      f'{row["written_bytes"] / 1e3:.2f}',
      f'{row["episode_bytes"] / 1e3:.2f}',
      f'{row["seconds"]:.3f}',
    )
  rich_console.Console(width=140).print(table)


def main(argv: list[str]) -> None:
  del argv
  logging.set_verbosity(logging.WARNING)
  unknown = set(_PARTS.value) - {*_FAULTS, 'cost'}
  if unknown:
    raise app.UsageError(f'--parts: {", ".join(sorted(unknown))} is none of {", ".join([*_FAULTS, "cost"])}.')
  folder = pathlib.Path(tempfile.mkdtemp(prefix='lambda_kit_faults_'))
  made, results, costs = _Runs(folder), [], []
  for part in _PARTS.value:
    for result in _FAULTS[part](made) if part in _FAULTS else ():
      results.append(result)
      print(f'{result.survived} of {result.injected} survived: {result.fault}', flush=True)
  if results:
    _print_results(results, folder)
  if 'cost' in _PARTS.value:
    costs = checkpoint_speed.measure()
    _print_cost(costs)
  if _JSON.value:
    faults = [dataclasses.asdict(result) for result in results]
    pathlib.Path(_JSON.value).write_text(json.dumps(dict(faults=faults, cost=costs), indent=2), encoding='utf-8')
  if not all(result.is_good for result in results):
    sys.exit(f'Something was lost. The runs are in {folder}')
  shutil.rmtree(folder)


if __name__ == '__main__':
  app.run(main)
