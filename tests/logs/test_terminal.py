"""Tests of the terminal view: what reaches a file, and what reaches a terminal."""

import io
import logging as python_logging
import re
import sys
import threading
import timeit

from absl import logging
import pytest

from lambda_kit.logs import terminal


class _FakeTerminal(io.StringIO):
  def isatty(self) -> bool:
    return True


class _Clock:
  def __init__(self):
    self.now = 100.0

  def __call__(self) -> float:
    return self.now


def _episode(steps: int, episode_return: float = 1.0, cost_return=(10.0,), **others):
  return {
    'environment_steps': steps,
    'episode': steps // 1000,
    'episode_return': episode_return,
    'cost_return': list(cost_return),
    'cost_regret': 0.01,
    'length': 500,
    'steps_per_second': 7.0,
    **others,
  }


def _evaluation(steps: int, episode_return: float = 1.0, cost_return=(10.0,)):
  return {'environment_steps': steps, 'episode_return': episode_return, 'cost_return': list(cost_return)}


_HELD_OUT = {
  'environment_steps': 1000,
  'posterior_scale': 3.0,
  'held_out_raw_forecast/0': 1.0,
  'held_out_forecast/0': 1.0,
  'held_out_cost/0': 2.0,
  'held_out_bound/0': 1.5,
  'held_out_covered/0': 0.9,
  'budget_share/0': 0.8,
  'held_out_raw_forecast/1': 1.6,
  'held_out_forecast/1': 2.0,
  'held_out_cost/1': 1.0,
  'held_out_bound/1': 2.5,
  'held_out_covered/1': 1.0,
  'budget_share/1': 1.0,
}


class TestPlain:
  def _make(self, cost_limit=25.0, **kwargs):
    stream, clock = io.StringIO(), _Clock()
    logger = terminal.TerminalLogger(10_000, cost_limit, 'PointGoal1 [seed 0]', stream, clock=clock, **kwargs)
    return logger, stream, clock

  def test_lines_tell_progress_returns_and_costs_against_limits(self):
    logger, stream, clock = self._make(interval=0.0)
    logger.write('episode', _episode(1000, 4.0, [20.0]))
    clock.now += 10.0
    logger.write('episode', _episode(2000, 6.0, [40.0]))
    clock.now += 10.0
    logger.write('learner', {'environment_steps': 3000, 'loss': 1.0})
    clock.now += 10.0
    logger.write('evaluation', _evaluation(4000, 5.5, [24.0]))
    # Speed is known from the second report on: 1,000 steps in 10 s.
    assert stream.getvalue().splitlines() == [
      'PointGoal1 [seed 0]: 10,000 environment steps, cost limit 25',
      ' 10.0% | step 1,000 of 10,000 | episode 1: return 4.00 (mean 4.00), cost return 20.0 <= 25 (mean 20.0), '
      'cost regret 0.0100',
      ' 20.0% | step 2,000 of 10,000 | episode 2: return 6.00 (mean 5.00), cost return 40.0 > 25 (mean 30.0), '
      'cost regret 0.0100',
      ' 40.0% | step 4,000 of 10,000 | evaluation: return 5.50, cost return 24.0 <= 25 | 100 steps/s, 0:01:00 left',
    ]

  def test_evaluations_are_followed_by_the_calibration_of_new_episodes(self):
    logger, stream, _ = self._make(cost_limit=[25.0, 5.0], constraint_names=('hazards', 'vases'))
    logger.write('learner', {'environment_steps': 900, 'budget_share/0': 1.0})
    logger.write('evaluation', _evaluation(900, 1.0, [10.0, 6.0]))
    assert 'new episodes' not in stream.getvalue()
    logger.write('learner', _HELD_OUT)
    logger.write('episode', _episode(1000, 1.0, [10.0, 6.0]))
    assert 'new episodes' not in stream.getvalue()
    logger.write('evaluation', _evaluation(1000, 1.0, [10.0, 6.0]))
    assert stream.getvalue().splitlines()[-2:] == [
      'new episodes, hazards: forecast / observed 0.5, bound / observed 0.75, covered by the bound 0.9, correction 1, '
      'posterior scale 3, budget share 0.8',
      'new episodes, vases: forecast / observed 2, bound / observed 2.5, covered by the bound 1, correction 1.25, '
      'posterior scale 3, budget share 1',
    ]

  def test_episodes_are_limited_in_time_and_evaluations_are_not(self):
    logger, stream, clock = self._make(interval=10.0)
    for second in range(21):  # Lines at 0, 10 and 20 s.
      logger.write('episode', _episode(second * 100))
      clock.now += 1.0
    for _ in range(3):
      logger.write('evaluation', _evaluation(2000))
    lines = stream.getvalue().splitlines()
    steps = [re.search('step ([0-9,]+)', line).group(1) for line in lines if 'episode' in line]
    assert steps == ['0', '1,000', '2,000']
    assert sum('evaluation' in line for line in lines) == 3

  def test_evaluations_whose_episodes_failed_say_so(self):
    logger, stream, _ = self._make()
    logger.write('evaluation', {**_evaluation(1000), 'failed_episodes': 2})
    logger.write('evaluation', {**_evaluation(2000, None, [None]), 'failed_episodes': 10})
    some, none = stream.getvalue().splitlines()[-2:]
    assert 'return 1.00, cost return 10.0' in some and '2 episodes failed' in some
    assert 'evaluation: no score, since all 10 episodes failed' in none and 'nan' not in none

  def test_close_prints_the_last_episode_once(self):
    logger, stream, _ = self._make()
    for steps in (1000, 2000, 3000):
      logger.write('episode', _episode(steps))
    logger.close()
    logger.close()
    episodes = [line for line in stream.getvalue().splitlines() if 'episode' in line]
    assert ['step 1,000' in episodes[0], 'step 3,000' in episodes[1], len(episodes)] == [True, True, 2]

  def test_several_constraints_have_their_own_limits_and_names(self):
    logger, stream, _ = self._make(cost_limit=[25.0, 5.0], constraint_names=('hazards', 'vases'))
    logger.write('evaluation', _evaluation(1000, 1.0, [10.0, 6.0]))
    assert 'cost return, hazards 10.0 <= 25, cost return, vases 6.0 > 5' in stream.getvalue()

  def test_mean_is_of_the_last_ten(self):
    logger, stream, _ = self._make(interval=0.0)
    for number in range(1, 13):
      logger.write('episode', _episode(number * 100, float(number)))
    assert 'return 12.00 (mean 7.50)' in stream.getvalue().splitlines()[-1]  # Mean of 3, ..., 12.

  def test_a_resumed_run_does_not_count_earlier_steps_as_speed(self):
    logger, stream, clock = self._make(interval=0.0)
    logger.progress(8000)
    clock.now += 1.0
    logger.progress(8010)
    clock.now += 9.0
    logger.write('episode', _episode(8100))  # 90 steps in 9 s.
    assert ' 81.0%' in stream.getvalue() and '| 10 steps/s, 0:03:10 left' in stream.getvalue()

  def test_no_escape_codes_even_if_colours_are_forced(self, monkeypatch):
    monkeypatch.setenv('FORCE_COLOR', '1')
    logger, stream, _ = self._make()
    stdout = sys.stdout
    logger.write('episode', _episode(1000))
    logger.progress(1500)
    logger.write('evaluation', _evaluation(1000))
    logger.close()
    assert '\x1b' not in stream.getvalue() and stream.getvalue().isascii()
    assert stream.getvalue().count('\n') == 3
    assert sys.stdout is stdout

  def test_a_reader_that_left_does_not_end_the_run(self, monkeypatch):
    class Broken(io.StringIO):
      def write(self, _):
        raise BrokenPipeError(32, 'Broken pipe')

    warnings = []
    monkeypatch.setattr(logging, 'warning', lambda message, *args: warnings.append(message % args))
    logger = terminal.TerminalLogger(10, 25.0, 'run', Broken())
    logger.write('evaluation', _evaluation(1))
    logger.close()
    assert warnings == ['Progress is no longer shown: [Errno 32] Broken pipe']

  def test_progress_is_cheap(self):
    logger, _, _ = self._make()
    count = 1000
    assert min(timeit.repeat(lambda: logger.progress(5), number=count, repeat=5)) / count < 20e-6


