"""Writes a report about all runs below a folder: scores, tables, figures, and an HTML page.

  lambda-kit report --runs=results/ --out=report/
  lambda-kit report --runs=results/ --out=report/ --watch    # Updates it while runs write.
  lambda-kit report --runs=runs/ --archive=results/mine/     # Also writes numbers and curves small enough to commit.

Needs no network. Problems with runs (unfinished, other protocols, corrupt lines, ...) are shown on the page and on the
terminal; such runs are left out of averages.
"""

import contextlib
import pathlib
import sys
import time

from absl import app
from absl import flags

from lambda_kit import resources
from lambda_kit.analysis.reports import archive
from lambda_kit.analysis.reports import problems
from lambda_kit.analysis.reports import report
from lambda_kit.analysis.reports import runs

_ROOT = resources.root()

_RUNS = flags.DEFINE_string('runs', 'runs', 'Folder with workdirs of runs, at any depth.')
_OUT = flags.DEFINE_string('out', 'report', 'Folder for the report.')
_ARCHIVE = flags.DEFINE_string(
  'archive', None, "Folder for small files to keep: every seed's numbers, learning curves and configurations."
)
_WATCH = flags.DEFINE_bool('watch', False, 'Keep running, and update the report when runs have written something.')
_INTERVAL = flags.DEFINE_integer('interval', 30, 'Seconds between checks with --watch.', lower_bound=1)


def _signature(folder: pathlib.Path) -> list[tuple[str, int, int]]:
  """The files that a report reads, which change when a run writes: paths, sizes and times."""
  found = []
  for workdir in runs.find_workdirs(folder):
    with contextlib.suppress(OSError):  # It can't be read, as the report says, or is gone.
      for path in sorted(workdir.iterdir()):
        with contextlib.suppress(FileNotFoundError):  # A partial file, which has just been renamed.
          if path.suffix in ('.jsonl', '.json', '.gin', '.mp4', '.gif'):
            status = path.lstat()
            found.append((str(path), status.st_size, status.st_mtime_ns))
  return found


def _write(folder: pathlib.Path, out: pathlib.Path) -> None:
  start = time.monotonic()
  collected = report.write_report(folder, out, _ROOT, refresh_seconds=_INTERVAL.value if _WATCH.value else 0)
  if _ARCHIVE.value:
    archive.write_archive(collected, out, pathlib.Path(_ARCHIVE.value))
  print(report.overview(collected))
  print(problems.summarize(collected.problems))
  print(f'{out / "index.html"} was written in {time.monotonic() - start:.1f} s.', flush=True)


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}.')
  folder, out = pathlib.Path(_RUNS.value), pathlib.Path(_OUT.value)
  if not folder.is_dir():
    sys.exit(f'error: there is no folder {folder}. Name the one with your runs with --runs.')
  try:
    seen = _signature(folder)
    _write(folder, out)
    while _WATCH.value:
      time.sleep(_INTERVAL.value)
      now = _signature(folder)
      if now != seen:
        seen = now
        _write(folder, out)
  except KeyboardInterrupt:
    sys.exit(130)
  except OSError as error:
    sys.exit(f'error: {error}')
