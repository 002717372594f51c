"""What a report about many runs costs: seconds, processor time, and memory, which must not grow with their logs.

The runs are made up, with logs as long as LAMBDA's in the paper's experiments: an evaluation for each 25,000 steps, an
episode and a row of the learner for each 1,000. What is measured is the real command in a process of its own.
"""

from collections.abc import Sequence
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks import synthetic_runs
from lambda_kit.analysis.metrics import protocols

TARGET_SECONDS = 60.0
_TASKS = (*protocols.SG6_TASKS, 'Another', 'YetAnother')
_ALGORITHMS = ('LAMBDA', 'PPO', 'CPO', 'PPO-Lagrangian', 'TRPO-Lagrangian')


def measure(num_seeds: int = 25, log_lengths: Sequence[int] = (100, 1000)) -> list[dict[str, Any]]:
  """Reports runs of 8 tasks, 5 algorithms and some seeds, once for each length of their logs.

  Args:
    num_seeds: Of each algorithm on each task.
    log_lengths: Rows of `episode.jsonl` and of `learner.jsonl`.

  Returns:
    A row for each length: `runs`, `log_rows`, `log_bytes` of all of them, `seconds`, `cpu_seconds` of all processes
    together, `peak_rss_bytes` of the largest of them, and `page_bytes`.
  """
  rows = []
  for log_rows in log_lengths:
    with tempfile.TemporaryDirectory() as name:
      folder, out = pathlib.Path(name, 'runs'), pathlib.Path(name, 'report')
      workdirs = _write_runs(folder, num_seeds, log_rows)
      usage, seconds = _report(folder, out)
      rows.append(
        dict(
          runs=len(workdirs),
          log_rows=log_rows,
          log_bytes=sum(path.stat().st_size for path in folder.rglob('*.jsonl')),
          seconds=seconds,
          cpu_seconds=usage.ru_utime + usage.ru_stime,
          peak_rss_bytes=1024 * usage.ru_maxrss,
          page_bytes=(out / 'index.html').stat().st_size,
        )
      )
  return rows


def table(figures: Sequence[dict[str, Any]]) -> tuple[str, list[str], list[list[str]]]:
  """Title, headings and lines of a table."""
  return (
    f'A report (target: {TARGET_SECONDS:g} s for 1,000 runs on two cores)',
    ['runs', 'rows of a log', 'MB of logs', 's', 'CPU s', 'peak MB of a process', 'MB of the page'],
    [
      [
        f'{row["runs"]:,}',
        f'{row["log_rows"]:,}',
        f'{row["log_bytes"] / 1e6:.0f}',
        f'{row["seconds"]:.1f}',
        f'{row["cpu_seconds"]:.1f}',
        f'{row["peak_rss_bytes"] / 1e6:.0f}',
        f'{row["page_bytes"] / 1e6:.1f}',
      ]
      for row in figures
    ],
  )


def _write_runs(folder: pathlib.Path, num_seeds: int, log_rows: int) -> list[pathlib.Path]:
  workdirs = []
  for task in _TASKS:
    paper = protocols.paper_protocol(task)
    steps = paper.environment_steps if paper is not None else 1_000_000
    workdirs += [
      synthetic_runs.write_run(
        folder / task / algorithm / f'seed{seed}',
        task,
        algorithm,
        seed,
        steps,
        evaluations=steps // 25_000,
        learner_rows=log_rows,
      )
      for algorithm in _ALGORITHMS
      for seed in range(num_seeds)
    ]
  return workdirs


def _report(folder: pathlib.Path, out: pathlib.Path) -> tuple[Any, float]:
  """Runs the command. Returns what it and the processes that it started used, and the seconds that it took."""
  begin = time.perf_counter()
  command = [sys.executable, '-m', 'lambda_kit', 'report', f'--runs={folder}', f'--out={out}']
  process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
  _, status, usage = os.wait4(process.pid, 0)
  process.returncode = os.waitstatus_to_exitcode(status)
  if process.returncode:
    raise RuntimeError(f'`lambda-kit report` ended with code {process.returncode}.')
  return usage, time.perf_counter() - begin
