"""Hurts small runs in all ways that a long run meets, and tells what became of each fault.

  python -m tests.faults                        # `make faults`: over a thousand faults
  python -m tests.faults --families=damages,writers --json=faults.json
  python -m tests.faults --docs                 # puts the table into docs/durability.md
  python -m tests.faults --cost                 # what a checkpoint costs at growing sizes of the replay

Exits with 1 if a fault did silent damage or ended in a stack trace. The files of these cases stay.
"""

import argparse
import collections
from collections.abc import Callable, Iterator
from concurrent import futures
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

from absl import logging
from rich import console as rich_console
from rich import table as rich_table

from benchmarks import checkpoint_speed
from tests.faults import damages
from tests.faults import interruptions
from tests.faults import neighbours
from tests.faults import outcomes
from tests.faults import runs
from tests.faults import scarcity

_PAGE = runs.ROOT / 'docs' / 'durability.md'
_BEGIN, _END = '<!-- faults -->\n', '<!-- end of faults -->\n'


class Runs:
  """The kinds of runs that are hurt, each made when it is first asked for."""

  _KINDS = {
    'random': runs.RANDOM,
    'long-random': (*runs.RANDOM, '--gin_bindings=ENVIRONMENT_STEPS = 6_000'),
    'gather': runs.GATHER,
    'lambda': runs.LAMBDA,
    'film': runs.FILM,
  }

  def __init__(self, folder: pathlib.Path):
    self._folder = folder
    self._made: dict[str, outcomes.Run] = {}

  def __call__(self, name: str) -> outcomes.Run:
    if name not in self._made:
      self._made[name] = outcomes.Run(self._folder / name, self._KINDS[name])
    return self._made[name]

  def other(self, name: str) -> pathlib.Path:
    """A finished workdir of the same kind with another seed."""
    workdir = self._folder / f'{name}-other'
    if not workdir.exists():
      run = outcomes.Run(self._folder / f'{name}-with-seed', (*self._KINDS[name], '--seed=1'))
      run.reference.rename(workdir)
    return workdir


def _damages(made: Runs, seed: int) -> Iterator[outcomes.Case]:
  for name, tries in (('random', 5), ('gather', 2), ('lambda', 1)):
    run = made(name)
    stopped = run.stop('stopped', 0.75)
    yield from damages.every_checkpoint(run, stopped, seed)
    yield from damages.cases(run, stopped, made.other(name), tries, seed)


def _interruptions(made: Runs, seed: int) -> Iterator[outcomes.Case]:
  yield from interruptions.at_every_change(made('random'), step=1)
  yield from interruptions.at_every_change(made('film'), step=3)
  yield from interruptions.at_every_change(made('lambda'), step=8)
  for name, times in (('long-random', 40), ('gather', 20), ('lambda', 10)):
    yield from interruptions.at_any_time(made(name), times, seed)
  for name, times in (('long-random', 40), ('lambda', 10)):
    yield from interruptions.by_signals(made(name), times, seed)


def _scarcity(made: Runs, seed: int) -> Iterator[outcomes.Case]:
  del seed
  for name, number in (('random', 20), ('gather', 10), ('lambda', 6)):
    yield from scarcity.full_disks(made(name), [i / number for i in range(number)])
  yield from scarcity.jumping_clocks(made('random'), 20)
  yield from scarcity.jumping_clocks(made('lambda'), 3)
  yield from scarcity.limits(made('random'))


def _environments(made: Runs, seed: int) -> Iterator[outcomes.Case]:
  del seed
  yield from neighbours.faulty_environments(made('random').folder, times=6)


def _writers(made: Runs, seed: int) -> Iterator[outcomes.Case]:
  yield from neighbours.two_writers(made('long-random'), 20, seed)
  yield from neighbours.two_writers(made('gather'), 5, seed)


def _reports(made: Runs, seed: int) -> Iterator[outcomes.Case]:
  yield from neighbours.damaged_for_reports(made('random'), made.other('random'), tries=3, seed=seed)


FAMILIES: dict[str, Callable[[Runs, int], Iterator[outcomes.Case]]] = {
  'damages': _damages,
  'interruptions': _interruptions,
  'scarcity': _scarcity,
  'environments': _environments,
  'writers': _writers,
  'reports': _reports,
}


