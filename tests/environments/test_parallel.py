"""Parallel environments, with real processes: the same numbers as in one process, and what happens when one fails."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import dm_env
import jax  # noqa: F401 (workers must not inherit it)
import numpy as np
import pytest

from lambda_kit import types
from lambda_kit.environments.processes import parallel
from tests.fakes import environments as fakes

SEED = 3


def _select(timestep: dm_env.TimeStep, index: int) -> dm_env.TimeStep:
  """The time step of one environment out of a batched one, by dm_env's rules (no reward in a first step)."""
  step_type = dm_env.StepType(timestep.step_type[index])
  observation = {name: values[index] for name, values in timestep.observation.items()}
  if step_type.first():
    return dm_env.TimeStep(step_type, None, None, observation)
  reward = types.CmdpReward(timestep.reward.reward[index], timestep.reward.cost[index])
  return dm_env.TimeStep(step_type, reward, timestep.discount[index], observation)


def _serial(num_environments: int, **kwargs) -> list[fakes.Walk]:
  return [fakes.Walk(parallel.environment_seed(SEED, index), **kwargs) for index in range(num_environments)]


def _actions(num_environments: int, steps: int) -> np.ndarray:
  return np.random.default_rng(0).uniform(-1, 1, (steps, num_environments, 2)).astype(np.float32)


def _assert_same(actual: dm_env.TimeStep, expected: dm_env.TimeStep) -> None:
  """Bit for bit, types included."""
  assert actual.step_type == expected.step_type
  assert actual.observation.keys() == expected.observation.keys()
  pairs = [(actual.observation[name], value) for name, value in expected.observation.items()]
  if expected.first():
    assert actual.reward is None and actual.discount is None
  else:
    pairs += [*zip(actual.reward, expected.reward), (actual.discount, expected.discount)]
  for value, reference in pairs:
    assert value.dtype == reference.dtype and value.shape == reference.shape
    assert value.tobytes() == reference.tobytes()


def _assert_rows_same(batched: dm_env.TimeStep, expected: dict[int, dm_env.TimeStep]) -> None:
  for index, timestep in expected.items():
    _assert_same(_select(batched, index), timestep)


def _is_alive(process_id: int) -> bool:
  try:
    with open(f'/proc/{process_id}/stat', encoding='utf-8') as file:
      return file.read().rsplit(')', 1)[1].split()[0] != 'Z'
  except FileNotFoundError:
    return False


def _wait_until_gone(process_ids: list[int], seconds: float = 10.0) -> bool:
  deadline = time.monotonic() + seconds
  while any(map(_is_alive, process_ids)):
    if time.monotonic() > deadline:
      return False
    time.sleep(0.01)
  return True


