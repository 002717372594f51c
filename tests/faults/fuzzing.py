"""Fuzzers: whatever is in a file, it is read or refused in a moment, with an error that names it.

Most cases are JSON with changed values, since damage alone is found by checksums.
"""

from collections.abc import Callable
import pathlib
import time
from typing import Any, NamedTuple

import hypothesis
from hypothesis import strategies as st

_MAX_SECONDS = 10.0  # Of processor time, for one file.


class Parser(NamedTuple):
  """How to fuzz a parser."""

  files: st.SearchStrategy  # What it reads.
  read: Callable[[Any], Any]  # Reads it. Raises an AssertionError if the outcome is wrong.
  refusals: tuple[type[Exception], ...]  # What it may raise.


def of_file(folder: pathlib.Path, name: str, read: Callable[[pathlib.Path], Any]) -> Callable[[bytes], Any]:
  def read_file(content):
    (folder / name).write_bytes(content)
    read(folder / name)

  return read_file


def fuzz(parser: Parser, examples: int, **settings: Any) -> None:
  @hypothesis.settings(
    max_examples=examples, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck), **settings
  )
  @hypothesis.given(parser.files)
  def run(case):
    started = time.process_time()
    try:
      parser.read(case)
    except parser.refusals as error:
      assert str(error)
    assert time.process_time() - started < _MAX_SECONDS

  run()
