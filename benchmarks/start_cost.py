"""What it costs to start: seconds and memory of importing lambda_kit, beside those of the libraries that it needs.

Each import is made in a new process. Files are in the system's cache: a first one that isn't counted puts them there.
"""

from collections.abc import Mapping, Sequence
import subprocess
import sys
import time
from typing import Any

import numpy as np

# What a process imports. The last one is what lambda_kit would cost if importing rlax brought distrax along.
STARTS = {
  'Python': 'pass',
  'jax, haiku, optax': 'import jax, haiku, optax',
  'all components': 'import lambda_kit.components',
  'the command run': 'import lambda_kit.commands.run',
  'all components, and distrax': 'import distrax, lambda_kit.components',
}
# The process tells its own peak: what the kernel tells its parent includes the parent's memory, before exec.
_TELL = """
import time
print(time.process_time(), *[line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')])
"""


def measure(rounds: int = 5, starts: Mapping[str, str] = STARTS) -> list[dict[str, Any]]:
  """Starts a process for each of `starts`, in turn, so that whatever else the machine does hits all alike.

  Args:
    rounds: Of which the median counts.
    starts: From a name to the statement that a process begins with.

  Returns:
    A row for each: `name`, `seconds` until the process has ended, its `cpu_seconds`, and its `peak_rss_bytes`.
  """
  measured: dict[str, list[tuple[float, float, int]]] = {name: [] for name in starts}
  for count in range(rounds + 1):
    for name, statement in starts.items():
      figures = _start(statement)
      if count:
        measured[name].append(figures)
  medians = {name: np.median(figures, axis=0) for name, figures in measured.items()}
  return [
    dict(name=name, seconds=float(seconds), cpu_seconds=float(cpu), peak_rss_bytes=int(peak))
    for name, (seconds, cpu, peak) in medians.items()
  ]


def table(rows: Sequence[dict[str, Any]]) -> tuple[str, list[str], list[list[str]]]:
  """Title, headings and lines of a table."""
  return (
    'A start',
    ['what is imported', 's', 'CPU s', 'peak MB'],
    [
      [row['name'], f'{row["seconds"]:.2f}', f'{row["cpu_seconds"]:.2f}', f'{row["peak_rss_bytes"] / 1e6:.0f}']
      for row in rows
    ],
  )


def _start(statement: str) -> tuple[float, float, int]:
  """Seconds, processor seconds and peak bytes of a process."""
  begin = time.perf_counter()
  result = subprocess.run([sys.executable, '-c', statement + _TELL], check=True, capture_output=True, text=True)
  seconds = time.perf_counter() - begin
  cpu_seconds, peak = result.stdout.split()[-2:]
  return seconds, float(cpu_seconds), 1024 * int(peak)  # Linux counts in KiB.
