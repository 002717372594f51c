"""Runs that take no time: a stand-in for `lambda-kit run`, told by its bindings how to behave."""

from collections.abc import Sequence
import pathlib

from lambda_kit.analysis import identity
from lambda_kit.analysis import run_record
from lambda_kit.analysis.metrics import protocols
from lambda_kit.sweeps import grid

# Ten episodes of ten steps, one log row for each; goes on where its log ends. Bindings, as Python:
#   SECONDS = 1        of all ten episodes
#   FAIL = {0, 1}      seeds that fail at once, always
#   FAIL_ONCE = {0}    seeds whose first attempt fails at once
#   BREAK_ONCE = {0}   seeds whose first attempt fails after five episodes
#   MEGABYTES = 100    of memory to fill
_FAKE_RUN = """
import json, os, pathlib, signal, sys, time
flags = [argument[2:].split('=', 1) for argument in sys.argv[1:]]
workdir, seed = pathlib.Path(dict(flags)['workdir']), int(dict(flags)['seed'])
plan = dict(SECONDS=0, FAIL=(), FAIL_ONCE=(), BREAK_ONCE=(), MEGABYTES=0)
for name, value in flags:
  if name == 'gin_bindings':
    exec(value, plan)
calls = pathlib.Path(f'{workdir}.calls')
attempt = len(calls.read_text().splitlines()) + 1 if calls.exists() else 1
with open(calls, 'a') as file:
  call = dict(pid=os.getpid(), cores=sorted(os.sched_getaffinity(0)), gpus=os.environ.get('CUDA_VISIBLE_DEVICES'),
              usr2_is_ignored=signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN, start=time.time())
  file.write(json.dumps(call) + chr(10))
if seed in plan['FAIL'] or (seed in plan['FAIL_ONCE'] and attempt == 1):
  sys.exit('error: no luck')
def end(number, frame):
  pathlib.Path(f'{workdir}.saved').write_text('')
  sys.exit(75)
signal.signal(signal.SIGTERM, end)
memory = b'x' * (plan['MEGABYTES'] << 20)
workdir.mkdir(parents=True, exist_ok=True)
(workdir / 'config.gin').write_text('experiment.environment_steps = 100')
protocol = dict(task='task', environment_steps=100, evaluation_episodes=1, cost_limit=[25.0], environment={})
record = dict(task='task', algorithm='fake', parts={}, seed=seed, protocol=protocol, config_hash='0', configuration=[],
              environment_steps=100, evaluate_every=100, versions=dict(mujoco=None), earlier=[], seconds=0.0,
              finished=None)
(workdir / 'run.json').write_text(json.dumps(record))
log = workdir / 'episode.jsonl'
begin = len(log.read_text().splitlines()) if log.exists() else 0
for episode in range(begin, 10):
  time.sleep(plan['SECONDS'] / 10)
  if episode == 5 and seed in plan['BREAK_ONCE'] and attempt == 1:
    raise RuntimeError('broken')
  with open(log, 'a') as file:
    file.write(json.dumps(dict(environment_steps=10 * episode + 10)) + chr(10))
(workdir / 'run.json').write_text(json.dumps(record | dict(finished=dict(time='now', environment_steps=100))))
"""


def make_runs(
  folder: pathlib.Path, seeds: int = 1, bindings: Sequence[str] = (), variants: Sequence[str] = ('lambda',)
) -> list[grid.Run]:
  """The grid of a task with variants, with the stand-in as its program."""
  program = folder / 'run.py'
  for path, content in (
    (program, _FAKE_RUN),
    (folder / 'gin' / 'tasks' / 'task.gin', ''),
    *((folder / 'gin' / 'parts' / f'{name}.gin', '') for name in variants),
  ):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
  return grid.make_grid(folder, ['task'], variants, range(seeds), [], bindings, folder / 'sweep', [str(program)])


def finish(run: grid.Run) -> None:
  """Writes the record of a finished run."""
  protocol = protocols.Protocol('task', 100, 1, (25.0,))
  what = identity.Identity('task', 'fake', {}, run.seed, protocol, '0', (), 100, 100)
  run_record.write(run.workdir, run_record.RunRecord(what, {'mujoco': None}).finish(100))


def calls(run: grid.Run) -> list[str]:
  """A line of JSON for each process that was started for a run."""
  path = pathlib.Path(f'{run.workdir}.calls')
  return path.read_text().splitlines() if path.exists() else []


def has_saved(run: grid.Run) -> bool:
  """Whether a run was asked to end, and did so properly."""
  return pathlib.Path(f'{run.workdir}.saved').exists()
