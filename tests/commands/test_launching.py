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


@pytest.mark.parametrize('name, code', [('SIGTERM', 75), ('SIGINT', 130)])
def test_an_interrupt_is_not_lost_while_garbage_is_collected(name, code):
  done = _run(_PROGRAM.format(action=f'os.kill(os.getpid(), signal.{name})', steps=200))
  assert done.returncode == code, done.stderr
  assert done.stderr == 'Interrupted.\n'


def test_other_exceptions_that_are_ignored_are_told():
  done = _run(_PROGRAM.format(action="raise ValueError('lost')", steps=3))
  assert done.returncode == 0 and done.stderr.count('ValueError: lost') == 3


# Forks a process for each signal, which gets it while it works, and prints how each ended. `nohup` ignores SIGHUP.
_SIGNALLED = """
import os, resource, signal, sys, time
from absl import app
from lambda_kit.commands import launching

def work(name):
  with launching.explained(when_interrupted='Interrupted.'):
    try:
      if name == 'limit':  # The kernel sends SIGXCPU, and again after each further second.
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 1, resource.RLIM_INFINITY))
      else:
        os.kill(os.getpid(), getattr(signal, name))
      while True:
        time.process_time()
    finally:
      start = time.process_time()
      while name == 'limit' and time.process_time() < start + 1.5:  # Saves.
        pass

def main(argv):
  for name in argv[1].split(','):
    if not (process := os.fork()):
      resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
      signal.signal(signal.SIGHUP, signal.SIG_IGN if name == 'nohup' else signal.SIG_DFL)
      signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # Shells start background jobs with it ignored.
      launching.begin(argv[:1])
      if name == 'nohup':
        os.kill(os.getpid(), signal.SIGHUP)
        os._exit(0)
      work(name)
    print(name, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))

app.run(main)
"""


def test_signals_of_schedulers_mean_later_and_those_of_users_do_not():
  later = ('SIGTERM', 'SIGHUP', 'SIGUSR1', 'SIGUSR2', 'SIGXCPU', 'SIGALRM', 'limit')
  names = [*later, 'SIGINT', 'SIGQUIT', 'nohup']
  done = subprocess.run(
    [sys.executable, '-c', _SIGNALLED, ','.join(names)], cwd=_ROOT, capture_output=True, text=True, timeout=120
  )
  found = dict(line.split() for line in done.stdout.splitlines())
  assert found == {**dict.fromkeys(later, '75'), 'SIGINT': '130', 'SIGQUIT': '-3', 'nohup': '0'}, done.stderr
  assert done.stderr.count('Interrupted.') == len(later) + 1
  assert 'Traceback' not in done.stderr
