"""How processes of commands begin and end."""

import pathlib
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]

# Does something three times where Python ignores exceptions, and works on for as long as it is let.
_PROGRAM = """
import gc, os, signal, time
from absl import app
from lambda_kit.commands import launching

left = 3

def collected(phase, info):
  global left
  if phase == 'start' and left:
    left -= 1
    {action}

def main(argv):
  launching.begin(argv)
  gc.callbacks.append(collected)
  with launching.explained(when_interrupted='Interrupted.'):
    for _ in range({steps}):
      gc.collect()
      time.sleep(0.05)

app.run(main)
"""


def _run(program: str) -> subprocess.CompletedProcess:
  return subprocess.run(
    [sys.executable, '-c', program], cwd=_ROOT, capture_output=True, text=True, timeout=120, check=False
  )


@pytest.mark.parametrize('name', ['SIGTERM', 'SIGINT'])
def test_an_interrupt_is_not_lost_while_garbage_is_collected(name):
  done = _run(_PROGRAM.format(action=f'os.kill(os.getpid(), signal.{name})', steps=200))
  assert done.returncode == 130, done.stderr
  assert done.stderr == 'Interrupted.\n'


def test_other_exceptions_that_are_ignored_are_told():
  done = _run(_PROGRAM.format(action="raise ValueError('lost')", steps=3))
  assert done.returncode == 0 and done.stderr.count('ValueError: lost') == 3
