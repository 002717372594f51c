"""The grid of gin files: names, axes, order, and every combination of two."""

import itertools
import pathlib
import random
import re

import pytest

import gin
from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit.config import axes
from lambda_kit.config import configuration
from lambda_kit.config import gin_text

_ROOT = str(pathlib.Path(__file__).resolve().parents[2])
_FILES = axes.Library([_ROOT]).files()
_TASKS = [file.name for file in _FILES if file.axis is axes.Axis.TASK]
_OTHERS = [file.name for file in _FILES if file.axis is not axes.Axis.TASK]
_PAIRED = ['gin/sg6_pointgoal1.gin', 'gin/tasks/grid.gin']  # With which all pairs of other files are tried.


@pytest.fixture(autouse=True)
def _clear():
  yield
  gin.clear_config()


def _resolve(files):
  """The configuration, or the sentence that refuses it."""
  flags = ["TASK = 'SafetyCarGoal2-v0'"] if any(name.endswith('gymnasium.gin') for name in files) else []
  if 'gin/sizes/narrow.gin' in files and not any('/agents/' in name and 'lambda' not in name for name in files):
    flags.append('WIDTH = 8')  # The one size that has to be told.
  if 'gin/parts/start_offline.gin' in files and not any('/agents/' in name and 'lambda' not in name for name in files):
    flags.append("OFFLINE_DATA = 'data'")
  try:
    configuration.parse(files, flags, [_ROOT])
  except configuration.ConfigurationError as error:
    return str(error)
  return configuration.resolved_config()


def _arrange(files):
  try:
    return axes.Library([_ROOT]).arrange(files)
  except axes.ConfigurationError as error:
    return str(error)


def _walk(combinations, parse_both):
  """Tries combinations in two orders. Returns how many are accepted.

  What is read is a function of the arrangement, so only every `parse_both`-th is read in both orders.
  """
  accepted = 0
  for number, files in enumerate(combinations):
    backwards = list(reversed(files))
    assert _arrange(files) == _arrange(backwards), files
    outcome = _resolve(files)
    if number % parse_both == 0:
      assert outcome == _resolve(backwards), files
    if outcome.startswith(axes.SAVED):
      accepted += 1
    for line in [] if outcome.startswith(axes.SAVED) else outcome.splitlines():
      assert len(set(re.findall(r'gin/\w+(?:/\w+)?\.gin', line))) >= 2, line  # Which two can't meet.
  return accepted


@pytest.mark.parametrize('task', _TASKS)
@pytest.mark.parametrize('parse_both', [10, pytest.param(1, marks=pytest.mark.slow)])
def test_every_task_with_every_file(task, parse_both):
  combinations = [[task, other] for other in _OTHERS]
  accepted = _walk(combinations, parse_both)
  unfit = {
    'gin/tasks/grid.gin': 7 + 3,
    'gin/tasks/grid_images.gin': 7 + 3,
    'gin/tasks/gymnasium.gin': 5 + 3,
    'gin/tasks/velocity_half_cheetah.gin': 5 + 3,
  }  # Sizes, and what Safety-Gymnasium observes.
  # The cautious driver and the known cost.
  for_point = {'gin/sg6_pointgoal1.gin': 0, 'gin/sg6_pointgoal2.gin': 1, 'gin/tasks/safety_gymnasium.gin': 1}
  assert accepted == len(_OTHERS) - unfit.get(task, 4) - for_point.get(task, 2)


@pytest.mark.parametrize('task', _PAIRED)
def test_a_sample_of_pairs_of_files_on_a_task(task):
  combinations = [[task, *pair] for pair in itertools.combinations(_OTHERS, 2)][::7]
  assert 0 < _walk(combinations, parse_both=8) < len(combinations)


@pytest.mark.slow
@pytest.mark.parametrize('task, expected', zip(_PAIRED, (742, 469)))
def test_every_pair_of_files_on_a_task(task, expected):
  combinations = [[task, *pair] for pair in itertools.combinations(_OTHERS, 2)]
  assert len(combinations) == 1176
  assert _walk(combinations, parse_both=8) == expected


