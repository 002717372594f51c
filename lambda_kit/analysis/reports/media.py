"""Videos and pictures of runs, as many as a page has room for."""

from collections.abc import Callable
import dataclasses
import math
import pathlib

from lambda_kit import reading
from lambda_kit.analysis.reports import collection as collection_lib
from lambda_kit.analysis.reports import runs as runs_lib


@dataclasses.dataclass(frozen=True)
class Medium:
  """A file of a run."""

  run: runs_lib.Run
  algorithm: str  # The name of its group.
  path: pathlib.Path
  content: bytes


def choose(
  collected: collection_lib.Collection, path_of: Callable[[runs_lib.Run], pathlib.Path | None], budget: int
) -> list[Medium]:
  """Reads files of runs: first of each group's run with the median return, then of the others, then of refused runs.

  Args:
    collected: The runs.
    path_of: Returns the file of a run; None if it has none.
    budget: Bytes of all files together. Files that don't fit are left out.
  """
  first, others = [], []
  for task in collected.tasks:
    for group in collected.of_task(task):
      ranked = sorted(
        (run for run in group.runs if path_of(run) is not None),
        key=lambda run: run.score.episode_return if run.score else -math.inf,
      )
      if ranked:
        first.append((ranked.pop(len(ranked) // 2), group.algorithm))
        others += [(run, group.algorithm) for run in ranked]
  others += [(run, run.identity.algorithm) for run in collected.refused]
  chosen = []
  for run, algorithm in [*first, *others]:
    if (path := path_of(run)) is None:
      continue
    try:
      content = reading.read_bytes(path, budget)
    except (OSError, reading.RefusedError):  # Too large; or a run is replacing it.
      continue
    chosen.append(Medium(run, algorithm, path, content))
    budget -= len(content)
  return chosen
