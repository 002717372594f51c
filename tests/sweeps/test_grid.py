"""Grids: names, layers, seeds, and grids that are none."""

import pathlib

import pytest

from lambda_kit.config import axes
from lambda_kit.sweeps import errors
from lambda_kit.sweeps import grid

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def _grid(tasks=('grid',), variants=('lambda',), seeds=(0,), gin_files=(), bindings=(), folder=pathlib.Path('/x')):
  return grid.make_grid(_ROOT, tasks, variants, seeds, gin_files, bindings, folder)


def test_a_run_is_the_plain_command_with_flags():
  (run,) = _grid(['pointgoal1'], ['greedy'], [3], ['gin/sizes/quick.gin'], ['WIDTH = 8'])
  assert run.command[1:] == [
    '-m',
    'lambda_kit',
    'run',
    '--task=gin/sg6_pointgoal1.gin',
    '--gin_file=gin/sizes/quick.gin',
    '--gin_file=gin/parts/greedy.gin',
    '--gin_bindings=WIDTH = 8',
    '--seed=3',
    '--workdir=/x/sg6_pointgoal1/greedy/seed3',
  ]


def test_sg6_is_the_six_tasks_of_the_paper():
  runs = _grid(['sg6'], ['lambda', 'ppo_lagrangian+observe_vector'], range(5))
  assert len(runs) == 6 * 2 * 5 and len({run.workdir for run in runs}) == 60
  assert all((_ROOT / name).is_file() for run in runs for name in run.gin_files)
  assert not any('observable' in run.task for run in runs)
  assert [run.seed for run in runs[:5]] == list(range(5))  # Seeds of an experiment follow each other.
  assert runs[5].gin_files[1:] == ('gin/agents/ppo_lagrangian.gin', 'gin/parts/observe_vector.gin')
  assert runs[5].variant == 'ppo_lagrangian+observe_vector'


def test_tasks_have_short_names_and_files_have_none():
  assert [run.task for run in _grid(['PointGoal1', 'observable_pointpush1', 'grid', 'mine/room.gin'])] == [
    'sg6_pointgoal1',
    'sg6_observable_pointpush1',
    'grid',
    'room',
  ]
  (run,) = _grid([], ['mine/other.gin'], gin_files=['gin/tasks/grid.gin', 'gin/sizes/grid_short.gin'])
  assert run.configuration == ('grid', 'other')
  assert run.gin_files == ('gin/tasks/grid.gin', 'gin/sizes/grid_short.gin', 'mine/other.gin')


def test_what_is_named_twice_runs_once():
  assert len(_grid(['grid', 'grid'], ['lambda', 'lambda'], [1, 1])) == 1


@pytest.mark.parametrize('text,seeds', [('3', [0, 1, 2]), ('0,3,7', [0, 3, 7]), ('7,', [7]), ('0', []), ('', [])])
def test_seeds_are_a_number_or_a_list(text, seeds):
  assert grid.parse_seeds(text) == seeds


@pytest.mark.parametrize('text', ['five', '-1', '1,x', '1.5'])
def test_other_seeds_are_refused(text):
  with pytest.raises(errors.SweepError, match=f'--seeds={text} is neither'):
    grid.parse_seeds(text)


@pytest.mark.parametrize(
  'arguments,message',
  [
    (dict(seeds=[]), 'The grid has no runs: it has no seed. Name at least one with --seeds'),
    (dict(variants=[]), 'it has no variant'),
    (dict(tasks=[]), 'No experiment was named: give --tasks=sg6'),
    (dict(tasks=['pointgaol1']), "There is no task 'pointgaol1'. Did you mean pointgoal1"),
    (dict(variants=['gredy']), "There is no agent or part or .* 'gredy'. Did you mean greedy"),
    (dict(variants=['ppo+obsrve_vector']), "'obsrve_vector'. Did you mean observe_vector"),
    (dict(tasks=['a/room.gin', 'b/room.gin']), 'share the workdir /x/room/lambda/seed0.*a/room.gin and b/room.gin'),
  ],
)
def test_bad_grids_are_explained(arguments, message):
  with pytest.raises((errors.SweepError, axes.ConfigurationError), match=message):
    _grid(**arguments)