class TestSteps:
  @pytest.mark.parametrize('num_workers', [None, 2, 1])
  def test_steps_equal_those_of_serial_environments(self, num_workers):
    """Episodes of 3, 4, 5, 3, ... steps, with both kinds of ends, by dm_env's rule."""
    serial = _serial(3)
    with parallel.ParallelEnvironments(fakes.Walk, 3, SEED, num_workers) as environments:
      assert len(environments.process_ids) == (num_workers or 3)
      _assert_rows_same(environments.reset(), {i: serial[i].reset() for i in range(3)})
      ends = []
      for actions in _actions(3, steps=25):
        batched = environments.step(actions)
        _assert_rows_same(batched, {i: serial[i].step(actions[i]) for i in range(3)})
        ends += list(batched.discount[batched.last()])
        np.testing.assert_array_equal(environments.last_step_counts, np.where(batched.first(), 0, 2))
        np.testing.assert_array_equal(environments.episode_numbers, [env.next_episode for env in serial])
      assert len(ends) == 15 and set(ends) == {0, 1}

  def test_seeds_differ_and_do_not_depend_on_the_number_of_environments(self):
    seeds = [parallel.environment_seed(SEED, index) for index in range(100)]
    assert len(set(seeds)) == 100
    children = np.random.SeedSequence(SEED).spawn(2)
    assert seeds[:2] == [child.generate_state(1)[0] for child in children]

  def test_a_first_step_has_no_reward_and_goes_on(self):
    with parallel.ParallelEnvironments(fakes.Walk, 2, SEED) as environments:
      first = environments.step(np.zeros((2, 2)))  # As dm_env asks: a step before a reset is a reset.
      assert first.first().all() and not first.last().any()
      np.testing.assert_array_equal(first.reward.reward, [0, 0])
      np.testing.assert_array_equal(first.reward.cost, np.zeros((2, 3)))
      np.testing.assert_array_equal(first.discount, [1, 1])
      assert first.observation['image'].shape == (2, 4, 5, 3) and first.observation['image'].dtype == np.uint8

  @pytest.mark.parametrize('num_workers', [2, 1])
  def test_reset_done_keeps_the_last_observation_and_wastes_no_step(self, num_workers):
    """Every row of (timestep, action, next_timestep) is a transition of the serial environment."""
    serial = _serial(2)
    num_ends = 0
    with parallel.ParallelEnvironments(fakes.Walk, 2, SEED, num_workers) as environments:
      environments.episode_numbers = [0, 1]  # Ends at different times.
      serial[1].next_episode = 1
      timestep = environments.reset_done()  # Nothing has begun, so it begins everything.
      _assert_rows_same(timestep, {i: serial[i].reset() for i in range(2)})
      for actions in _actions(2, steps=20):
        next_timestep = environments.step(actions)
        expected = {i: serial[i].step(actions[i]) for i in range(2)}
        _assert_rows_same(next_timestep, expected)
        assert not next_timestep.first().any()
        # The walk adds its action: the true last position can't be that of the next episode.
        np.testing.assert_array_equal(
          next_timestep.observation['vector'][:, :2], timestep.observation['vector'][:, :2] + actions
        )
        timestep = environments.reset_done()
        for i in range(2):
          if expected[i].last():
            num_ends += 1
            expected[i] = serial[i].reset()
        _assert_rows_same(timestep, expected)
      assert num_ends == 9  # After 3, 7, 12, 15, 19 and 4, 9, 12, 16 steps.

  def test_returned_arrays_belong_to_the_caller(self):
    with parallel.ParallelEnvironments(fakes.Walk, 2, SEED) as environments:
      first = environments.reset()
      kept = first.observation['vector'].copy()
      environments.step(np.ones((2, 2)))
      np.testing.assert_array_equal(first.observation['vector'], kept)
      first.observation['vector'][:] = -1  # Writable, without harm.
      assert (environments.reset_done().observation['vector'] != -1).all()

  def test_the_action_spec_comes_from_the_workers(self):
    with parallel.ParallelEnvironments(fakes.Walk, 1, SEED) as environments:
      assert environments.action_spec() == fakes.Walk(0).action_spec()
      assert environments.num_environments == 1

  def test_episode_numbers_resume_a_run(self):
    serial = _serial(2)
    serial[0].next_episode, serial[1].next_episode = 7, 2
    with parallel.ParallelEnvironments(fakes.Walk, 2, SEED) as environments:
      environments.episode_numbers = np.array([7, 2])
      np.testing.assert_array_equal(environments.episode_numbers, [7, 2])
      _assert_rows_same(environments.reset(), {i: serial[i].reset() for i in range(2)})
      np.testing.assert_array_equal(environments.episode_numbers, [8, 3])
    np.testing.assert_array_equal(environments.episode_numbers, [8, 3])  # For a checkpoint after an interrupt.

  def test_workers_do_not_import_jax(self):
    with parallel.ParallelEnvironments(fakes.Modules, 1, SEED) as environments:
      environments.reset()
      assert environments.step(np.zeros((1, 2))).reward.reward == 0

  def test_bad_input_is_refused_before_anything_is_sent(self):
    for arguments in (
      dict(num_environments=0),
      dict(num_workers=0),
      dict(num_workers=2),
      dict(seed=-1),
      dict(step_timeout=0),
      dict(max_restarts=-1),
    ):
      with pytest.raises(ValueError, match=next(iter(arguments)) if 'step_timeout' not in arguments else 'Time-outs'):
        parallel.ParallelEnvironments(**dict(environment_factory=fakes.Walk, num_environments=1, seed=0) | arguments)
    (serial,) = _serial(1)
    with parallel.ParallelEnvironments(fakes.Walk, 1, SEED) as environments:
      environments.reset()
      for actions, message in [
        (np.zeros(2), 'shape'),
        (np.zeros((2, 2)), 'shape'),
        (np.full((1, 2), np.nan), 'finite'),
        (np.full((1, 2), 1e300), 'finite'),
        (np.zeros((1, 2), complex), 'type'),
      ]:
        with pytest.raises(ValueError, match=message):
          environments.step(actions)
      for numbers in ([0, 1], [-1], [0.5]):
        with pytest.raises(ValueError, match='episode_numbers'):
          environments.episode_numbers = numbers
      serial.reset()
      _assert_rows_same(environments.step(np.ones((1, 2))), {0: serial.step(np.ones(2, np.float32))})