def _take_terminal(monkeypatch) -> _FakeTerminal:
  """Makes a terminal of 100 columns the standard output and error. Not a fixture: pytest sets them after those."""
  monkeypatch.setenv('TERM', 'xterm-256color')
  monkeypatch.setenv('COLUMNS', '100')
  for name in ('NO_COLOR', 'FORCE_COLOR', 'TTY_COMPATIBLE', 'TTY_INTERACTIVE', 'COLORTERM'):
    monkeypatch.delenv(name, raising=False)
  screen = _FakeTerminal()
  monkeypatch.setattr(sys, 'stdout', screen)
  monkeypatch.setattr(sys, 'stderr', screen)
  return screen


def _without_codes(output: str) -> str:
  return re.sub('\x1b\\[[0-9;?]*[a-zA-Z]', '', output)


def _colors(output: str) -> dict[str, str]:
  """Numbers drawn in bold green or red in the last view."""
  last_view = output[output.rindex('╭') :]
  return {
    number: {'2': 'green', '1': 'red'}[code] for code, number in re.findall('\x1b\\[1;3([12])m *([0-9.]+)', last_view)
  }


class TestLive:
  def test_shows_progress_costs_in_colours_and_the_evaluation(self, monkeypatch):
    screen = _take_terminal(monkeypatch)
    clock = _Clock()
    logger = terminal.TerminalLogger(10_000, 25.0, 'PointGoal1 [seed 0]', clock=clock)
    try:
      assert 'No episode has ended yet.' in screen.getvalue()
      logger.progress(0)
      clock.now += 10.0
      logger.write('episode', _episode(1000, 4.0, [20.0]))
      clock.now += 10.0
      logger.write('episode', _episode(2000, 6.0, [40.0]))
      logger.write('evaluation', _evaluation(2000, 5.5, [26.0]))
    finally:
      logger.close()
    output = screen.getvalue()
    last_view = _without_codes(output)[_without_codes(output).rindex('PointGoal1 [seed 0]') :]
    for pattern in (
      '20.0%',
      '0:00:20 elapsed 0:01:20 left',
      '2,000 of 10,000 environment steps  100 steps/s',
      'last episode +mean of last 2 +evaluation at 2,000 +limit',
      'return +6.00 +5.00 +5.50',
      'cost return +40.0 +30.0 +26.0 +25',
      'cost regret +0.0100',
    ):
      assert re.search(pattern, last_view), pattern
    assert _colors(output) == {'40.0': 'red', '30.0': 'red', '26.0': 'red'}

  def test_shows_the_calibration_of_new_episodes(self, monkeypatch):
    screen = _take_terminal(monkeypatch)
    logger = terminal.TerminalLogger(10_000, 25.0, 'run')
    logger.write('episode', _episode(1000))
    logger.write('learner', _HELD_OUT)
    logger.close()
    output = _without_codes(screen.getvalue())
    assert 'new episodes: forecast / observed 0.5, bound / observed 0.75' in output[output.rindex('╭') :]

  def test_a_cost_under_its_limit_is_green(self, monkeypatch):
    screen = _take_terminal(monkeypatch)
    logger = terminal.TerminalLogger(10_000, [25.0, 5.0], 'run', constraint_names=('hazards', 'vases'))
    logger.write('evaluation', _evaluation(2000, 5.5, [24.0, 6.0]))
    logger.close()
    assert _colors(screen.getvalue()) == {'24.0': 'green', '6.0': 'red'}
    assert 'cost return, vases' in screen.getvalue()

  def test_the_bar_moves_within_an_episode(self, monkeypatch):
    screen = _take_terminal(monkeypatch)
    clock = _Clock()
    logger = terminal.TerminalLogger(10_000, 25.0, 'run', clock=clock)
    for steps in range(0, 600, 100):
      logger.progress(steps)
      clock.now += 1.0
    logger.close()
    assert '5.0%' in screen.getvalue() and '500 of 10,000' in screen.getvalue()

  @pytest.mark.parametrize('error', [None, KeyboardInterrupt, RuntimeError])
  def test_close_gives_the_terminal_back(self, monkeypatch, error):
    screen = _take_terminal(monkeypatch)
    threads = set(threading.enumerate())
    handler = logging.get_absl_handler().python_handler
    old_stream = handler.setStream(screen)
    try:
      logger = terminal.TerminalLogger(10_000, 25.0, 'run')
      try:
        assert screen not in (sys.stdout, sys.stderr, handler.stream)
        if error:
          raise error
      except (KeyboardInterrupt, RuntimeError):
        pass
      finally:
        logger.close()
        logger.close()
      assert sys.stdout is screen and sys.stderr is screen and handler.stream is screen
    finally:
      handler.setStream(old_stream)
    hidden, shown = '\x1b[?25l', '\x1b[?25h'
    assert screen.getvalue().count(hidden) == screen.getvalue().count(shown) == 1
    assert screen.getvalue().index(hidden) < screen.getvalue().index(shown)
    for thread in set(threading.enumerate()) - threads:
      thread.join(timeout=5.0)
      assert not thread.is_alive()

  def test_prints_and_logs_appear_above_the_view(self, monkeypatch):
    screen = _take_terminal(monkeypatch)
    root, handler = python_logging.getLogger(), logging.get_absl_handler()
    old_stream = handler.python_handler.setStream(screen)
    monkeypatch.setattr(root, 'handlers', [handler])  # As `absl.app.run` leaves it.
    try:
      logger = terminal.TerminalLogger(10_000, 25.0, 'run')
      start = len(screen.getvalue())
      print('printed [bold]text[/]')
      logging.warning('logged text')
      shown = screen.getvalue()[start:]
      logger.close()
    finally:
      handler.python_handler.setStream(old_stream)
    # Each message first erases the view (ESC[2K line by line), and is followed by a new drawing of it.
    for message in ('printed [bold]text[/]', 'logged text'):
      assert '╭' in _without_codes(shown).split(message)[1]
    assert shown.index('\x1b[2K') < shown.index('printed')

  def test_output_that_goes_to_a_file_stays_there(self, monkeypatch):
    screen = _take_terminal(monkeypatch)
    file = io.StringIO()
    monkeypatch.setattr(sys, 'stdout', file)
    logger = terminal.TerminalLogger(10_000, 25.0, 'run', stream=screen)
    print('a result')
    logger.close()
    assert file.getvalue() == 'a result\n' and 'a result' not in screen.getvalue()

  def test_a_dumb_terminal_gets_lines(self, monkeypatch):
    screen = _take_terminal(monkeypatch)
    monkeypatch.setenv('TERM', 'dumb')
    logger = terminal.TerminalLogger(10_000, 25.0, 'run')
    logger.write('evaluation', _evaluation(1000))
    logger.close()
    assert '\x1b' not in screen.getvalue() and screen.getvalue().count('\n') == 2