def inject(cases: list[outcomes.Case], jobs: int) -> list[tuple[str, str, outcomes.Found]]:
  """Injects faults, some at once. Returns the family, the name and the outcome of each."""

  def run(case: outcomes.Case) -> tuple[str, str, outcomes.Found]:
    family, name, function = case
    try:
      found = function()
    except Exception as error:  # A fault of the harness is no good outcome either.
      found = outcomes.Found(outcomes.Outcome.TRACE, f'{type(error).__name__}: {error}')
    if not found.outcome.is_good:
      print(f'{found.outcome.value}: {family}, {name}: {found.message}', flush=True)
    return family, name, found

  with futures.ThreadPoolExecutor(jobs) as pool:
    return list(pool.map(run, cases))


def evenly(cases: list[outcomes.Case], count: int) -> list[outcomes.Case]:
  """So many of the cases, from beginning to end."""
  return [cases[i * len(cases) // count] for i in range(min(count, len(cases)))]


def _rows(results: list[tuple[str, str, outcomes.Found]]) -> list[list[str]]:
  """By family: how many were injected, and how many had each outcome."""
  counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
  for family, _, found in results:
    counts[family][found.outcome] += 1
  counts['all'] = sum(counts.values(), collections.Counter())
  return [
    [family, str(count.total()), *(str(count[outcome] or '') for outcome in outcomes.Outcome)]
    for family, count in counts.items()
  ]


def _write_docs(how: str, headings: list[str], rows: list[list[str]]) -> None:
  before, rest = _PAGE.read_text('utf-8').split(_BEGIN)
  after = rest.split(_END)[1]
  lines = [headings, ['---'] * len(headings), *rows]
  table = ''.join(f'| {" | ".join(line)} |\n' for line in lines)
  _PAGE.write_text(f'{before}{_BEGIN}{how}:\n\n{table}{_END}{after}', 'utf-8')


def _print_cost() -> None:
  table = rich_table.Table(title='A checkpoint, by the size of the replay', title_justify='left')
  for heading in ('episodes', 'replay MB', 'written KB', 'of these, episode KB', 'seconds'):
    table.add_column(heading, justify='right')
  for row in checkpoint_speed.measure():
    table.add_row(
      f'{row["episodes"]:,}',
      f'{row["replay_bytes"] / 1e6:.1f}',
      f'{row["written_bytes"] / 1e3:.2f}',
      f'{row["episode_bytes"] / 1e3:.2f}',
      f'{row["seconds"]:.3f}',
    )
  rich_console.Console(width=140).print(table)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('--families', default=','.join(FAMILIES), help=f'What to do, of {", ".join(FAMILIES)}.')
  parser.add_argument('--seed', type=int, default=0, help='Of moments and places.')
  parser.add_argument('--jobs', type=int, default=os.cpu_count() or 1, help='Cases at once.')
  parser.add_argument('--sample', type=int, help='Inject only so many faults, drawn evenly.')
  parser.add_argument('--json', type=pathlib.Path, help='File to write each case to.')
  parser.add_argument('--docs', action='store_true', help='Put the table into docs/durability.md.')
  parser.add_argument('--cost', action='store_true', help='Measure what a checkpoint costs instead.')
  arguments = parser.parse_args()
  logging.set_verbosity(logging.WARNING)
  if arguments.cost:
    _print_cost()
    return
  families = arguments.families.split(',')
  if unknown := set(families) - set(FAMILIES):
    parser.error(f'--families: {", ".join(sorted(unknown))} is none of {", ".join(FAMILIES)}.')
  begin = time.monotonic()
  folder = pathlib.Path(tempfile.mkdtemp(prefix='lambda_kit_faults_'))
  made = Runs(folder)
  cases = [case for family in families for case in FAMILIES[family](made, arguments.seed)]
  print(f'{len(cases):,} faults in {folder}', flush=True)
  results = inject(evenly(cases, arguments.sample or len(cases)), arguments.jobs)
  minutes = (time.monotonic() - begin) / 60
  headings, rows = ['fault', 'injected', *(outcome.value for outcome in outcomes.Outcome)], _rows(results)
  table = rich_table.Table(*headings, title=f'Faults, and what became of them, in {minutes:.0f} minutes')
  for row in rows:
    table.add_row(*row)
  rich_console.Console(width=150).print(table)
  if arguments.json:
    entries = [
      dict(family=family, name=name, outcome=found.outcome.value, message=found.message)
      for family, name, found in results
    ]
    arguments.json.write_text(json.dumps(entries, indent=1), encoding='utf-8')
  if arguments.docs:
    how = f'`python -m tests.faults --docs`, seed {arguments.seed}, {minutes:.0f} minutes with {arguments.jobs} jobs'
    _write_docs(how, headings, rows)
  if not all(found.outcome.is_good for _, _, found in results):
    sys.exit(f'Some faults were not survived. The runs are in {folder}')
  shutil.rmtree(folder)