class TestFailures:
  def _check_replacement(self, fail, caplog, **kwargs) -> str:
    """Environment 1 of 3 fails in its second step; checks it and the others, and returns what was logged."""
    serial = _serial(3)
    with parallel.ParallelEnvironments(fakes.Walk, 3, SEED, **kwargs) as environments:
      environments.reset()
      for environment in serial:
        environment.reset()
      actions = _actions(3, steps=12)
      environments.step(actions[0])
      for index in (0, 2):
        serial[index].step(actions[0, index])
      command = fail(environments)
      if command:
        actions[1, 1, 0] = command
      # Episode 0 of environment 1 is dropped, and its row begins episode 1.
      batched = environments.step(actions[1])
      _assert_rows_same(
        batched, {0: serial[0].step(actions[1, 0]), 1: serial[1].reset(), 2: serial[2].step(actions[1, 2])}
      )
      np.testing.assert_array_equal(environments.episode_numbers, [1, 2, 1])
      assert environments.num_restarts == 1
      for step_actions in actions[2:]:
        _assert_rows_same(environments.step(step_actions), {i: serial[i].step(step_actions[i]) for i in range(3)})
    (record,) = [record for record in caplog.records if record.levelname == 'WARNING']
    assert 'Environment 1 failed' in record.getMessage()
    return record.getMessage()

  def test_a_killed_worker_is_replaced(self, caplog):
    logged = self._check_replacement(lambda environments: os.kill(environments.process_ids[1], signal.SIGKILL), caplog)
    assert 'killed by SIGKILL' in logged

  def test_an_exception_is_logged_and_the_worker_replaced(self, caplog):
    logged = self._check_replacement(lambda _: fakes.RAISE, caplog)
    assert 'ArithmeticError: the walk has left the plane' in logged
    assert 'environments.py' in logged and 'in _fail' in logged

  def test_a_worker_is_replaced_with_all_its_environments(self, caplog):
    """Environments 0 and 1 live in one process, and 1 raises: both begin their next episodes, and 2 goes on."""
    serial = _serial(3)
    with parallel.ParallelEnvironments(fakes.Walk, 3, SEED, num_workers=2) as environments:
      environments.reset()
      for environment in serial:
        environment.reset()
      actions = _actions(3, steps=12)
      actions[0, 1, 0] = fakes.RAISE
      serial[0].next_episode = serial[1].next_episode = 1
      batched = environments.step(actions[0])
      _assert_rows_same(batched, {0: serial[0].reset(), 1: serial[1].reset(), 2: serial[2].step(actions[0, 2])})
      np.testing.assert_array_equal(environments.episode_numbers, [2, 2, 1])
      np.testing.assert_array_equal(environments.last_step_counts, [0, 0, 2])
      assert environments.num_restarts == 1
      for step_actions in actions[1:]:
        _assert_rows_same(environments.step(step_actions), {i: serial[i].step(step_actions[i]) for i in range(3)})
      environments.episode_numbers = [5, 6, 7]
      for environment, number in zip(serial, (5, 6, 7)):
        environment.next_episode = number
      _assert_rows_same(environments.reset(), {i: serial[i].reset() for i in range(3)})
    assert 'One of the environments 0 to 1 failed' in caplog.text

  def test_a_worker_that_exits_is_replaced(self, caplog):
    assert 'exited with status 7' in self._check_replacement(lambda _: fakes.EXIT, caplog)

  def test_a_crash_is_logged_with_its_traceback(self, caplog):
    logged = self._check_replacement(lambda _: fakes.CRASH, caplog)
    assert 'SIGABRT' in logged and 'in _fail' in logged

  def test_a_worker_that_hangs_is_killed_and_replaced(self, caplog):
    process_ids = []

    def hang(environments):
      process_ids.extend(environments.process_ids)
      return fakes.HANG

    begin = time.monotonic()
    logged = self._check_replacement(hang, caplog, step_timeout=1.0)
    assert 'did not answer in time' in logged and 'in _fail' in logged
    assert time.monotonic() - begin < 40
    assert not _is_alive(process_ids[1])

  def test_an_episode_that_can_not_begin_is_skipped(self, caplog):
    (serial,) = _serial(1)
    with parallel.ParallelEnvironments(fakes.BadReset, 1, SEED) as environments:
      environments.reset()
      serial.next_episode = 2
      _assert_rows_same(environments.reset(), {0: serial.reset()})
    assert 'no map of the second plane' in caplog.text

  def test_too_many_restarts_are_an_error_with_the_last_traceback(self, caplog):
    environments = parallel.ParallelEnvironments(fakes.Walk, 2, SEED, max_restarts=1)
    process_ids = environments.process_ids
    environments.reset()
    assert environments.step(np.array([[0, 0], [fakes.RAISE, 0]])).first().tolist() == [False, True]
    with pytest.raises(parallel.WorkerError, match='(?s)max_restarts=1.*the walk has left the plane'):
      environments.step(np.full((2, 2), fakes.RAISE))
    assert len(caplog.records) == 1  # Of the replacement: the error says the rest.
    assert _wait_until_gone(process_ids + environments.process_ids, seconds=0.1)
    with pytest.raises(RuntimeError, match='closed'):
      environments.reset()

  def test_an_environment_that_can_not_be_built_raises_at_once(self, caplog):
    begin = time.monotonic()
    with pytest.raises(parallel.WorkerError, match='(?s)Environment 0 could not be built.*LookupError: no plane for'):
      parallel.ParallelEnvironments(fakes.refuse, 2, SEED)
    assert time.monotonic() - begin < 30
    assert not caplog.records

  def test_an_environment_that_is_never_built_raises_after_the_time_out(self):
    with pytest.raises(parallel.WorkerError, match='(?s)did not answer in time.*in sleep_for_ever'):
      parallel.ParallelEnvironments(fakes.sleep_for_ever, 1, SEED, start_timeout=3.0)

  def test_a_step_that_breaks_its_spec_is_a_failure(self):
    with parallel.ParallelEnvironments(fakes.BadShape, 1, SEED, max_restarts=0) as environments:
      with pytest.raises(parallel.WorkerError, match=r'vector of shape \(3,\), but its spec has \(4,\)'):
        environments.reset()

  def test_environments_must_agree_on_their_specs(self):
    with pytest.raises(parallel.WorkerError, match='different specs'):
      parallel.ParallelEnvironments(fakes.SeedShape, 2, SEED)