@pytest.mark.parametrize('count, least, most', [(60, 10, 50), pytest.param(300, 50, 250, marks=pytest.mark.slow)])
def test_a_sample_of_triples(count, least, most):
  generator = random.Random(0)
  combinations = [[generator.choice(_TASKS), *generator.sample(_OTHERS, 3)] for _ in range(count)]
  assert least < _walk(combinations, parse_both=4) < most


def test_orders_of_many_files_lead_to_one_configuration():
  files = [
    'gin/sg6_pointgoal1.gin',
    'gin/sizes/quick.gin',
    'gin/parts/posterior_ensemble.gin',
    'gin/parts/unsafe.gin',
    'gin/run/isolated.gin',
  ]
  assert len({_resolve(order) for order in itertools.permutations(files)}) == 1


@pytest.mark.parametrize(
  'files, message',
  [
    (
      ['gin/sg6_pointgoal1.gin', 'gin/tasks/grid.gin'],
      'gin/sg6_pointgoal1.gin and gin/tasks/grid.gin are both tasks: choose one.',
    ),
    (
      ['gin/tasks/grid.gin', 'gin/sizes/grid.gin', 'gin/sizes/grid_short.gin'],
      'gin/sizes/grid.gin and gin/sizes/grid_short.gin are both sizes: choose one.',
    ),
    (
      ['gin/tasks/grid.gin', 'gin/parts/unsafe.gin', 'gin/parts/solver_pid.gin'],
      "gin/parts/solver_pid.gin and gin/parts/unsafe.gin can't meet: they set LambdaAgent.solver to @PidLagrangian() "
      'and to @Unconstrained(). Choose one.',
    ),
    (
      ['gin/tasks/grid.gin', 'gin/agents/ppo.gin', 'gin/parts/posterior_ensemble.gin'],
      'gin/parts/posterior_ensemble.gin has no effect with gin/agents/ppo.gin: nothing refers to LambdaAgent.',
    ),
    (
      ['gin/tasks/grid.gin', 'gin/parts/observe_vector.gin'],
      'gin/parts/observe_vector.gin has no effect with gin/tasks/grid.gin: nothing refers to SafetyGymnasium.',
    ),
    (
      ['gin/tasks/grid.gin', 'gin/sizes/image_small.gin'],
      'gin/sizes/image_small.gin does not fit gin/tasks/grid.gin: it is for gin/sg6_*.gin gin/tasks/safety_*.gin.',
    ),
    (
      ['gin/sg6_cargoal1.gin', 'gin/parts/planner_cem.gin', 'gin/parts/unsafe.gin'],
      'gin/parts/planner_cem.gin does not fit gin/parts/unsafe.gin: it is for gin/parts/posterior_*.gin '
      'gin/parts/width_*.gin gin/parts/model_*.gin gin/parts/observe_*.gin.',
    ),
    (
      ['gin/parts/greedy.gin'],
      'gin/parts/greedy.gin needs a task, and none was named: give --task=pointgoal1 or another of --list, or a gin '
      'file of your own.',
    ),
  ],
)
def test_what_can_not_meet_is_told_in_one_sentence(files, message):
  assert _resolve(files) == message


