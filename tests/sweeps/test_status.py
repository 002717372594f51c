"""The table of a sweep, and what is told where there is no terminal."""

import io

from rich import console as rich_console

from lambda_kit.sweeps import interfaces
from lambda_kit.sweeps import status as status_lib
from lambda_kit.sweeps import supervision
from tests.fakes import sweeps as fakes

State = interfaces.State


def _statuses(tmp_path):
  runs = fakes.make_runs(tmp_path, 2, variants=['lambda', 'greedy'])
  runs[1].workdir.mkdir(parents=True)
  (runs[1].workdir / 'episode.jsonl').write_text('{"environment_steps": 1500}\n')
  return [
    supervision.RunStatus(runs[0], State.DONE),
    supervision.RunStatus(runs[1], State.RUNNING),
    supervision.RunStatus(runs[2], State.FAILED, 3, 'error: [no] luck'),
    supervision.RunStatus(runs[3], State.QUEUED, 1, 'killed by SIGKILL'),
  ]


def _lines(statuses):
  output = io.StringIO()
  rich_console.Console(file=output, width=150).print(status_lib.status_table(statuses))
  return [' '.join(line.split()) for line in output.getvalue().splitlines() if line.strip()]


def test_the_table_has_states_steps_and_last_errors(tmp_path):
  lines = _lines(_statuses(tmp_path))
  assert lines[0] == 'task variant queued running done failed notes'
  assert 'task lambda 1 1 seed 1: step 1,500' in lines
  assert 'task greedy 1 1 seed 0: error: [no] luck' in lines and 'seed 1 (attempt 2): killed by SIGKILL' in lines
  assert lines[-1] == '4 runs 1 1 1 1'


def test_a_pipe_gets_a_line_for_each_change_and_the_table_at_the_end(tmp_path):
  statuses, stream = _statuses(tmp_path), io.StringIO()
  with status_lib.StatusView(statuses, stream) as view:
    for status in statuses:
      view.tell(status)
  lines = stream.getvalue().splitlines()
  assert lines[0] == '4 runs, 1 of them already done.'
  assert [line.split(' ', 1)[1] for line in lines[1:5]] == [
    'task/lambda/seed0: done',
    'task/lambda/seed1: running',
    'task/greedy/seed0: failed: error: [no] luck',
    'task/greedy/seed1: queued (attempt 1 failed): killed by SIGKILL',
  ]
  assert lines[-2].split() == ['4', 'runs', '1', '1', '1', '1']


def test_a_terminal_gets_a_live_table(tmp_path):
  class Terminal(io.StringIO):
    def isatty(self):
      return True

  stream = Terminal()
  with status_lib.StatusView(_statuses(tmp_path), stream) as view:
    view.tell(_statuses(tmp_path / 'other')[0])  # The table says it.
  assert 'greedy' in stream.getvalue() and 'already done' not in stream.getvalue()