class TestEnd:
  def test_close_leaves_nothing_behind(self):
    def open_files():
      gc.collect()
      return sorted(os.listdir('/proc/self/fd'))

    files, shared, threads = open_files(), os.listdir('/dev/shm'), threading.active_count()
    environments = parallel.ParallelEnvironments(fakes.Walk, 2, SEED)
    environments.reset()
    process_ids = environments.process_ids
    assert all(map(_is_alive, process_ids))
    environments.close()
    environments.close()
    assert not any(os.path.exists(f'/proc/{process_id}') for process_id in process_ids)  # Not even zombies.
    with pytest.raises(RuntimeError, match='closed'):
      environments.step(np.zeros((2, 2)))
    del environments
    assert (open_files(), os.listdir('/dev/shm'), threading.active_count()) == (files, shared, threads)

  def test_forgotten_environments_are_closed(self):
    environments = parallel.ParallelEnvironments(fakes.Walk, 2, SEED)
    process_ids = environments.process_ids
    del environments
    gc.collect()
    assert not any(map(_is_alive, process_ids))

  def test_an_environment_that_fails_to_close_is_reported(self, caplog):
    with parallel.ParallelEnvironments(fakes.BadClose, 1, SEED) as environments:
      environments.reset()
    assert 'the plane is stuck' in caplog.text

  def test_an_environment_that_never_closes_is_killed(self, caplog, monkeypatch):
    monkeypatch.setattr(parallel.process_lib, '_CLOSE_SECONDS', 0.5)
    with parallel.ParallelEnvironments(fakes.SlowClose, 1, SEED) as environments:
      process_ids = environments.process_ids
    assert not _is_alive(process_ids[0])
    assert 'did not close its environment in time' in caplog.text

  def test_an_interrupt_closes(self):
    """Half of a batched step may have been taken by then."""

    def interrupt(*unused):
      raise KeyboardInterrupt()

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
      with pytest.raises(KeyboardInterrupt):
        with parallel.ParallelEnvironments(fakes.Walk, 2, SEED) as environments:
          environments.reset()
          signal.setitimer(signal.ITIMER_REAL, 0.1)
          environments.step(np.array([[fakes.SPEND, 0], [0, 0]]))
    finally:
      signal.signal(signal.SIGALRM, previous)
    assert not any(map(_is_alive, environments.process_ids))
    np.testing.assert_array_equal(environments.episode_numbers, [1, 1])

  def _run_parent(self, program: str) -> tuple[subprocess.Popen, list[int]]:
    """Runs another parent, as a script that must not be imported by workers; returns it and its workers."""
    program = textwrap.dedent("""
        import sys, time
        import numpy as np
        from lambda_kit.environments.processes import parallel
        from tests.fakes import environments as fakes
        environments = parallel.ParallelEnvironments(fakes.Walk, 2, seed=0)
        environments.reset()
        print(*environments.process_ids, flush=True)
        """) + textwrap.dedent(program)
    process = subprocess.Popen(
      [sys.executable, '-c', program],
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
      env=os.environ | {'PYTHONPATH': os.pathsep.join(sys.path)},
    )
    return process, [int(word) for word in process.stdout.readline().split()]

  def test_workers_end_with_a_parent_that_was_killed(self):
    """Both the worker that waits and the one that hangs."""
    process, workers = self._run_parent(f'environments.step(np.array([[{fakes.HANG}, 0], [0, 0]]))')
    assert len(workers) == 2
    time.sleep(0.3)  # So that the step is under way.
    assert all(map(_is_alive, workers))
    process.kill()
    process.wait()  # Not `communicate`, which would wait for workers too: they share its output.
    gone = _wait_until_gone(workers)
    for worker in filter(_is_alive, workers):
      os.kill(worker, signal.SIGKILL)
    process.communicate()
    assert gone

  def test_nothing_is_left_or_said_when_the_interpreter_exits(self):
    process, workers = self._run_parent('')
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0 and not errors
    assert len(workers) == 2 and not any(map(_is_alive, workers))

  def test_control_c_shows_one_traceback(self):
    process, workers = self._run_parent('time.sleep(60)')
    for process_id in [process.pid, *workers]:
      os.kill(process_id, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert errors.count('Traceback') == 1 and errors.count('KeyboardInterrupt') == 1
    assert _wait_until_gone(workers)