@pytest.mark.parametrize(
  'files, expected',
  [
    (
      'sg6_pointgoal1',
      {
        'make_environment.action_repeat': 2,
        'LambdaAgent.discount': 0.99,
        'AugmentedLagrangian.initial_penalty_factor': 5e-9,
      },
    ),
    ('sg6_pointgoal1 agents/ppo parts/observe_vector', {'make_environment.action_repeat': 1, 'Ppo.batch_size': 4096}),
    (
      'sg6_pointgoal1 sizes/quick',
      {
        'make_environment.action_repeat': 4,
        'experiment.environment_steps': 40_000,
        'Swag.learning_rate': 3e-4,
        'PidLagrangian.kp': 0.01,
        'LambdaAgent.constrain_recent': True,
      },
    ),
    ('sg6_doggogoal1 sizes/quick', {'make_environment.action_repeat': 2}),
    ('sg6_pointgoal1 parts/posterior_ensemble', {'Ensemble.learning_rate': 1e-4}),
    (
      'sg6_pointgoal1 sizes/vector_small parts/posterior_ensemble',
      {'Ensemble.learning_rate': 5e-4, 'Ensemble.num_members': 3, 'LambdaAgent.num_samples': 2},
    ),
    ('sg6_pointgoal1 sizes/vector_small parts/solver_primal_dual', {'PrimalDual.initial_multiplier': 1e-3}),
    ('sg6_pointgoal1 sizes/image_small', {'PidLagrangian.ki': 1e-5, 'RecurrentWorldModel.decoded_steps': 8}),
    (
      'tasks/grid',
      {
        'experiment.environment_steps': 20_000,
        'experiment.cost_limit': 5.0,
        'AugmentedLagrangian.initial_multiplier': 0.15,
      },
    ),
    ('tasks/grid parts/posterior_variational', {'Variational.learning_rate': 2e-3, 'Variational.kl_scale': 1e-5}),
    ('tasks/grid parts/posterior_point', {'Point.learning_rate': 5e-4, 'LambdaAgent.num_samples': 1}),
    ('tasks/grid parts/solver_pid', {'PidLagrangian.kp': 0.05, 'PidLagrangian.ki': 1e-4}),
    (
      'tasks/grid sizes/grid_short parts/planner_cem',
      {'experiment.environment_steps': 4_000, 'CemPlanner.discount': 0.95, 'CemPlanner.population': 64},
    ),
    ('tasks/grid_images parts/posterior_ensemble', {'Ensemble.learning_rate': 3e-3}),
    ('tasks/grid_images parts/solver_pid', {'PidLagrangian.ki': 6e-5, 'experiment.environment_steps': 24_000}),
  ],
)
def test_numbers_that_results_were_measured_with(files, expected):
  bindings = gin_text.read_bindings(_resolve([f'gin/{name}.gin' for name in files.split()]))
  assert {key: gin_text.get(bindings, key) for key in expected} == expected


class TestOwnFiles:
  """Files of a user: layers, tasks in the task's place, and includes that name files of the grid."""

  def _write(self, folder, **texts):
    for name, text in texts.items():
      (folder / f'{name}.gin').write_text(text)
    return {name: str(folder / f'{name}.gin') for name in texts}

  def test_they_come_after_the_grid_in_the_order_given(self, tmp_path):
    names = self._write(tmp_path, a='WIDTH = 1', b='WIDTH = 2')
    for order, width in (((names['a'], names['b']), 2), ((names['b'], names['a']), 1)):
      configuration.parse([*order, 'gin/tasks/grid.gin'], search_paths=[_ROOT])
      assert gin.query_parameter('%WIDTH') == width

  def test_an_include_of_the_grid_names_a_file_that_flags_may_replace(self, tmp_path):
    names = self._write(
      tmp_path,
      mine="include 'gin/sg6_pointgoal1.gin'\ninclude 'gin/sizes/vector_small.gin'\n"
      "include 'gin/parts/greedy.gin'\nWIDTH = 4",
    )
    arranged = axes.Library([_ROOT]).arrange([names['mine']])
    assert [file.name for file in arranged] == [
      'gin/sg6_pointgoal1.gin',
      'gin/sizes/vector_small.gin',
      'gin/agents/lambda.gin',
      'gin/parts/greedy.gin',
      names['mine'],
    ]
    arranged = axes.Library([_ROOT]).arrange([names['mine'], 'gin/sizes/quick.gin', 'gin/parts/greedy.gin'])
    assert [file.name for file in arranged][1] == 'gin/sizes/quick.gin' and len(arranged) == 5
    configuration.parse([names['mine']], search_paths=[_ROOT])
    assert gin.query_parameter('%WIDTH') == 4 and gin.query_parameter('%ENVIRONMENT_STEPS') == 100_000

  def test_a_task_of_ones_own_has_the_tasks_place(self, tmp_path):
    names = self._write(tmp_path, room="include 'gin/tasks/gymnasium.gin'\nTASK = 'Room-v0'\nENVIRONMENT_STEPS = 7")
    configuration.parse(['gin/sizes/quick.gin'], search_paths=[_ROOT], task=names['room'])
    assert gin.query_parameter('%ENVIRONMENT_STEPS') == 40_000 and gin.query_parameter('%TASK') == 'Room-v0'
    configuration.parse([], search_paths=[_ROOT], task=names['room'])
    assert gin.query_parameter('%ENVIRONMENT_STEPS') == 7
    with pytest.raises(configuration.ConfigurationError, match='gin/sizes/quick.gin needs a task'):
      configuration.parse(
        [self._write(tmp_path, layer='WIDTH = 3')['layer'], 'gin/sizes/quick.gin'], search_paths=[_ROOT]
      )

  def test_what_a_size_sets_in_vain_is_listed_and_what_a_flag_sets_in_vain_is_refused(self):
    configuration.parse(['gin/tasks/grid.gin'], search_paths=[_ROOT])
    assert 'Ensemble.num_members = 3 (gin/base/short.gin:4)' in configuration.unused_bindings()
    assert '# Ensemble.num_members = 3 (gin/base/short.gin:4)' in configuration.resolved_config()
    with pytest.raises(configuration.ConfigurationError, match='Ensemble.num_members configures nothing'):
      configuration.parse(['gin/tasks/grid.gin'], ['Ensemble.num_members = 4'], [_ROOT])

  def test_a_saved_configuration_is_whole(self, tmp_path):
    configuration.parse(['gin/tasks/grid.gin', 'gin/parts/unsafe.gin'], search_paths=[_ROOT])
    saved = tmp_path / 'config.gin'
    configuration.save_config(saved)
    before = configuration.resolved_config()
    configuration.parse([str(saved)], search_paths=[_ROOT])
    assert not configuration.differing_lines(before, configuration.resolved_config())
    configuration.parse(
      [str(saved), 'gin/parts/posterior_point.gin', 'gin/run/isolated.gin'], ['MODEL_RATE = 1e-3'], [_ROOT]
    )
    for name in ('gin/agents/ppo.gin', 'gin/sizes/grid_short.gin'):
      with pytest.raises(configuration.ConfigurationError, match=f"{name} can't meet .*config.gin, the whole config"):
        configuration.parse([str(saved), name], search_paths=[_ROOT])


class TestNames:
  _LIBRARY = axes.Library([_ROOT])

  @pytest.mark.parametrize(
    'name, axis, file',
    [
      ('pointgoal1', axes.Axis.TASK, 'gin/sg6_pointgoal1.gin'),
      ('PointGoal1', axes.Axis.TASK, 'gin/sg6_pointgoal1.gin'),
      ('sg6_pointgoal1', axes.Axis.TASK, 'gin/sg6_pointgoal1.gin'),
      ('grid', axes.Axis.TASK, 'gin/tasks/grid.gin'),
      ('grid', axes.Axis.SIZE, 'gin/sizes/grid.gin'),
      ('greedy', axes.Axis.PART, 'gin/parts/greedy.gin'),
      ('mine/room.gin', axes.Axis.TASK, 'mine/room.gin'),
    ],
  )
  def test_short_names(self, name, axis, file):
    assert self._LIBRARY.find(name, [axis]) == file

  def test_misspelt_names(self):
    with pytest.raises(axes.ConfigurationError, match="There is no part 'gredy'. Did you mean greedy"):
      self._LIBRARY.find('gredy', [axes.Axis.PART])

  @pytest.mark.parametrize(
    'name, axis',
    [
      ('gin/sg6_pointgoal1.gin', axes.Axis.TASK),
      ('gin/run/isolated.gin', axes.Axis.RUN),
      ('/x/gin/parts/a.gin', axes.Axis.PART),
      ('gin/base/small.gin', axes.Axis.OWN),
      ('mine/run/a.gin', axes.Axis.OWN),
      ('a.gin', axes.Axis.OWN),
    ],
  )
  def test_a_folder_is_an_axis(self, name, axis):
    assert axes.axis_of(name) is axis

  def test_every_file_says_what_it_is(self):
    assert all(20 < len(file.summary) < 140 for file in _FILES)
    assert len({(file.axis, axes.short_name(file)) for file in _FILES}) == len(_FILES)
